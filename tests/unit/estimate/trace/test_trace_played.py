"""What tracing decides about tensors, with tensors that are played: the real ones are in test_trace, where torch is installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.played_torch import BF16, INT64, TORCH, Module, Parameter, Tensor
from whichgpu.base.errors import UsageError
from whichgpu.estimate.trace import prepare
from whichgpu.estimate.trace.prepare import build_module, images, move_to_cpu, to_meta, tokens
from whichgpu.estimate.trace.run import _call, trace
from whichgpu.estimate.trace.step import TracedOptimizer, default_loss


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "load_torch", lambda: TORCH)


# inputs and modules


def test_inputs_are_created_on_demand() -> None:
    assert images(2, 32)().shape == (2, 3, 32, 32)
    assert set(tokens(2, 7)()) == {"input_ids"}
    labelled = tokens(2, 7, labels=True)()
    assert labelled["labels"] is labelled["input_ids"]
    assert (labelled["labels"].shape, labelled["labels"].dtype) == ((2, 7), INT64)


def test_factory_returns_its_inputs_or_gets_default_ones() -> None:
    module, own, tensor = Module(), Tensor(1), Tensor(2)
    assert build_module(TORCH, lambda: (module, own), None) == (module, own)
    assert build_module(TORCH, lambda: (module, own), lambda: tensor) == (module, tensor)
    assert build_module(TORCH, lambda: module, lambda: tensor) == (module, tensor)
    for result, inputs in ((module, None), ("no module", lambda: tensor), ((own, own), None)):
        with pytest.raises(UsageError) as error:
            build_module(TORCH, lambda result=result: result, inputs)  # type: ignore[misc]
        assert error.value.message.id == "error.factory_result"


def test_inputs_lose_their_bytes_and_take_the_runs_precision_and_layout() -> None:
    picture, ids, there = Tensor(2, 3, 8, 8), Tensor(2, 7, dtype=INT64), Tensor(2, 7, device="meta")
    inputs = to_meta(TORCH, {"pixels": picture, "ids": [ids, "word"], "again": picture, "there": there}, BF16, True)
    assert inputs["pixels"].label == "meta bf16 channels last"
    assert inputs["again"] is inputs["pixels"]  # one tensor under two names stays one
    assert inputs["ids"][0].label == "meta"  # whole numbers stay so
    assert inputs["ids"][1] == "word"
    assert inputs["there"].label == "bf16"
    assert to_meta(TORCH, there, None, True) is there
    assert to_meta(TORCH, (picture,), None, False)[0].label == "meta"


def test_moving_a_module_preserves_shared_tensors() -> None:
    tied = Parameter(Tensor(4, 4, device="meta"), requires_grad=False)
    module = Module((Module(parameters={"weight": tied}),), {"weight": tied, "bias": None}, {"mean": Tensor(4, device="meta")})
    example = move_to_cpu(TORCH, module, (Tensor(2, device="meta"), 3))
    moved = module._parameters["weight"]
    assert isinstance(moved, Parameter)
    assert (moved.device.type, moved.requires_grad) == ("cpu", False)
    assert moved is next(iter(module._parts))._parameters["weight"]
    assert module._parameters["bias"] is None
    assert type(module._buffers["mean"]) is Tensor
    assert (example[0].device.type, example[1]) == ("cpu", 3)


def test_module_is_called_with_positional_or_keyword_inputs() -> None:
    def module(*args: Any, **keywords: Any) -> Any:
        return args, keywords

    assert _call(module, {"x": 1}) == ((), {"x": 1})
    assert _call(module, (1, 2)) == ((1, 2), {})
    assert _call(module, [1]) == (([1],), {})


def test_a_precision_that_is_not_traced_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["whichgpu.estimate.trace.run"], "load_torch", lambda: TORCH)
    with pytest.raises(UsageError) as error:
        trace(lambda: None, precision="int4")
    assert "bf16" in error.value.choices


# a step


def trained(count: int) -> list[Any]:
    """Parameters, the last without a gradient."""
    tensors = [Tensor(8) for _ in range(count)]
    for one in tensors[:-1]:
        one.grad = Tensor(8, label="gradient")
    return tensors


@pytest.mark.parametrize(
    ("name", "fused", "states"),
    [("none", True, 0), ("sgd", True, 0), ("sgd-momentum", True, 2), ("adam", False, 4), ("adamw", True, 6)],
)
def test_optimizer_states_are_created_once_for_parameters_with_gradients(name: str, fused: bool, states: int) -> None:
    optimizer = TracedOptimizer(TORCH, name, fused)
    parameters = trained(3)
    optimizer.step(parameters)
    first = list(optimizer.states)
    optimizer.step(parameters)
    assert len(first) == states
    assert all(one is two for one, two in zip(first, optimizer.states, strict=True))


def test_the_loss_is_the_models_own_else_over_classes_else_a_mean() -> None:
    assert default_loss(TORCH, SimpleNamespace(loss="its own")) == "its own"
    assert default_loss(TORCH, Tensor(8, 10)) == "cross entropy of (8, 10) with labels (8,)"
    assert default_loss(TORCH, Tensor(8, 21, 4, 4)) == "cross entropy of (8, 21, 4, 4) with labels (8, 4, 4)"
    assert default_loss(TORCH, Tensor(8, 10, dtype=INT64)) == "mean of (8, 10)"
    assert default_loss(TORCH, Tensor(8, 5, 10)) == "mean of (8, 5, 10)"


def test_the_losses_of_several_outputs_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "mean", lambda self: self.shape[0])
    outputs = (Tensor(3, 1, 1), "no tensor", Tensor(4, 1, 1))
    assert default_loss(TORCH, outputs) == 7
    assert default_loss(TORCH, dict(zip("abc", outputs, strict=True))) == 7
