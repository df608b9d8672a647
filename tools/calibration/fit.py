"""Fit everything on the measurements and write the product's one data file of fitted numbers.

PYTHONPATH=src:tools python -m calibration.fit --truth ../shared/truth   # a part of tools/calibrate
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from calibration.examples import examples
from calibration.fit_curves import COMMAND
from calibration.fit_steps import Design, Example
from calibration.ranges import ranges, widening
from calibration.scores import Held, held_out, save
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import DATA_FILE
from whichgpu.workload.precisions import PRECISION_BY_NAME

# Whose results they are, as the catalog's sources name them.
SOURCE_IDS = {"h200": "speed-h200"}


def main() -> int:
    """Fit, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="no leaving out: ranges stay as they are")
    parser.add_argument("--held", type=Path, help="keep the predictions made without each group in this file")
    asked = parser.parse_args()
    design = Design(examples(measured_rows(asked.truth), Catalog()))
    theta = design.fit(np.ones(len(design.examples), dtype=bool))
    written = json.loads(DATA_FILE.read_bytes()) if DATA_FILE.exists() else {}
    if not asked.quick:
        held = held_out(design, theta)
        written["ranges"] = all_ranges(design, held)
        if asked.held:
            save(held, asked.held)
    written.setdefault("ranges", {})
    written["multipliers"] = design.calibration(theta).multipliers
    written["evidence"] = evidence(design.examples)
    written["made"] = {
        "command": COMMAND,
        "date": date.today().isoformat(),
        "digest": digest(asked.truth),
        "rows": len(design.examples),
    }
    DATA_FILE.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    print(f"{len(design.examples)} rows, {len(design.parameters)} multipliers", file=sys.stderr)
    return 0


def all_ranges(design: Design, held: Held) -> dict[str, Any]:
    """Log factors by tier and kind, from predictions that never saw the model, the GPU or the generation."""
    weights = design.weights(np.ones(len(design.examples), dtype=bool), trusted=1.0)
    told = {"gpu": held.model, "generation": held.gpu, "other": held.generation}
    kinds = kinds_of(design)
    return widening({tier: ranges(design.actual - predicted, kinds, weights) for tier, predicted in told.items()})


def kinds_of(design: Design) -> list[str]:
    """Engine and task of each example, by which ranges are told."""
    return [f"{example.setting.engine}/{example.setting.task}" for example in design.examples]


def evidence(found: list[Example] | Any) -> dict[str, Any]:
    """What each engine's numbers rest on: rows, GPUs, generations, tasks, years, sources; and widths of numbers by generation."""
    engines: dict[str, dict[str, Any]] = {}
    gpus: dict[str, int] = defaultdict(int)
    for example in found:
        setting = example.setting
        gpus[setting.gpu] += 1
        one = engines.setdefault(
            setting.engine,
            {
                "rows": 0, "gpus": set(), "generations": set(), "bits": {}, "tasks": defaultdict(int), "years": set(),
                "sources": set(),
            },
        )  # fmt: skip
        one["rows"] += 1
        one["gpus"].add(setting.gpu)
        one["generations"].add(setting.generation)
        one["bits"].setdefault(setting.gpu, set()).add(PRECISION_BY_NAME[example.row.request["precision"]].bits)
        one["tasks"][setting.task] += 1
        one["years"].add(setting.year)
        source = (
            example.groups["source"].partition("-")[0]
            if example.groups["source"].startswith("h200")
            else example.groups["source"]
        )
        one["sources"].add(SOURCE_IDS.get(source, f"results-{source.lower()}"))
    for one in engines.values():
        one["bits"] = {name: sorted(known) for name, known in one["bits"].items()}
    plain = {
        name: {key: sorted(value) if isinstance(value, set) else value for key, value in one.items()}
        for name, one in engines.items()
    }
    widths: dict[str, set[int]] = defaultdict(set)
    for example in found:
        widths[example.setting.generation].add(PRECISION_BY_NAME[example.row.request["precision"]].bits)
    return {"engines": plain, "gpus": dict(gpus), "bits": {name: sorted(known) for name, known in widths.items()}}


def digest(truth: Path) -> str:
    """One sum over the files read."""
    total = hashlib.sha256()
    for path in sorted([*truth.glob("h200/*.jsonl"), truth / "public" / "calibration.csv"]):
        total.update(path.read_bytes())
    return total.hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
