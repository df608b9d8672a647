"""The parameter table explains every parameter, and the known exceptions are those it has."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from calibration.parameter_table import EXCEPTIONS_FILE, FITTED, FIXED, NUISANCE, exceptions, problems, read_table

from whichgpu.base.bundled_data import data_rows
from whichgpu.estimate.group.group_calibration import DATA_FOLDER as SEVERAL_GPUS
from whichgpu.estimate.time.calibration import DATA_FOLDER as ONE_GPU
from whichgpu.estimate.time.curves.parameters import parameters

MAX_EXCEPTIONS = 52  # only ever fewer


def test_every_parameter_has_a_unit_a_meaning_and_a_source() -> None:
    for row in read_table():
        assert row.status in (FITTED, FIXED, NUISANCE)
        assert row.unit, row.name
        assert len(row.meaning.split()) >= 3, row.name
        assert row.source, row.name
        assert bool(row.value) == (row.status != NUISANCE)


def test_fitted_parameters_have_bounds_an_error_and_rows() -> None:
    for row in read_table():
        if row.status == FITTED:
            assert float(row.lower) <= float(row.value) <= float(row.upper), row.name
            assert float(row.standard_error) > 0
            assert int(row.rows) >= 0


def test_exceptions_are_the_problems_of_the_table_and_only_shrink() -> None:
    violations = problems(read_table())
    assert set(violations) == exceptions()
    with EXCEPTIONS_FILE.open(newline="", encoding="utf-8") as text:
        assert len(list(csv.DictReader(text))) <= MAX_EXCEPTIONS


def test_the_model_reads_every_value_of_the_table() -> None:
    assert parameters() == {row.name: float(row.value) for row in read_table() if row.value}


@pytest.mark.parametrize("folder", [ONE_GPU, SEVERAL_GPUS], ids=["one GPU", "several GPUs"])
def test_levels_and_terms_of_corrections_are_explained(folder: Path) -> None:
    explained = {
        (row["kind"], row["name"]) for row in data_rows(folder / "correction_terms.csv") if row["meaning"] and row["unit"]
    }
    for row in data_rows(folder / "corrections.csv"):
        assert ("level", row["level"]) in explained
        assert ("term", row["term"]) in explained
