"""Traces of small modules, against bytes worked out by hand. Needs torch, which the base install does not have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.trace.convolution_workspace import convolution_workspace
from whichgpu.base.errors import UsageError
from whichgpu.estimate.trace import ModuleTrace, images, trace, trace_factory

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn
F = nn.functional
pytestmark = pytest.mark.filterwarnings("ignore")

MIB = 2**20


def inputs(*shape: int) -> Callable[[], Any]:
    return lambda: torch.empty(*shape)


def names(trace: ModuleTrace, phase: str) -> list[str]:
    return [operator.name for operator in trace.operators if operator.phase == phase]


def linear() -> Any:
    return nn.Linear(1024, 1024, bias=False)  # 4 MiB in fp32


@pytest.mark.parametrize(
    ("optimizer", "fused", "copies"),
    [("none", True, 0), ("sgd", True, 0), ("sgd-momentum", True, 1), ("adamw", True, 2), ("adam", False, 2)],
)
def test_states_of_each_optimizer_are_copies_of_the_weights(optimizer: str, fused: bool, copies: int) -> None:
    traced = trace(linear, inputs(8, 1024), optimizer=optimizer, fused=fused)
    breakdown = traced.replay().breakdown
    assert breakdown["weights"] == 4 * MIB
    assert breakdown["gradients"] == 4 * MIB
    assert breakdown.get("optimizer", 0) == copies * 4 * MIB + (512 if optimizer == "adamw" else 0)


def test_a_foreach_step_needs_one_more_copy_and_a_fused_one_none() -> None:
    fused, foreach = (trace(linear, inputs(8, 1024), optimizer="adamw", fused=fused).replay() for fused in (True, False))
    assert foreach.peak_allocated - fused.peak_allocated > 3.9 * MIB


def test_bf16_trace_has_half_the_fp32_peak() -> None:
    full, half = (trace(linear, inputs(512, 1024), precision=precision).replay() for precision in ("fp32", "bf16"))
    assert half.peak_allocated == pytest.approx(full.peak_allocated / 2, rel=0.01)


def test_forward_alone_keeps_no_activations() -> None:
    deep = lambda: nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(20)))  # noqa: E731
    forward = trace(deep, inputs(4096, 512), training=False).replay().breakdown
    assert forward["temporary"] <= 3 * 8 * MIB
    assert trace(deep, inputs(4096, 512)).replay().breakdown["activations"] >= 20 * 8 * MIB


def test_dropout_keeps_a_mask_of_a_byte_an_element() -> None:
    traced = trace(lambda: nn.Sequential(nn.Linear(1024, 1024), nn.Dropout(0.1)), inputs(1024, 1024), optimizer="sgd")
    sizes = {
        traced.makers[id]: size for id, size in traced.events if size > 0 and traced.makers[id].startswith("aten.native_dropout")
    }
    assert "aten.native_dropout.default" in sizes
    assert (1024 * 1024) in [size for id, size in traced.events if traced.makers[id] == "aten.native_dropout.default"]


class Attention(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, masked: bool = False) -> None:
        super().__init__()
        self.project = nn.Linear(256, 768)
        self.masked = masked

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (4, 64)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device) if self.masked else None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    ("precision", "masked", "kernel"),
    [
        ("bf16", False, "aten._scaled_dot_product_flash_attention.default"),
        ("amp-bf16", False, "aten._scaled_dot_product_flash_attention.default"),
        ("fp32", False, "aten._scaled_dot_product_efficient_attention.default"),
        ("bf16", True, "aten._scaled_dot_product_efficient_attention.default"),
    ],
)
def test_attention_is_one_operator_that_never_makes_the_square(precision: str, masked: bool, kernel: str) -> None:
    traced = trace(lambda: Attention(masked), inputs(8, 2048, 256), precision=precision)
    assert kernel in names(traced, "forward")
    assert max(size for _, size in traced.events) < 8 * 4 * 2048 * 2048


def test_autocast_follows_the_lists_of_cuda() -> None:
    def model() -> Any:
        return nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.Linear(256, 256), nn.Softmax(-1))

    traced = trace(model, inputs(64, 256), precision="amp-bf16", loss=lambda output: output.sum())
    kinds = {operator.name: operator.dtype for operator in traced.operators if operator.phase == "forward"}
    assert kinds["aten.addmm.default"] == "bfloat16"
    assert kinds["aten.native_layer_norm.default"] == "float32"
    assert kinds["aten._softmax.default"] == "float32"


def test_data_dependent_values_get_a_placeholder_number() -> None:
    class Peeks(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.inner(x) * x.abs().max().item() if bool((x > 0).any()) else x

    for precision in ("fp32", "amp-bf16"):
        assert trace(Peeks, inputs(4, 8), precision=precision).replay().peak_allocated > 0


def test_sums_of_gradients_are_made_in_place() -> None:
    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            return x + self.second(x)

    traced = trace(Residual, inputs(4, 64))
    added = [operator for operator in traced.operators if operator.phase == "backward" and operator.name == "aten.add.Tensor"]
    born = {id for id, size in traced.events if size > 0 and traced.makers[id] == "aten.add.Tensor"}
    backward = {id for id, _ in traced.events[traced.marks["backward 1"] : traced.marks["optimizer 1"]]}
    forward = {id for id, _ in traced.events[: traced.marks["backward 1"]]}
    assert added
    assert not (born & (backward - forward))


def test_storages_are_affine_in_the_batch_with_the_same_ids() -> None:
    def at(batch: int) -> ModuleTrace:
        return trace(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True)), images(batch, 16))

    one, two, three = at(1), at(2), at(3)
    assert [id for id, _ in one.events] == [id for id, _ in two.events] == [id for id, _ in three.events]
    assert all(a - 2 * b + c == 0 for (_, a), (_, b), (_, c) in zip(one.events, two.events, three.events, strict=True))


def test_convolution_records_stride_and_groups_and_has_a_workspace_unless_depthwise() -> None:
    def model() -> Any:
        return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 8, 3, groups=8))

    traced = trace(model, images(2, 32))
    dense, depthwise = (operator for operator in traced.operators if operator.name == "aten.convolution.default")
    assert dense.attributes["stride"] == [2, 2]
    assert depthwise.attributes["groups"] == 8
    masks = [o.attributes["mask"] for o in traced.operators if o.name == "aten.convolution_backward.default"]
    assert masks == [[True, True, True], [False, True, True]]  # the images need no gradient
    # One forward, two backward (the first layer's input needs no gradient, so one of its own): dense only.
    added = (len(convolution_workspace(traced)) - len(traced.events)) // 2
    assert 2 <= added <= 3


def test_the_caller_s_torch_is_as_it_was_afterwards() -> None:
    trace(Attention, inputs(2, 8, 256), precision="amp-bf16")
    x = torch.rand(2, 4, 8, 16, requires_grad=True)
    F.dropout(F.scaled_dot_product_attention(x, x, x), 0.1).sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert F.layer_norm(torch.rand(4, 8, dtype=torch.bfloat16), (8,)).dtype is torch.bfloat16
    assert isinstance(x.grad, torch.Tensor)


def test_a_factory_in_the_working_directory_is_found_and_the_path_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_model_of_a_user.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(8, 4), torch.empty(2, 8)\n"
        "def bad():\n    raise KeyError('no')\nwrong = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert trace_factory("own_model_of_a_user:make").parameters == 36
    assert sys.path == before
    for name, kind in (
        ("own_model_of_a_user:bad", "trace-failed"),
        ("own_model_of_a_user:gone", "bad-value"),
        ("nowhere_at_all:x", "bad-value"),
    ):
        with pytest.raises(UsageError) as error:
            trace_factory(name)
        assert error.value.kind == kind
    for name in ("own_model_of_a_user", "own_model_of_a_user:wrong"):
        with pytest.raises(UsageError):
            trace_factory(name)
    monkeypatch.delitem(sys.modules, "own_model_of_a_user")


def test_an_unknown_precision_or_optimizer_is_refused() -> None:
    with pytest.raises(UsageError):
        trace(linear, inputs(8, 1024), precision="int4")
    with pytest.raises(UsageError):
        trace(linear, inputs(8, 1024), optimizer="lion")
