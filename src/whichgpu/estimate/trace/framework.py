"""Torch set up to behave as on a GPU on a machine without one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.estimate.trace import autocast
from whichgpu.workload.models import trace_command


def load_torch() -> Any:
    """Import torch; raise UsageError if it is not installed."""
    if find_spec("torch") is None:
        raise UsageError("needs-torch", msg("error.needs_torch"), msg("hint.needs-torch", command=trace_command("")))
    return import_module("torch")


_LIBRARIES: list[Any] = []


def load_torchvision() -> Any:
    """Import torchvision, even if torch is CPU-only and cannot load torchvision's compiled operators."""
    torch = load_torch()
    try:
        return import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    # torchvision registers fake kernels for operators of its compiled library; declaring the operators' names is enough.
    library = torch.library.Library("torchvision", "FRAGMENT")
    _LIBRARIES.append(library)
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    return import_module("torchvision")


@contextmanager
def gpu_kernels(torch: Any) -> Iterator[None]:
    """Make attention, dropout and type promotion behave as on CUDA for meta tensors and fake CPU tensors."""
    with warnings.catch_warnings(), torch.library._scoped_library("aten", "IMPL") as library:
        warnings.simplefilter("ignore")
        for key in ("AutogradMeta", "AutogradCPU"):
            library.impl("scaled_dot_product_attention", _attention(torch), key)
            library.impl("dropout", _dropout(torch), key)
        autocast.register(torch, library)
        yield


def _dropout(torch: Any) -> Callable[..., Any]:
    def dropout(tensor: Any, p: float, train: bool) -> Any:
        return torch.native_dropout(tensor, p, train)[0] if train and p else tensor

    return dropout


def _attention(torch: Any) -> Callable[..., Any]:
    aten = torch.ops.aten

    def attention(
        q: Any,
        k: Any,
        v: Any,
        mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        half = q.dtype in (torch.float16, torch.bfloat16)
        width = q.shape[-1]
        scale = width**-0.5 if scale is None else scale
        if q.dim() != 4 or width > 256 or (enable_gqa and (mask is not None or not half)):
            return aten._scaled_dot_product_attention_math(
                q, k, v, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )[0]
        if half and mask is None:
            q, k, v = (_padded(torch, tensor, 8) for tensor in (q, k, v))
            out = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
            return out if out.shape[-1] == width else out[..., :width]
        if mask is not None:
            if mask.dtype == torch.bool:
                mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, float("-inf"))
            keys = k.shape[-2]
            mask = _padded(torch, mask, 16)[..., :keys].expand(q.shape[0], q.shape[1], q.shape[2], keys)
        lse = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))
        return aten._scaled_dot_product_efficient_attention(q, k, v, mask, lse, dropout_p, is_causal, scale=scale)[0]

    return attention


def _padded(torch: Any, tensor: Any, multiple: int) -> Any:
    short = -tensor.shape[-1] % multiple
    return torch.nn.functional.pad(tensor, (0, short)) if short else tensor
