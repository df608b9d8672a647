"""The accuracy pages come from the table of left-out predictions, and `whichgpu accuracy` prints the same figures."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

import whichgpu as wg
from benchmarks import accuracy_pages, accuracy_speed, accuracy_worst
from benchmarks.left_out_rows import LeftOutRow, left_out_rows
from whichgpu.estimate.time.left_out import left_out_table


@pytest.fixture(scope="module")
def rows() -> Sequence[LeftOutRow]:
    """Return the rows of all pages."""
    return left_out_rows()


def test_the_command_prints_the_figures_of_the_page() -> None:
    """Errors by engine without the GPU and without the source, as the page in docs shows them."""
    text = (accuracy_pages.FOLDER / "accuracy.md").read_text(encoding="utf-8")
    gpu, source = wg.accuracy(by="engine"), {one.group: one for one in wg.accuracy(by="engine", left_out="source").scores}
    assert len(gpu.scores) > 5
    for one in gpu.scores:
        other = source[one.group]
        line = f"| {one.group} | {one.rows:,} | {one.mean:.1%} | {one.median:.1%} | {one.p90:.1%} | {one.bias:+.1%} | "
        line += f"{one.inside:.0%} | {other.median:.1%} | {other.p90:.1%} | {other.inside:.0%} |"
        assert line in text, "run python -m benchmarks.accuracy_pages"


def test_every_page_is_of_the_shipped_table() -> None:
    """Pages name the day of the fit whose predictions ship; `make refit` writes both."""
    for name in accuracy_pages.PAGES:
        text = (accuracy_pages.FOLDER / name).read_text(encoding="utf-8")
        assert left_out_table().date in text, f"{name}: run python -m benchmarks.accuracy_pages"


def test_pairs_of_makers_are_ranked(rows: Sequence[LeftOutRow]) -> None:
    """Of two GPUs on which a request was measured, the share of pairs whose faster one is named."""
    table = [
        line for line in accuracy_speed.ranks([one for one in rows if one.row.source == "geerling"]) if line.startswith("| all")
    ]
    assert len(table) == 1


def test_every_reason_matches_a_row(rows: Sequence[LeftOutRow]) -> None:
    """A reason that no row has is no reason; the first that matches is given."""
    table = accuracy_worst.reasons()
    used = {accuracy_worst.reason(one, table) for one in rows}
    assert {line["reason"] for line in table} <= used


def test_a_row_without_a_reason_says_so(rows: Sequence[LeftOutRow]) -> None:
    """Host-bound rows have that as their reason unless a better one is known."""
    one = replace(rows[0], host=-1.0, fit=1.0, errors={"source": 0.5})
    assert accuracy_worst.reason(one, []) == accuracy_worst.UNKNOWN
    assert "host-bound" in accuracy_worst.reason(replace(one, host=0.5), [])
    assert (
        accuracy_worst.reason(one, [{"source": "^no such", "gpu": "", "run": "", "off": "", "reason": "x"}])
        == accuracy_worst.UNKNOWN
    )
