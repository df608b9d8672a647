"""A fake of the parts of torch that tracing uses: tensors with shapes and histories, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from types import SimpleNamespace
from typing import Any


class Dtype:
    """Its name, and whether it is of floating point."""

    def __init__(self, name: str, floating: bool = True) -> None:
        self.name, self.is_floating_point = name, floating

    def __repr__(self) -> str:
        return self.name


FP32, BF16, FP16, INT64, BOOL = Dtype("fp32"), Dtype("bf16"), Dtype("fp16"), Dtype("int64", False), Dtype("bool", False)


class Storage:
    """Bytes of a tensor; freed with the last reference."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._cdata = id(self)

    def nbytes(self) -> int:
        return self._size


class Tensor:
    """A shape, a type, a device, and how it came to be."""

    itemsize = 4
    requires_grad = False

    def __init__(
        self, *shape: int, dtype: Dtype = FP32, device: str = "cpu", label: str = "", storage: Storage | None = None
    ) -> None:
        self.shape, self.dtype, self.device, self.label = shape, dtype, SimpleNamespace(type=device), label
        self.grad: Tensor | None = None
        self._storage = storage or Storage(self.itemsize * prod(shape))

    def size(self) -> tuple[int, ...]:
        return self.shape

    def stride(self) -> str:
        return f"strides of {self.label or self.shape}"

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return prod(self.shape)

    def untyped_storage(self) -> Storage:
        return self._storage

    def to(self, what: Any = None, memory_format: str | None = None) -> Tensor:
        label = " ".join(filter(None, (self.label, str(memory_format or what))))
        kind = what if isinstance(what, Dtype) else self.dtype
        device = what if isinstance(what, str) else self.device.type
        return Tensor(*self.shape, dtype=kind, device=device, label=label)

    def float(self) -> Tensor:
        return self.to(FP32)

    def mean(self) -> str:
        return f"mean of {self.shape}"

    def new_empty(self, shape: Any, dtype: Dtype | None = None) -> Tensor:
        return Tensor(*shape, dtype=dtype or self.dtype)

    def __getitem__(self, place: Any) -> Tensor:
        width = place[-1].stop
        return Tensor(*self.shape[:-1], width, dtype=self.dtype, label=f"cut to {width}")


class Parameter(Tensor):
    def __init__(self, tensor: Tensor, requires_grad: bool = True) -> None:
        super().__init__(*tensor.shape, dtype=tensor.dtype, device=tensor.device.type, label=tensor.label)
        self.requires_grad = requires_grad


class Module:
    def __init__(self, parts: tuple[Module, ...] = (), parameters: Any = None, buffers: Any = None) -> None:
        self._parts, self._parameters, self._buffers = parts, parameters or {}, buffers or {}

    def modules(self) -> Iterator[Module]:
        yield self
        for part in self._parts:
            yield from part.modules()


def loss_of(output: Tensor, labels: Tensor) -> str:
    return f"cross entropy of {output.shape} with labels {labels.shape}"


def like(tensor: Tensor, dtype: Dtype | None = None, memory_format: str | None = None) -> Tensor:
    return Tensor(*tensor.shape, dtype=dtype or tensor.dtype, label="like")


def zeros(*shape: Any, dtype: Dtype = FP32, device: str = "cpu") -> Tensor:
    return Tensor(*(shape[0] if isinstance(shape[0], tuple) else shape), dtype=dtype, label="zeros")


TORCH = SimpleNamespace(
    Tensor=Tensor, float32=FP32, bfloat16=BF16, float16=FP16, int64=INT64, bool=BOOL, channels_last="channels last",
    contiguous_format="contiguous",
    nn=SimpleNamespace(Module=Module, Parameter=Parameter, functional=SimpleNamespace(cross_entropy=loss_of)),
    empty=lambda *shape: Tensor(*shape),
    zeros=zeros,
    zeros_like=like, empty_like=like, clone=lambda tensor: SimpleNamespace(detach=lambda: tensor),
    empty_strided=lambda size, stride, dtype, device: Tensor(*size, dtype=dtype, device=device, label=stride),
)  # fmt: skip
