"""Shape functions of operators for which torch's own fail or differ from GPU kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def replacement_kernels(torch: Any) -> dict[Any, Callable[..., Any]]:
    """Return shape functions by torch operator, for those whose own shape function fails or differs from GPU kernels."""
    aten = torch.ops.aten

    def number(tensor: Any) -> float | int | bool:
        # Tensors have no data while traced; a constant instead of a tensor's value lets control flow continue.
        if tensor.dtype.is_floating_point:
            return 1.0
        return True if tensor.dtype is torch.bool else 1

    def equal(*_: Any) -> bool:
        return True

    def nonzero(tensor: Any) -> Any:
        return tensor.new_empty((tensor.numel(), tensor.dim()), dtype=torch.int64)  # assumes that no element is zero

    def masked_select(tensor: Any, _: Any) -> Any:
        return tensor.new_empty((tensor.numel(),))

    def softmax(tensor: Any, _: int, wide: bool) -> Any:
        # The CPU, unlike CUDA, cannot convert bfloat16 to fp32 inside the kernel.
        return torch.empty_like(tensor, dtype=torch.float32 if wide else None, memory_format=torch.contiguous_format)

    def convolution_backward(gradient: Any, input: Any, weight: Any, bias_sizes: Any, *rest: Any) -> tuple[Any, Any, Any]:
        # cuDNN writes gradients in the memory format of their tensors; torch's shape function makes them contiguous.
        mask = rest[-1]
        return (
            torch.empty_like(input) if mask[0] else None,
            torch.empty_like(weight) if mask[1] else None,
            gradient.new_empty(bias_sizes or (gradient.shape[1],)) if mask[2] else None,
        )

    return {
        aten._local_scalar_dense.default: number,
        aten.equal.default: equal,
        aten.nonzero.default: nonzero,
        aten.masked_select.default: masked_select,
        aten._softmax.default: softmax,
        aten._log_softmax.default: softmax,
        aten.convolution_backward.default: convolution_backward,
    }


def is_gradient_accumulation(torch: Any, args: Any, kwargs: Any) -> bool:
    """Whether this addition is autograd accumulating into a gradient that nothing else references.

    Autograd does this in place (`torch/csrc/autograd/input_buffer.cpp`), except under a dispatch mode.
    """
    if torch.is_grad_enabled() or kwargs or len(args) != 2 or not isinstance(args[1], torch.Tensor):
        return False
    total, more = args
    if total.shape != more.shape or total.dtype != more.dtype:
        return False
    storage = total.untyped_storage()
    owners: int = torch._C._storage_Use_Count(storage._cdata)
    return bool(storage.nbytes() == total.numel() * total.itemsize and owners <= 2)  # owners: the gradient and this function
