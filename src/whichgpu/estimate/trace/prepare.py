"""A module and its inputs made ready for a trace: shapes without bytes, on the device and in the layout that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.estimate.trace.framework import load_torch

InputFactory = Callable[[], Any]  # makes the arguments of one call: a tensor, a tuple of them or a mapping by name


def images(batch: int, size: int, channels: int = 3) -> InputFactory:
    """Pictures as a vision model takes them."""

    def make() -> Any:
        torch = load_torch()
        return torch.empty(batch, channels, size, size)

    return make


def tokens(batch: int, length: int, *, labels: bool = False) -> InputFactory:
    """Token ids as a transformers model takes them; with labels (the same ids) it computes its own loss."""

    def make() -> Any:
        torch = load_torch()
        ids = torch.zeros(batch, length, dtype=torch.int64)
        return {"input_ids": ids, "labels": ids} if labels else {"input_ids": ids}

    return make


def move_to_cpu(torch: Any, module: Any, example: Any) -> Any:
    """Give the module and its inputs, made on meta, the cpu's device, which autocast knows; the inputs come back."""
    known: dict[int, tuple[Any, Any]] = {}  # the old tensor too: while it lives, nothing else has its id

    def moved(tensor: Any) -> Any:
        if id(tensor) not in known:
            there = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
            if isinstance(tensor, torch.nn.Parameter):
                there = torch.nn.Parameter(there, tensor.requires_grad)
            known[id(tensor)] = tensor, there
        return known[id(tensor)][1]

    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = moved(tensor)
    return _each(torch, example, moved)


def _each(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _each(torch, item, change) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_each(torch, item, change) for item in value)
    return value


def build_module(torch: Any, factory: Callable[[], Any], inputs: InputFactory | None) -> tuple[Any, Any]:
    """The module and its example inputs."""
    made = factory()
    module, example = made if isinstance(made, tuple) else (made, None)
    if inputs is not None:
        example = inputs()
    if example is None or not isinstance(module, torch.nn.Module):
        raise UsageError("bad-value", msg("error.factory_result"), msg("hint.factory_result"))
    return module, example


def to_meta(torch: Any, example: Any, dtype: Any, channels_last: bool) -> Any:
    """Inputs without bytes, in the precision and memory format of the run."""
    known: dict[int, Any] = {}  # the same tensor under two names stays one

    def change(tensor: Any) -> Any:
        if id(tensor) not in known:
            there = tensor if tensor.device.type == "meta" else tensor.to("meta")
            if dtype is not None and tensor.dtype.is_floating_point:
                there = there.to(dtype)
            if channels_last and tensor.dim() == 4:
                there = there.to(memory_format=torch.channels_last)
            known[id(tensor)] = there
        return known[id(tensor)]

    return _each(torch, example, change)
