"""The table of the model's errors is the same after a second fit on unchanged evidence; each stage reads what others wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from calibration import left_out_table
from calibration.refit import STAGES, run_alone

from whichgpu.catalog.evidence import measurements
from whichgpu.estimate.time import left_out
from whichgpu.estimate.time.left_out import LEFT_OUT_FILE


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a copy of the table that fits may rewrite."""
    copy = tmp_path / "left_out.bin"
    copy.write_bytes(LEFT_OUT_FILE.read_bytes())
    monkeypatch.setattr(left_out_table, "LEFT_OUT_FILE", copy)
    monkeypatch.setattr(left_out, "LEFT_OUT_FILE", copy)
    monkeypatch.setattr(left_out_table, "date", None)  # today's date is asked for only if a cell changes
    left_out.left_out_table.cache_clear()
    yield copy
    left_out.left_out_table.cache_clear()


def test_the_same_errors_leave_the_file_as_it_is(table: Path) -> None:
    """Rounding of a fit on another machine does not change a cell, nor the date."""
    fit = left_out_table._read()["fit"]
    left_out_table.update({"fit": fit})
    before = table.read_bytes()
    assert left_out_table.update({"fit": {key: log + 0.0014 for key, log in fit.items()}}) == 0
    assert table.read_bytes() == before


def test_columns_are_replaced_whole(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row without a new error has none: nothing of an earlier fit is left. Rows the evidence no longer has are dropped."""
    monkeypatch.undo()
    monkeypatch.setattr(left_out_table, "LEFT_OUT_FILE", table)
    monkeypatch.setattr(left_out, "LEFT_OUT_FILE", table)
    row = next(row for row in measurements() if row.kind != "op")
    key = row.source, row.row
    left_out_table.update({"source": {key: 0.25, ("no such source", 1): 1.0, (row.source, -1): float("nan")}})
    cells = left_out_table._read()
    assert cells["source"] == {key: 0.25}
    assert len(cells["fit"]) > 1000


class _Writer:
    """A stage that remembers what it read."""

    def refit(self) -> str:
        """Return how many tables it has read."""
        left_out.left_out_table()
        return str(left_out.left_out_table.cache_info().currsize)


def test_a_stage_leaves_no_cache_behind() -> None:
    """A later stage reads the files again: nothing that an earlier one read is in its memory."""
    left_out.left_out_table.cache_clear()
    assert run_alone(_Writer()) == "1"
    assert left_out.left_out_table.cache_info().currsize == 0
    assert all(callable(stage.refit) for stage in STAGES)
