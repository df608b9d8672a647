"""Fit the corrections of steps on one GPU on the evidence table; `make refit` runs all fits."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from calibration.correction_table import write_corrections
from calibration.examples import examples
from calibration.fit_steps import MIN_LOG_FACTOR, Design, Example
from calibration.scores import source_of
from whichgpu.catalog.evidence import TABLE, measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import DATA_FOLDER

# Ids of sources in the catalog that differ from the source's name in the evidence table.
SOURCE_IDS = {"h200": "speed-h200"}


def refit() -> str:
    """Fit the corrections on the evidence table and write them; a sentence on what changed."""
    design = Design(examples(steps(measurements()), Catalog()))
    theta = design.fit(np.ones(len(design.examples), dtype=bool))
    change = write_corrections(DATA_FOLDER, design.correction_rows(theta), MIN_LOG_FACTOR)
    write_summary(DATA_FOLDER, evidence(design.examples), len(design.examples))
    return f"largest change of a log factor {change:.4f}"


def write_summary(folder: Path, evidence: Mapping[str, Any], rows: int) -> None:
    """Write the evidence by engine, and the date and digest of the fit; the date of a fit on the same evidence stays."""
    path = folder / "calibration.json"
    before = json.loads(path.read_bytes())["made"] if path.exists() else {}
    made = {"command": "make refit", "evidence": digest(), "rows": rows}
    made["date"] = before["date"] if before.get("evidence") == made["evidence"] else date.today().isoformat()
    path.write_text(json.dumps({"evidence": evidence, "made": made}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def measured_task(example: Example) -> str:
    """The kind of step a row measured; serving counts as generation."""
    kind = example.groups["kind"]
    return "generate" if kind == "serve" else kind


def evidence(examples: Iterable[Example]) -> dict[str, Any]:
    """Evidence behind each engine's corrections: rows, GPUs, tasks, years and sources."""
    engines: dict[str, dict[str, Any]] = {}
    for example in examples:
        blank: dict[str, Any] = {"rows": 0, "gpus": set(), "tasks": defaultdict(int), "years": set(), "sources": set()}
        one = engines.setdefault(example.setting.engine, blank)
        one["rows"] += 1
        one["gpus"].add(example.setting.gpu)
        one["tasks"][measured_task(example)] += 1
        one["years"].add(example.setting.year)
        one["sources"].add(SOURCE_IDS.get(source_of(example), f"results-{source_of(example).lower()}"))
    return {"engines": {name: sorted_sets(one) for name, one in engines.items()}}


def sorted_sets(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with its sets as sorted lists, as JSON has none."""
    return {key: sorted(value) if isinstance(value, set) else value for key, value in record.items()}


def digest() -> str:
    """SHA-256 of the evidence table."""
    return hashlib.sha256(TABLE.read_bytes()).hexdigest()
