"""Preparation of a module and its inputs for a trace: tensors with shapes but no data, on the required device and format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.estimate.trace.framework import load_torch

InputFactory = Callable[[], Any]  # returns the arguments of one call: a tensor, a tuple or a mapping by name


def images(batch: int, size: int, channels: int = 3) -> InputFactory:
    """Return a function that makes image inputs [batch, channels, size, size] for a vision model."""

    def make() -> Any:
        torch = load_torch()
        return torch.empty(batch, channels, size, size)

    return make


def tokens(batch: int, length: int, *, labels: bool = False) -> InputFactory:
    """Return a function that makes token-id inputs for a `transformers` model; with `labels` (the same ids) it has a loss."""

    def make() -> Any:
        torch = load_torch()
        ids = torch.zeros(batch, length, dtype=torch.int64)
        return {"input_ids": ids, "labels": ids} if labels else {"input_ids": ids}

    return make


def move_to_cpu(torch: Any, module: Any, example: Any) -> Any:
    """Move a module in place and its inputs from meta to fake CPU tensors, which autocast supports; return the inputs."""
    moved_by_id: dict[int, tuple[Any, Any]] = {}  # The old tensor is stored so that its id() stays unique.

    def moved(tensor: Any) -> Any:
        if id(tensor) not in moved_by_id:
            there = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
            if isinstance(tensor, torch.nn.Parameter):
                there = torch.nn.Parameter(there, tensor.requires_grad)
            moved_by_id[id(tensor)] = tensor, there
        return moved_by_id[id(tensor)][1]

    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = moved(tensor)
    return _each(torch, example, moved)


def _each(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to every tensor in a nested structure and return the result."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _each(torch, item, change) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_each(torch, item, change) for item in value)
    return value


def build_module(torch: Any, factory: Callable[[], Any], inputs: InputFactory | None) -> tuple[Any, Any]:
    """Call the factory; return the module and its example inputs."""
    result = factory()
    module, example = result if isinstance(result, tuple) else (result, None)
    if inputs is not None:
        example = inputs()
    if example is None or not isinstance(module, torch.nn.Module):
        raise UsageError("bad-value", msg("error.factory_result"), msg("hint.factory_result"))
    return module, example


def to_meta(torch: Any, example: Any, dtype: Any, channels_last: bool) -> Any:
    """Return the inputs as meta tensors in the precision and memory format of the run."""
    moved_by_id: dict[int, Any] = {}  # A tensor that is used twice stays one tensor.

    def change(tensor: Any) -> Any:
        if id(tensor) not in moved_by_id:
            there = tensor if tensor.device.type == "meta" else tensor.to("meta")
            if dtype is not None and tensor.dtype.is_floating_point:
                there = there.to(dtype)
            if channels_last and tensor.dim() == 4:
                there = there.to(memory_format=torch.channels_last)
            moved_by_id[id(tensor)] = there
        return moved_by_id[id(tensor)]

    return _each(torch, example, change)
