"""Rules that make torch behave as on a GPU: kernel choice, and what stays in low precision; with a fake torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tests.played_torch import BF16, BOOL, FP16, FP32, INT64, TORCH, Dtype, Storage, Tensor
from whichgpu.estimate.trace import autocast, framework
from whichgpu.estimate.trace.kernels import is_gradient_accumulation, replacement_kernels
from whichgpu.estimate.trace.recorder import StorageTracker
from whichgpu.estimate.trace.trace_log import TraceLog

# kernels


def test_gradient_is_accumulated_in_place_if_unshared() -> None:
    owners, enabled = [2], [False]
    torch = SimpleNamespace(
        Tensor=Tensor, is_grad_enabled=lambda: enabled[0], _C=SimpleNamespace(_storage_Use_Count=lambda _: owners[0])
    )
    total, more = Tensor(4), Tensor(4)
    assert is_gradient_accumulation(torch, (total, more), None)
    assert not is_gradient_accumulation(torch, (total, more), {"alpha": 2})
    assert not is_gradient_accumulation(torch, (total, more, 1), None)
    assert not is_gradient_accumulation(torch, (total, 2.0), None)
    assert not is_gradient_accumulation(torch, (total, Tensor(5)), None)
    assert not is_gradient_accumulation(torch, (total, Tensor(4, dtype=BF16)), None)
    assert not is_gradient_accumulation(torch, (Tensor(4, storage=Storage(99)), more), None)  # a part of something larger
    owners[0] = 3
    assert not is_gradient_accumulation(torch, (total, more), None)
    owners[0], enabled[0] = 2, True
    assert not is_gradient_accumulation(torch, (total, more), None)


def operators() -> Any:
    """Overloads by name, each its own object."""
    names = "_local_scalar_dense equal nonzero masked_select _softmax _log_softmax convolution_backward".split()
    return SimpleNamespace(**{name: SimpleNamespace(default=name) for name in names})


def test_replacement_kernels_return_shapes_without_data() -> None:
    kernels = replacement_kernels(SimpleNamespace(**vars(TORCH), ops=SimpleNamespace(aten=operators())))
    number = kernels["_local_scalar_dense"]
    assert (number(Tensor(1)), number(Tensor(1, dtype=BOOL)), number(Tensor(1, dtype=INT64))) == (1.0, True, 1)
    assert number(Tensor(1, dtype=BOOL)) is True
    assert kernels["equal"](1, 2) is True
    assert (kernels["nonzero"](Tensor(2, 3)).shape, kernels["nonzero"](Tensor(2, 3)).dtype) == ((6, 2), INT64)
    assert kernels["masked_select"](Tensor(2, 3), None).shape == (6,)
    assert kernels["_softmax"](Tensor(2, dtype=BF16), 0, True).dtype is FP32
    assert kernels["_log_softmax"](Tensor(2, dtype=BF16), 0, False).dtype is BF16
    gradient, input, weight = Tensor(2, 16, 4, 4), Tensor(2, 8, 4, 4), Tensor(16, 8, 3, 3)
    backward = kernels["convolution_backward"]
    assert [one and one.shape for one in backward(gradient, input, weight, None, (True, True, True))] == [
        input.shape,
        weight.shape,
        (16,),
    ]
    assert backward(gradient, input, weight, (16,), (False, False, False)) == (None, None, None)


def test_storage_counts_once_and_is_freed_with_its_last_reference() -> None:
    ledger = TraceLog()
    storages = StorageTracker(ledger)
    storage: Storage | None = Storage(64)
    one: Tensor | None = Tensor(4, storage=storage)
    view: Tensor | None = Tensor(2, storage=storage)
    assert storages.see(one, "aten.empty") == storages.see(view, "aten.view") == 0
    assert storages.see(Tensor(0), "aten.empty") is None
    storages.label([one, Tensor(0)], "input")
    assert ledger.labels == {0: "input"}
    del storage, one, view
    assert ledger.events == [(0, 64), (0, -64)]


# attention and dropout as on a GPU


class Attention:
    """Which kernel was called, and with what."""

    def __init__(self, gradients: bool = False) -> None:
        self.called: list[str] = []
        self.masks: list[Any] = []
        self.scales: list[float] = []
        names = (
            "_scaled_dot_product_attention_math",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
        )
        aten = SimpleNamespace(**{name: self._kernel(name) for name in names})
        pad = SimpleNamespace(pad=lambda tensor, by: Tensor(*tensor.shape[:-1], tensor.shape[-1] + by[1], dtype=tensor.dtype))
        self.torch = SimpleNamespace(
            float16=FP16, bfloat16=BF16, bool=BOOL, ops=SimpleNamespace(aten=aten), nn=SimpleNamespace(functional=pad),
            is_grad_enabled=lambda: gradients, zeros_like=lambda mask, dtype: Zeros(*mask.shape),
        )  # fmt: skip

    def _kernel(self, name: str) -> Any:
        def kernel(q: Any, k: Any, v: Any, *rest: Any, **keywords: Any) -> tuple[Any]:
            self.called.append(name.removeprefix("_scaled_dot_product_").removesuffix("_attention"))
            self.masks.append(rest[:2])
            self.scales.append(keywords["scale"])
            return (q,)

        return kernel


class Mask(Tensor):
    def __invert__(self) -> Mask:
        return self

    def __getitem__(self, place: Any) -> Mask:
        return Mask(*self.shape[:-1], place[-1].stop)

    def expand(self, *shape: int) -> str:
        return f"expanded to {shape}"


class Zeros(Mask):
    def masked_fill_(self, where: Any, value: float) -> Mask:
        assert value == float("-inf")
        return Mask(*self.shape)


def qkv(width: int, dtype: Dtype, dims: int = 4) -> list[Tensor]:
    return [Tensor(*(2, 4, 16)[: dims - 1], width, dtype=dtype) for _ in range(3)]


@pytest.mark.parametrize(
    ("width", "dtype", "keywords", "kernel"),
    [
        (64, BF16, {}, "flash"),
        (64, FP32, {}, "efficient"),
        (512, BF16, {}, "attention_math"),
        (256, BF16, {}, "flash"),
        (264, BF16, {}, "attention_math"),
        (64, FP32, {"enable_gqa": True}, "attention_math"),
        (64, BF16, {"enable_gqa": True}, "flash"),
        (64, BF16, {"enable_gqa": True, "mask": Mask(16, 16)}, "attention_math"),
        (64, BF16, {"mask": Mask(16, 16)}, "efficient"),
        (64, BF16, {"mask": Mask(16, 16, dtype=BOOL)}, "efficient"),
    ],
)
def test_attention_takes_the_kernel_a_gpu_would(width: int, dtype: Dtype, keywords: dict[str, Any], kernel: str) -> None:
    played = Attention()
    out = framework._attention(played.torch)(*qkv(width, dtype), **keywords)
    assert played.called == [kernel]
    assert out.shape[-1] == width
    if "mask" in keywords and kernel == "efficient":
        assert played.masks[0][0] == "expanded to (2, 4, 16, 16)"


def test_odd_widths_are_padded_for_flash_attention_and_cut_again() -> None:
    played = Attention()
    assert framework._attention(played.torch)(*qkv(60, BF16)).label == "cut to 60"
    assert framework._attention(played.torch)(*qkv(4, BF16)).label == "cut to 4"
    assert framework._attention(Attention().torch)(*qkv(64, BF16, dims=3)).shape == (2, 4, 64)


@pytest.mark.parametrize(("width", "dtype"), [(64, BF16), (64, FP32), (512, BF16)])
def test_scores_are_scaled_by_the_root_of_the_width_by_default(width: int, dtype: Dtype) -> None:
    played = Attention()
    framework._attention(played.torch)(*qkv(width, dtype))
    framework._attention(played.torch)(*qkv(width, dtype), scale=0.5)
    assert played.scales == [width**-0.5, 0.5]


@pytest.mark.parametrize(("gradients", "saved"), [(False, False), (True, True)])
def test_row_sums_are_saved_for_backward_only_when_training(
    monkeypatch: pytest.MonkeyPatch, gradients: bool, saved: bool
) -> None:
    played = Attention(gradients)
    monkeypatch.setattr(Tensor, "requires_grad", True)
    framework._attention(played.torch)(*qkv(64, FP32))
    assert played.masks[0] == (None, saved)


def test_rules_hold_while_a_trace_runs_and_no_longer() -> None:
    put: list[Any] = []

    @contextmanager
    def scoped(*names: str) -> Iterator[Any]:
        put.append(names)
        yield SimpleNamespace(impl=lambda name, kernel, key: put.append((name, key)))
        put.append("gone")

    torch = SimpleNamespace(library=SimpleNamespace(_scoped_library=scoped), ops=SimpleNamespace(aten=SimpleNamespace()))
    with framework.gpu_kernels(torch):
        assert put[0] == ("aten", "IMPL")
        names = ("scaled_dot_product_attention", "dropout")
        assert put[1:] == [(name, key) for key in ("AutogradMeta", "AutogradCPU") for name in names]
    assert put[-1] == "gone"


def test_dropout_saves_a_mask_only_with_a_positive_probability() -> None:
    dropout = framework._dropout(SimpleNamespace(native_dropout=lambda tensor, p, train: ("dropped", "mask")))
    assert dropout("whole", 0.1, True) == "dropped"
    assert dropout("whole", 0.1, False) == dropout("whole", 0.0, True) == "whole"


# autocast


class Library:
    """Rules by the operator they were put under; an old one knows no overriding."""

    def __init__(self, old: bool = False) -> None:
        self.rules: dict[str, Any] = {}
        self._old = old

    def impl(self, name: str, kernel: Any, key: str, **keywords: Any) -> None:
        if self._old and keywords:
            raise TypeError("allow_override")
        assert key == "AutocastCPU"
        self.rules[name] = kernel


@contextmanager
def outside(_: Any) -> Iterator[None]:
    yield


def operator(name: str, overload: str) -> Any:
    """Says what it was called with; takes `dtype` where sums do."""
    arguments = [SimpleNamespace(name=one, kwarg_only=False) for one in ("self", "dim")]
    arguments.append(SimpleNamespace(name="dtype", kwarg_only=overload != "dim_at"))

    def called(*args: Any, **keywords: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        return name, args, keywords

    called._schema = SimpleNamespace(name=f"aten::{name}", arguments=arguments)  # type: ignore[attr-defined]
    called.name = lambda: name  # type: ignore[attr-defined]
    called.decompose = lambda *args, **kwargs: f"{name} in parts"  # type: ignore[attr-defined]
    return called


class Packet:
    def __init__(self, name: str, overloads: tuple[str, ...]) -> None:
        self._known = overloads
        for one in overloads:
            setattr(self, one, operator(name, one))

    def overloads(self) -> tuple[str, ...]:
        return self._known

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return ("inner", *args)


def registered(old: bool = False) -> dict[str, Any]:
    aten = SimpleNamespace(
        exp=Packet("exp", ("default",)), sum=Packet("sum", ("default", "dim_IntList")), prod=Packet("prod", ("default",)),
        softmax=Packet("softmax", ("int",)), _softmax=Packet("_softmax", ("default",)),
        cross_entropy_loss=Packet("cross_entropy_loss", ("default",)), max_pool3d=Packet("max_pool3d", ("default",)),
        pow=Packet("pow", ("Tensor_Scalar",)),
    )  # fmt: skip
    guard = SimpleNamespace(
        DispatchKeySet=lambda key: key, DispatchKey=SimpleNamespace(AutocastCPU="autocast"), _ExcludeDispatchKeyGuard=outside,
        _dispatch_has_kernel_for_dispatch_key=lambda name, key: name == "cross_entropy_loss",
    )  # fmt: skip
    library = Library(old)
    autocast.register(SimpleNamespace(**vars(TORCH), ops=SimpleNamespace(aten=aten), _C=guard), library)
    return library.rules


def test_rules_are_put_for_the_operators_this_torch_has_old_or_new() -> None:
    expected = {"exp", "sum", "sum.dim_IntList", "prod", "softmax.int", "cross_entropy_loss", "max_pool3d", "pow.Tensor_Scalar"}
    assert set(registered()) == set(registered(old=True)) == expected


def test_fp32_operators_under_autocast_get_fp32_copies() -> None:
    _, args, keywords = registered()["exp"](Tensor(2, dtype=BF16), 3, other=Tensor(2, dtype=FP16), same=Tensor(2))
    assert (args[0].dtype, args[1]) == (FP32, 3)
    assert (keywords["other"].dtype, keywords["same"].label) == (FP32, "")


def test_row_sums_are_in_fp32_by_default() -> None:
    total = registered()["sum"]
    low = Tensor(2, dtype=BF16)
    assert total(low, 0)[2] == {"dtype": FP32}
    assert total(low, 0, dtype=BF16)[2] == {"dtype": BF16}
    assert total(Tensor(2), 0)[2] == {}


def test_softmax_upcasts_in_one_kernel_unless_a_dtype_is_requested() -> None:
    softmax = registered()["softmax.int"]
    low = Tensor(2, dtype=BF16)
    assert softmax(low, 1) == softmax(low, 1, FP32) == ("inner", low, 1, True)
    assert softmax(low, 1, BF16)[0] == "softmax"
    assert softmax(Tensor(2), 1)[0] == "softmax"


def test_operators_are_decomposed_or_left_as_on_a_gpu() -> None:
    rules = registered()
    assert rules["cross_entropy_loss"](1) == "cross_entropy_loss in parts"
    assert rules["max_pool3d"](1) == ("max_pool3d", (1,), {})
