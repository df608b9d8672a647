"""Recording of every operator that torch dispatches, and of every storage from allocation to free."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from whichgpu.estimate.trace.kernels import is_gradient_accumulation, replacement_kernels
from whichgpu.estimate.trace.trace_log import TracedOperator, TraceLog

# Attributes of operators that affect their cost, by position in the operator's schema.
_ATTRIBUTES = {
    "aten.convolution": {3: "stride", 4: "padding", 5: "dilation", 6: "transposed", 8: "groups"},
    "aten.convolution_backward": {4: "stride", 5: "padding", 6: "dilation", 7: "transposed", 9: "groups", 10: "mask"},
    "aten.max_pool2d_with_indices": {1: "kernel", 2: "stride", 3: "padding"},
    "aten.avg_pool2d": {1: "kernel", 2: "stride", 3: "padding"},
    "aten._scaled_dot_product_flash_attention": {4: "causal"},
    "aten._scaled_dot_product_flash_attention_backward": {11: "causal"},
    "aten._scaled_dot_product_efficient_attention": {6: "causal"},
    "aten._scaled_dot_product_efficient_attention_backward": {11: "causal"},
}


class StorageTracker:
    """Logs when the memory behind tensors (torch's untyped storages) is allocated and freed, once per storage."""

    def __init__(self, ledger: TraceLog) -> None:
        self._ledger = ledger
        self._known: dict[int, tuple[int, Any]] = {}

    def see(self, tensor: Any, maker: str, label: str = "temporary") -> int | None:
        """Return the id of a tensor's storage, logging its allocation at first sight; None for an empty storage."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return self._known[key][0]
        size = storage.nbytes()
        if not size:
            return None
        id = self._ledger.birth(size, maker, label)

        def gone(_: Any) -> None:
            self._known.pop(key, None)
            self._ledger.death(id)

        self._known[key] = id, weakref.ref(storage, gone)
        return id

    def label(self, tensors: Iterable[Any], label: str) -> None:
        """Set the part of memory (weights, gradients, …) to which the storages of these tensors count."""
        ids = {self.see(tensor, label, label) for tensor in tensors}
        self._ledger.relabel({id for id in ids if id is not None}, label)


def recorder(torch: Any, ledger: TraceLog, storages: StorageTracker) -> Any:
    """Return a torch dispatch mode that logs every operator call and every tensor storage that it allocates."""
    base: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    aten = torch.ops.aten
    replacements = replacement_kernels(torch)

    class Recorder(base):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            run = replacements.get(func, func)
            if func is aten.add.Tensor and ledger.phase == "backward" and is_gradient_accumulation(torch, args, kwargs):
                run = aten.add_.Tensor
            before = len(ledger.events)
            out = run(*args, **(kwargs or {}))
            name = str(func)
            outputs = list(tensors_of(out, torch.Tensor))
            for tensor in outputs:
                storages.see(tensor, name)
            if outputs and func is not aten.detach.default:
                ledger.operators.append(_operator(torch, name, args, outputs, ledger, before))
            return out

    return Recorder()


def tensors_of(value: Any, kind: type) -> Iterator[Any]:
    """Yield every tensor (instance of `kind`) inside nested lists, tuples and mappings."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_of(item, kind)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item, kind)


def _operator(torch: Any, name: str, args: Any, outputs: list[Any], ledger: TraceLog, before: int) -> TracedOperator:
    labels = _ATTRIBUTES.get(name.rsplit(".", 1)[0], {})
    attributes = {label: args[at] for at, label in labels.items() if at < len(args)}
    return TracedOperator(
        name,
        tuple(tuple(tensor.shape) for tensor in tensors_of(args, torch.Tensor)),
        tuple(tuple(tensor.shape) for tensor in outputs),
        str(outputs[0].dtype).removeprefix("torch."),
        ledger.phase,
        attributes,
        ledger.step,
        before,
    )
