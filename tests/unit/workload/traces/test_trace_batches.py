"""Bulk parsing of trace lines: the same as line by line, or left to that parser; never guessed."""

from __future__ import annotations

from array import array

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.workload.traces.batches import DATE_CHARACTERS, csv_batches, json_batches
from whichgpu.workload.traces.lines import hashes_of

BATCHES = csv_batches(["time", "prompt", "output"], "time", "prompt", "output", dated=False)
DATED = csv_batches(["time", "prompt", "output"], "time", "prompt", "output", dated=True)


def test_simple_lines_are_columns_in_the_header_s_order() -> None:
    batch = csv_batches(["output", "extra", "time", "prompt"], "time", "prompt", "output", dated=False)(
        ["7,x,0.5,100", "8,y,1.5,200"]
    )
    assert batch is not None
    assert batch.times is not None
    assert (batch.times.tolist(), batch.prompts.tolist(), batch.outputs.tolist()) == ([0.5, 1.5], [100.0, 200.0], [7.0, 8.0])
    timeless = csv_batches(["prompt", "output"], "", "prompt", "output", dated=False)(["100,7"])
    assert timeless is not None
    assert timeless.times is None


@pytest.mark.parametrize(
    "lines",
    [
        ["1,2,3", "4,5"],  # too few cells
        ["1,2,3,4", "5,6"],  # as many commas in all, on other lines
        ["1,2,three"],
        ["1,2,3", ""],
        ["1,2,"],
        ["1,2,3\n4,5,6"],  # a line that is two
        ['1,"2",3'],
    ],
)
def test_irregular_lines_use_the_slow_parser(lines: list[str]) -> None:
    assert BATCHES(lines) is None


@pytest.mark.parametrize("zone", ["", "Z", "+00:00"])
def test_dates_of_utc_are_seconds(zone: str) -> None:
    batch = DATED([f"2026-01-01T00:00:00{zone},1,2", f"2026-01-01T00:00:01.5{zone},3,4"])
    assert batch is not None
    assert batch.times is not None
    assert batch.times[1] - batch.times[0] == 1.5
    assert batch.times[0] == 1_767_225_600


@pytest.mark.parametrize(
    "dates",
    [
        ["2026-01-01T00:00:00+09:00"],  # another zone
        ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01"],  # now with a zone, now without
        ["NaT"],
        ["yesterday"],
        ["1700000000000"],  # a number, not the year
        ["-5"],
        ["2026-01-01T00:00:00." + "0" * DATE_CHARACTERS],
    ],
)
def test_irregular_dates_use_the_slow_parser(dates: list[str]) -> None:
    assert DATED([f"{date},1,2" for date in dates]) is None


def test_json_lines_are_columns_too_with_prefix_hash_blocks() -> None:
    read = json_batches("at", "in", "out", "hash")
    batch = read(['{"at": 1, "in": 100, "out": 7, "hash": [1, 2], "more": null}', '{"at": 2, "in": 200, "out": 8, "hash": []}'])
    assert batch is not None
    assert batch.times is not None
    assert (batch.times.tolist(), batch.prompts.tolist(), batch.outputs.tolist()) == ([1.0, 2.0], [100.0, 200.0], [7.0, 8.0])
    assert list(batch.hashes) == [array("q", [1, 2]), array("q")]
    without = json_batches("", "in", "out", "")(['{"in": 1, "out": 2}'])
    assert without is not None
    assert (without.times, list(without.hashes)) == (None, [])


@pytest.mark.parametrize(
    "lines",
    [
        ['{"at": 1, "in": 100}'],
        ['{"at": "1", "in": 100, "out": 7, "hash": []}'],
        ['{"at": 1, "in": 100, "out": 7, "hash": [1]} {"at": 1, "in": 100, "out": 7, "hash": [1]}'],
        ['{"at": 1, "in": 100, "out": 7, "hash": [99999999999999999999]}'],
        ['{"at": 1, "in": 100, "out": 7, "hash": []}', ""],
        ["[1]"],
        ["{" * 5000],
    ],
)
def test_irregular_json_uses_the_slow_parser(lines: list[str]) -> None:
    assert json_batches("at", "in", "out", "hash")(lines) is None


@pytest.mark.parametrize("blocks", [None, 7, "12", ["a"], [1.5], [1 << 70], {"a": 1}])
def test_blocks_that_are_no_whole_numbers_are_refused_with_their_line(blocks: object) -> None:
    with pytest.raises(UsageError, match="line 12") as error:
        hashes_of("trace.jsonl", 12, "hash_ids", {"hash_ids": blocks})
    assert error.value.kind == "bad-trace"
    assert hashes_of("trace.jsonl", 12, "hash_ids", {"hash_ids": [3, -1]}) == array("q", [3, -1])
