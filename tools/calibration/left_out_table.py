"""Write the table of the model's errors on the evidence, which the product shows beside estimates and in `whichgpu accuracy`.

The fits give the errors of predictions that never saw a row's model, GPU or source, with their 90% ranges (`update`); the last
stage of `make refit` adds those of the fitted model itself and of the plain roofline (`refit`, or
`python -m calibration.left_out_table` alone).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import date
from math import inf, isfinite

import numpy as np

from calibration.examples import examples
from calibration.fit_groups import GroupDesign
from calibration.fit_steps import Design
from calibration.group_alone import single_times
from calibration.group_examples import group_examples
from calibration.residuals import Residual
from whichgpu.catalog.evidence import Measurement, measurements, steps
from whichgpu.catalog.evidence_search.index import read_items, read_words
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.confidence.spread import SIDES, Terms, spread
from whichgpu.estimate.group.group_calibration import load_group_calibration
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.estimate.time.left_out import (
    COLUMNS,
    FOLDS,
    HOST,
    LEFT_OUT_FILE,
    MISSING,
    ROOFLINE,
    SCALE,
    left_out_table,
    table_bytes,
)

Key = tuple[str, int]  # source and row
SAME = 2 / SCALE  # in log: the same fit on two machines may differ by this much (rounding)


def update(columns: Mapping[str, Mapping[Key, float]]) -> int:
    """Replace columns (some of COLUMNS: log errors and ends of ranges by row) of the table and return how many cells changed.

    Cells that agree with the table's to SAME stay as they are; rows that the evidence no longer has are dropped. A table without
    a change keeps its date.
    """
    before = _read()
    after = {**before, **{name: _settled(before.get(name, {}), own) for name, own in columns.items()}}
    evidence = [(row.source, row.row) for row in measurements() if row.kind != "op"]
    order = [key for key in evidence if any(key in own for own in after.values())]
    known = set(order)
    after = {name: {key: log for key, log in own.items() if key in known} for name, own in after.items()}
    changed = sum(len(dict(own.items() ^ before.get(name, {}).items())) for name, own in after.items())
    day = date.today().isoformat() if changed or not LEFT_OUT_FILE.exists() else left_out_table().date
    logs = {name: np.array([after.get(name, {}).get(key, np.nan) for key in order]) for name in COLUMNS}
    LEFT_OUT_FILE.write_bytes(table_bytes(day, [key[0] for key in order], [key[1] for key in order], logs))
    left_out_table.cache_clear()
    return changed


def _settled(before: Mapping[Key, float], logs: Mapping[Key, float]) -> dict[Key, float]:
    """Finite logs rounded as the table stores them, each replaced by the one before if they agree to SAME."""
    rounded = {key: round(log * SCALE) / SCALE for key, log in logs.items() if isfinite(log)}
    return {key: before[key] if abs(before.get(key, inf) - log) <= SAME else log for key, log in rounded.items()}


def _read() -> dict[str, dict[Key, float]]:
    """Cells of the table that have a value, by column and row."""
    if not LEFT_OUT_FILE.exists():
        return {}
    stored = left_out_table().stored
    words, codes = read_words(stored["row_source"]), read_items(stored["row_source"])
    keys = [(words[code], int(row)) for code, row in zip(codes, read_items(stored["row"]), strict=True)]
    return {
        name: {key: item / SCALE for key, item in zip(keys, read_items(stored[name]).tolist(), strict=True) if item != MISSING}
        for name in COLUMNS
        if name in stored
    }


def update_left_out(residuals: Iterable[Residual], terms: Terms) -> int:
    """Put predictions by fits without a row's model, GPU and source in the table, with their ranges; cells that changed."""
    columns: dict[str, dict[Key, float]] = {name: {} for name in COLUMNS if name.startswith(FOLDS)}
    for one in residuals:
        if one.axis in FOLDS:
            key = one.row.source, one.row.row
            low, high = (spread(one.axes, one.new, terms[side]) for side in SIDES)
            for end, log in (("", -one.log), ("_low", -low), ("_high", high)):
                columns[one.axis + end][key] = log
    return update(columns)


def refit() -> str:
    """Add the errors of the fitted model on every row; a sentence on what changed."""
    columns: dict[str, dict[Key, float]] = {name: {} for name in ("fit", ROOFLINE, HOST)}
    for rows, logs_by_column in (single_errors(), group_errors()):
        for name, logs in logs_by_column.items():
            columns[name] |= {(row.source, row.row): float(log) for row, log in zip(rows, logs, strict=True)}
    return f"{update(columns):,} errors of the model on the evidence changed"


def single_errors() -> tuple[list[Measurement], dict[str, np.ndarray]]:
    """Rows on one GPU: log errors of the fitted model and of the plain roofline, and log of the host's time over the device's."""
    design = Design(examples(steps(measurements()), Catalog()))
    estimates = design.estimates_with(load_calibration(), range(len(design.examples)))
    predicted = np.log([one.wall[0, 0] for one in estimates])
    roofline = np.log([max(sum(float(floors.sum()) for _, floors in one.parts), 1e-9) for one in design.examples])
    with np.errstate(divide="ignore"):
        host = np.log([one.host[0, 0] / one.device[0, 0] for one in estimates])
    columns = {
        "fit": design.errors(predicted),
        ROOFLINE: design.errors(roofline),
        HOST: np.where(design.launches, host, np.nan),
    }
    return [example.row for example in design.examples], columns


def group_errors() -> tuple[list[Measurement], dict[str, np.ndarray]]:
    """Rows on several GPUs, and the log errors of the fitted model."""
    rows = steps(measurements(), several_gpus=True)
    design = GroupDesign(group_examples(rows, Catalog(), singles=single_times(steps(measurements()))))
    fitted = load_group_calibration().multipliers
    theta = np.array([fitted.get(level, {}).get(group, {}).get(term, 0.0) for level, group, term in design.parameters])
    return [example.row for example in design.examples], {"fit": design.predict(theta) - design.actual}


if __name__ == "__main__":
    print(refit(), file=sys.stderr)
