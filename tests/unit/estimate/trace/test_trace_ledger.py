"""What a trace writes down, and the workspace of convolutions put into it: neither needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.trace.convolution_workspace import convolution_workspace
from whichgpu.base.errors import UsageError
from whichgpu.estimate.trace.factory import find_factory
from whichgpu.estimate.trace.trace_log import ModuleTrace, TracedOperator, TraceLog

IMAGE, WEIGHT, MADE = (2, 16, 8, 8), (32, 16, 3, 3), (2, 32, 4, 4)
SIZE = 2 * 16 * 64 + 32 * 16 * 9 + 2 * 32 * 16


def test_storages_are_recorded_with_lifetime_and_label() -> None:
    ledger = TraceLog()
    weights = ledger.birth(100, "empty", "weights")
    ledger.begin("forward", 1)
    saved, passing = ledger.birth(40, "mm"), ledger.birth(8, "relu")
    ledger.death(passing)
    ledger.death(passing)  # a second free is ignored
    ledger.begin("backward", 1)
    later = ledger.birth(40, "mm")
    assert ledger.events == [(0, 100), (1, 40), (2, 8), (2, -8), (3, 40)]
    assert ledger.labels == {weights: "weights", saved: "activations", passing: "temporary", later: "temporary"}
    assert ledger.makers == {0: "empty", 1: "mm", 2: "relu", 3: "mm"}
    assert ledger.marks == {"forward 1": 1, "backward 1": 4}
    ledger.begin("forward", 2)
    assert ledger.labels[later] == "temporary"  # only what is alive when backward begins was saved for it
    ledger.relabel({later}, "gradients")
    assert ledger.labels[later] == "gradients"


def traced(*operators: TracedOperator) -> ModuleTrace:
    events = ((0, 10), (1, 20), (2, 30), (0, -10))
    return ModuleTrace(events, {0: "weights", 1: "weights", 2: "weights"}, {0: "a", 1: "b", 2: "c"}, operators, 0, 0)


def conv(
    name: str = "convolution", inputs: Any = (IMAGE, WEIGHT), outputs: Any = (MADE,), dtype: str = "bfloat16", **rest: Any
) -> TracedOperator:
    return TracedOperator(f"aten.{name}.default", inputs, outputs, dtype, "forward", **rest)


def test_a_convolution_turns_its_operands_around() -> None:
    workspace = convolution_workspace(traced(conv(event=1)))
    assert workspace == ((0, 10), (1, 20), (3, 2 * SIZE), (3, -2 * SIZE), (2, 30), (0, -10))
    wide = convolution_workspace(traced(conv(event=1, dtype="float32")))
    assert (3, 4 * SIZE) in wide
    assert convolution_workspace(traced(conv(name="mm", event=1))) == traced().events


def test_gradients_of_input_and_weight_each_have_their_own() -> None:
    back = conv("convolution_backward", (MADE, IMAGE, WEIGHT), (IMAGE, WEIGHT, (32,)), event=1)
    workspace = convolution_workspace(traced(back))
    assert workspace == ((0, 10), (1, 20), (3, 2 * SIZE), (3, -2 * SIZE), (2, 30), (4, 2 * SIZE), (4, -2 * SIZE), (0, -10))
    first = conv("convolution_backward", (MADE, IMAGE, WEIGHT), (WEIGHT,), event=1)
    assert len(convolution_workspace(traced(first))) == 6


def test_depthwise_convolutions_have_kernels_of_their_own() -> None:
    narrow = (16, 1, 3, 3)
    for operator in (
        conv(inputs=(IMAGE, narrow), attributes={"groups": 16}),
        conv("convolution_backward", (MADE, IMAGE, narrow), attributes={"groups": 16}),
    ):
        assert convolution_workspace(traced(operator)) == traced().events
    grouped = conv(inputs=(IMAGE, (32, 8, 3, 3)), attributes={"groups": 2})
    assert len(convolution_workspace(traced(grouped))) == 6
    assert len(convolution_workspace(traced(conv(inputs=(IMAGE, narrow), attributes={"groups": 8})))) == 6


def test_a_trace_is_replayed_by_label() -> None:
    replay = traced().replay()
    assert replay.breakdown == {"weights": 3 * 512}
    assert replay.peak_reserved == 2 << 20


def test_factories_are_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_models.py").write_text("def make():\n    return 7\n\nnumber = 3\n")
    monkeypatch.chdir(tmp_path)
    assert find_factory("my_own_models:make")() == 7
    for name in (
        "my_own_models",
        ":make",
        "my_own_models:",
        "my_own_models:number",
        "my_own_models:nothing",
        "no_such_module:make",
    ):
        with pytest.raises(UsageError):
            find_factory(name)
