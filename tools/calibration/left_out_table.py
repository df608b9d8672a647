"""Write the table of the model's errors on the evidence, which the product shows beside estimates and in `whichgpu accuracy`.

The fits give the errors of predictions that never saw a row's model, GPU or source, with their 90% ranges (`update`); the last
stage of `make refit` adds those of the fitted model itself (`refit`, or `python -m calibration.left_out_table` alone).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

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
from whichgpu.estimate.time.left_out import COLUMNS, FOLDS, LEFT_OUT_FILE, MISSING, SCALE, left_out_table, table_bytes

Key = tuple[str, int]  # source and row
SAME = 2 / SCALE  # in log: the same fit on two machines may differ by this much (rounding)


def update(rows: Iterable[Measurement], logs: Mapping[str, np.ndarray]) -> int:
    """Put log errors and ranges (some of COLUMNS) of rows in the table and return how many cells changed.

    Rows that the evidence no longer has are dropped; cells that agree with the table's to SAME stay as they are.
    """
    cells = _read()
    changed = 0
    for place, row in enumerate(rows):
        own = cells.setdefault((row.source, row.row), {})
        for name, values in logs.items():
            if not abs(own.get(name, np.inf) - values[place]) <= SAME:
                own[name] = float(values[place])
                changed += 1
    order = [(row.source, row.row) for row in measurements() if row.kind != "op" and (row.source, row.row) in cells]
    columns = {name: np.array([cells[key].get(name, np.nan) for key in order]) for name in COLUMNS}
    day = date.today().isoformat() if changed or not LEFT_OUT_FILE.exists() else left_out_table().date
    LEFT_OUT_FILE.write_bytes(table_bytes(day, [key[0] for key in order], [key[1] for key in order], columns))
    left_out_table.cache_clear()
    return changed


def _read() -> dict[Key, dict[str, float]]:
    if not LEFT_OUT_FILE.exists():
        return {}
    stored = left_out_table().stored
    words, codes = read_words(stored["row_source"]), read_items(stored["row_source"])
    keys = [(words[code], int(row)) for code, row in zip(codes, read_items(stored["row"]), strict=True)]
    cells: dict[Key, dict[str, float]] = {key: {} for key in keys}
    for name in COLUMNS:
        for key, item in zip(keys, read_items(stored[name]).tolist(), strict=True):
            if item != MISSING:
                cells[key][name] = item / SCALE
    return cells


def update_left_out(residuals: Sequence[Residual], terms: Terms) -> int:
    """Put predictions by fits without a row's model, GPU and source in the table, with their ranges; cells that changed."""
    changed = 0
    for fold in FOLDS:
        chosen = [one for one in residuals if one.axis == fold]
        low, high = (np.array([spread(one.axes, one.new, terms[side]) for one in chosen]) for side in SIDES)
        logs = {fold: np.array([-one.log for one in chosen]), f"{fold}_low": -low, f"{fold}_high": high}
        changed += update([one.row for one in chosen], logs)
    return changed


def refit() -> str:
    """Add the errors of the fitted model on every row; a sentence on what changed."""
    changed = update(*single_errors()) + update(*group_errors())
    return f"{changed} errors of the model on the evidence changed"


def single_errors() -> tuple[list[Measurement], dict[str, np.ndarray]]:
    """Rows on one GPU, and the log errors of the fitted model."""
    design = Design(examples(steps(measurements()), Catalog()))
    predicted = design.predict_with(load_calibration(), range(len(design.examples)))
    return [example.row for example in design.examples], {"fit": design.errors(predicted)}


def group_errors() -> tuple[list[Measurement], dict[str, np.ndarray]]:
    """Rows on several GPUs, and the log errors of the fitted model."""
    rows = steps(measurements(), several_gpus=True)
    design = GroupDesign(group_examples(rows, Catalog(), singles=single_times(steps(measurements()))))
    fitted = load_group_calibration().multipliers
    theta = np.array([fitted.get(level, {}).get(group, {}).get(term, 0.0) for level, group, term in design.parameters])
    return [example.row for example in design.examples], {"fit": design.predict(theta) - design.actual}


if __name__ == "__main__":
    print(refit(), file=sys.stderr)
