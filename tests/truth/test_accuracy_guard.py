"""Accuracy does not fall behind the committed figures: neither by a worse fit nor by a change of the model without a fit."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pytest
from calibration.examples import examples
from calibration.fit_steps import Design
from calibration.left_out_table import SAME, group_errors, single_errors

from benchmarks.accuracy_figures import AccuracyFigure, committed, figures
from benchmarks.left_out_rows import left_out_rows
from whichgpu.catalog.evidence import Measurement, measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.estimate.time.left_out import FOLDS, left_out_table

ROUNDING = 0.00005  # Figures are committed with four decimals.
SUBSET_ROWS = 240  # rows of the fixed subset, about three seconds
MAX_CHANGE = SAME + 0.002  # log; the table's own rounding, twice
REMEDY = "make refit, then python -m benchmarks.accuracy_figures if the figures became better"


def falls_behind(now: AccuracyFigure, before: AccuracyFigure) -> bool:
    """Whether errors grew, ranges cover less, or evidence is missing."""
    worse = now.median > before.median + ROUNDING or now.p90 > before.p90 + ROUNDING
    return worse or now.inside < before.inside - ROUNDING or now.rows < before.rows


def test_left_out_predictions_are_as_accurate_as_the_committed_figures() -> None:
    now = {(one.left_out, one.by, one.group): one for one in figures(left_out_rows())}
    before = {(one.left_out, one.by, one.group): one for one in committed()}
    assert {fold for fold, by, _ in before if by == "all"} == set(FOLDS)
    assert len(before) > 50
    behind = [(now.get(key), one) for key, one in before.items() if key not in now or falls_behind(now[key], one)]
    assert not behind, f"{REMEDY}: {behind[:5]}"


@pytest.mark.parametrize("field", ["median", "p90", "inside", "rows"])
def test_a_worse_figure_is_noticed(field: str) -> None:
    one = committed()[0]
    changes = {"median": one.median * 1.01, "p90": one.p90 * 1.01, "inside": one.inside - 0.01, "rows": one.rows - 1}
    values = {name: getattr(one, name) for name in one.__struct_fields__}
    assert not falls_behind(one, one)
    assert falls_behind(AccuracyFigure(**(values | {field: changes[field]})), one)


def fixed_subset(rows: Sequence[Measurement]) -> list[Measurement]:
    """Return rows in an order that depends on their names alone, as many as SUBSET_ROWS."""
    return sorted(rows, key=lambda row: blake2b(f"{row.source} {row.row}".encode()).digest())[:SUBSET_ROWS]


def assert_as_stored(rows: Sequence[Measurement], logs: np.ndarray) -> None:
    """Fail if errors of the model as it is now differ from those of the stored fit."""
    places = {(row.source, row.row): place for place, row in enumerate(measurements())}
    stored = left_out_table().column("fit")[[places[row.source, row.row] for row in rows]]
    has_error = np.isfinite(stored)
    assert has_error.mean() > 0.95
    changed = np.abs(logs - stored)[has_error] > MAX_CHANGE
    median_now, median_then = (np.median(np.abs(errors[has_error])) for errors in (logs, stored))
    assert not changed.any(), (
        f"{changed.sum()} of {has_error.sum()} estimates changed ({median_then:.3f} to {median_now:.3f}): {REMEDY}"
    )


def test_the_model_is_the_one_that_was_fitted() -> None:
    """Estimates of a fixed subset of the evidence: a change of the model without a fit would leave the figures untrue."""
    design = Design(examples(fixed_subset(steps(measurements())), Catalog()))
    estimates = design.estimates_with(load_calibration(), range(len(design.examples)))
    rows = [example.row for example in design.examples]
    assert len(rows) == SUBSET_ROWS
    assert_as_stored(rows, design.errors(np.log([one.wall[0, 0] for one in estimates])))


@pytest.mark.long
def test_the_model_is_the_one_that_was_fitted_on_every_row() -> None:
    for rows, columns in (single_errors(), group_errors()):
        assert_as_stored(rows, columns["fit"])
