"""Rewrite the evidence table from a folder of measured results; rows of sources missing from the folder are unchanged.

PYTHONPATH=src:tools python -m evidence.collect ../shared/truth
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from evidence.group_rows import group_rows
from evidence.rows import operator_rows, single_gpu_rows
from evidence.runs.accelerators import accelerator_runs
from evidence.runs.finetuning import finetune_runs
from evidence.runs.mlperf_training import training_results
from evidence.runs.training import training_runs
from whichgpu.catalog.evidence import TABLE, Measurement, evidence_sources, measurements, table_bytes

OWN_PATH, OWN_DATE = "measured on one H200 SXM 141GB for whichgpu", "2026-11"


def collect(truth: Path) -> list[Measurement]:
    """Rows of the folder, then those of other sources that the table has already: steps on one GPU, on several, operators."""
    rows = [_dated(row, truth) for row in (*single_gpu_rows(truth), *group_rows(truth), *operator_rows(truth))]
    rows += [*training_runs(truth), *training_results(truth), *finetune_runs(truth), *accelerator_runs(truth)]
    sources = {row.source for row in rows}
    rows += [row for row in (measurements() if TABLE.exists() else ()) if row.source not in sources]
    if unknown := {row.source for row in rows} - set(evidence_sources()):
        raise SystemExit(f"no licence and address in evidence_sources.csv: {sorted(unknown)}")
    return rows


def _dated(row: Measurement, truth: Path) -> Measurement:
    if row.source.startswith("h200") or row.source == "micro":
        return replace(row, path=OWN_PATH, date=OWN_DATE)
    path, date = _published(truth)[row.row]
    return replace(row, path=path, date=date)


_PUBLISHED: dict[int, tuple[str, str]] = {}


def _published(truth: Path) -> dict[int, tuple[str, str]]:
    """Path and date of each line of the published results."""
    if not _PUBLISHED:
        with (truth / "public" / "calibration.csv").open(newline="", encoding="utf-8") as text:
            for line, cells in enumerate(csv.DictReader(text), start=2):
                _PUBLISHED[line] = cells["source_path"], cells["date"]
    return _PUBLISHED


def counts(rows: Iterable[Measurement]) -> Counter[tuple[str, str]]:
    """Rows by source and kind."""
    return Counter((row.source, row.kind) for row in rows)


def main(truth: Path) -> None:
    """Write the table and print what it holds."""
    rows = collect(truth)
    TABLE.write_bytes(table_bytes(rows))
    for (source, kind), count in sorted(counts(rows).items()):
        print(source, kind, count, sep="\t")
    print(f"{len(rows)} rows, {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
