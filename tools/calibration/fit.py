"""Fit the corrections of steps on one GPU, and their ranges, on the evidence table.

`make refit` runs all fits; `python -m calibration.fit --held-out FILE` writes predictions by fits that never saw the row.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from calibration.correction_table import write_corrections
from calibration.examples import examples
from calibration.fit_steps import MIN_LOG_FACTOR, Design, Example
from calibration.ranges import ranges, widening
from calibration.scores import HeldOut, held_out, save
from whichgpu.catalog.evidence import TABLE, measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import DATA_FOLDER
from whichgpu.workload.precisions import PRECISION_BY_NAME

SAME_RANGE = 0.01  # in log: the same fit on two machines may differ by this much (floating-point rounding)
# Ids of sources in the catalog that differ from the source's name in the evidence table.
SOURCE_IDS = {"h200": "speed-h200"}


def refit() -> str:
    """Fit the corrections on the evidence table and write them with their ranges; a sentence on what changed."""
    from calibration.left_out_table import update_steps

    design = Design(examples(steps(measurements()), Catalog()))
    theta = design.fit(np.ones(len(design.examples), dtype=bool))
    change = write_corrections(DATA_FOLDER, design.correction_rows(theta), MIN_LOG_FACTOR)
    held = held_out(design, theta)
    tables = all_ranges(design, held)
    write_summary(DATA_FOLDER, tables, evidence(design.examples), len(design.examples))
    update_steps(design, held, tables, kinds_of(design))
    return f"largest change of a log factor {change:.4f}"


def main() -> int:
    """Write predictions by fits without each model, GPU and generation, for the accuracy pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", type=Path, required=True, help="file for the predictions made without each group")
    arguments = parser.parse_args()
    design = Design(examples(steps(measurements()), Catalog()))
    save(held_out(design, design.fit(np.ones(len(design.examples), dtype=bool))), arguments.held_out)
    return 0


def write_summary(folder: Path, ranges: Mapping[str, Any], evidence: Mapping[str, Any], rows: int) -> None:
    """Write ranges by evidence tier, evidence by engine, and the date and digest of the fit.

    Ranges that agree with the file's to SAME_RANGE, and the date of a fit on the same evidence, stay as they are.
    """
    path = folder / "calibration.json"
    before = json.loads(path.read_bytes()) if path.exists() else {"made": {}, "ranges": {}}
    if _largest_change(before["ranges"], ranges) <= SAME_RANGE:
        ranges = before["ranges"]
    made = {"command": "make refit", "evidence": digest(), "rows": rows}
    same = before["ranges"] == ranges and before["made"].get("evidence") == made["evidence"]
    made["date"] = before["made"]["date"] if same else date.today().isoformat()
    text = json.dumps({"evidence": evidence, "ranges": ranges, "made": made}, indent=1, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def _largest_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    if {tier: set(kinds) for tier, kinds in before.items()} != {tier: set(kinds) for tier, kinds in after.items()}:
        return float("inf")
    pairs = ((before[tier][kind], after[tier][kind]) for tier in after for kind in after[tier])
    return max(float(abs(old - new)) for olds, news in pairs for old, new in zip(olds, news, strict=True))


def all_ranges(design: Design, held: HeldOut) -> dict[str, Any]:
    """Log factors by tier and kind, from predictions that never saw the model, the GPU or the generation."""
    weights = design.weights(np.ones(len(design.examples), dtype=bool), trusted=1.0)
    predictions = {"gpu": held.model, "generation": held.gpu, "other": held.generation}
    kinds = kinds_of(design)
    return widening({tier: ranges(design.actual - predicted, kinds, weights) for tier, predicted in predictions.items()})


def kinds_of(design: Design) -> list[str]:
    """Engine and task of each example: each such pair has its own range."""
    return [f"{example.setting.engine}/{measured_task(example)}" for example in design.examples]


def measured_task(example: Example) -> str:
    """The kind of step a row measured; serving counts as generation."""
    kind = example.groups["kind"]
    return "generate" if kind == "serve" else kind


def evidence(examples: list[Example] | Any) -> dict[str, Any]:
    """Evidence behind each engine's corrections: rows, GPUs, generations, tasks, years, sources; and formats by generation."""
    engines: dict[str, dict[str, Any]] = {}
    gpus: dict[str, int] = defaultdict(int)
    for example in examples:
        setting = example.setting
        gpus[setting.gpu] += 1
        one = engines.setdefault(
            setting.engine,
            {
                "rows": 0, "gpus": set(), "generations": set(), "formats": {}, "tasks": defaultdict(int), "years": set(),
                "sources": set(),
            },
        )  # fmt: skip
        one["rows"] += 1
        one["gpus"].add(setting.gpu)
        one["generations"].add(example.groups["generation"])
        one["formats"].setdefault(setting.gpu, set()).add(number_format(example))
        one["tasks"][measured_task(example)] += 1
        one["years"].add(setting.year)
        source = (
            example.groups["source"].partition("-")[0]
            if example.groups["source"].startswith("h200")
            else example.groups["source"]
        )
        one["sources"].add(SOURCE_IDS.get(source, f"results-{source.lower()}"))
    for one in engines.values():
        one["formats"] = {name: sorted(known) for name, known in one["formats"].items()}
    plain = {
        name: {key: sorted(value) if isinstance(value, set) else value for key, value in one.items()}
        for name, one in engines.items()
    }
    formats: dict[str, set[str]] = defaultdict(set)
    for example in examples:
        formats[example.groups["generation"]].add(number_format(example))
    return {"engines": plain, "gpus": dict(gpus), "formats": {name: sorted(known) for name, known in formats.items()}}


def number_format(example: Example) -> str:
    """Number format by which evidence of a row's precision is grouped, such as 16-bit, fp8, int4 or mxfp4."""
    return PRECISION_BY_NAME[example.row.request["precision"]].evidence_format


def digest() -> str:
    """SHA-256 of the evidence table."""
    return hashlib.sha256(TABLE.read_bytes()).hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
