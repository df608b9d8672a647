"""Autocast rules of CUDA, applied to tensors on the CPU.

The CPU's own lists are shorter: they leave normalisation, softmax, powers and the loss in low precision where CUDA casts to
fp32, which doubles the bytes. The lists are those of `ATen/autocast_mode.h` (AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

IN_FP32 = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor "
    "pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim "
    "cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss "
    "smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss "
    "multi_margin_loss binary_cross_entropy_with_logits dist cdist renorm logsumexp upsample_nearest1d "
    "_upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d "
    "upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d "
    "_upsample_bicubic2d_aa"
).split()
# These operators compute in fp32 inside the kernel: the result is fp32, but no fp32 copy of the argument is made.
TO_FP32 = "prod prod.dim_int cumprod cumsum linalg_vector_norm linalg_matrix_norm sum sum.dim_IntList".split()
# The CPU's autocast casts these operators to fp32; CUDA's does not.
UNCHANGED = (
    "cross_entropy_loss max_pool3d avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d reflection_pad1d reflection_pad2d "
    "replication_pad1d replication_pad2d replication_pad3d"
).split()
SOFTMAX = {"softmax.int": "_softmax", "log_softmax.int": "_log_softmax"}


def register(torch: Any, library: Any) -> None:
    """Register CUDA's autocast rules under the CPU's autocast key, for the lifetime of the library object."""
    for name in IN_FP32:
        _register(torch, library, name, _in_fp32)
    for name in TO_FP32:
        _register(torch, library, name, _to_fp32)
    for name in SOFTMAX:
        _register(torch, library, name, _softmax)
    for name in UNCHANGED:
        _register(torch, library, name, _unchanged)


def _register(torch: Any, library: Any, name: str, rule: Callable[[Any, Any], Callable[..., Any]]) -> None:
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    if packet is None or (overload or "default") not in packet.overloads():
        return  # This version of torch lacks the operator.
    kernel = rule(torch, getattr(packet, overload or "default"))
    try:
        library.impl(name, kernel, "AutocastCPU", allow_override=True)
    except TypeError:  # Older versions of torch lack the argument and allow overriding.
        library.impl(name, kernel, "AutocastCPU")


def _outside_autocast(torch: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return kernel(*args, **kwargs)

    return call


def _in_fp32(torch: Any, operator: Any) -> Callable[..., Any]:
    low = (torch.float16, torch.bfloat16)

    def up(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.dtype in low else value

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return operator(*map(up, args), **{name: up(value) for name, value in kwargs.items()})

    return _outside_autocast(torch, kernel)


def _to_fp32(torch: Any, operator: Any) -> Callable[..., Any]:
    low = (torch.float16, torch.bfloat16)
    position = [argument.name for argument in operator._schema.arguments if not argument.kwarg_only]
    at = position.index("dtype") if "dtype" in position else None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = kwargs.get("dtype") if at is None or len(args) <= at else args[at]
        if dtype is None and args[0].dtype in low:
            args = args if at is None else args[:at]
            kwargs = {**kwargs, "dtype": torch.float32}
        return operator(*args, **kwargs)

    return _outside_autocast(torch, kernel)


def _softmax(torch: Any, operator: Any) -> Callable[..., Any]:
    # CUDA's kernel reads low precision and writes fp32; the gradient has low precision.
    inner = getattr(torch.ops.aten, SOFTMAX[operator._schema.name.removeprefix("aten::") + ".int"])

    def kernel(tensor: Any, dim: int, dtype: Any = None) -> Any:
        if tensor.dtype in (torch.float16, torch.bfloat16) and dtype in (None, torch.float32):
            return inner(tensor, dim, True)
        return operator(tensor, dim, dtype)

    return _outside_autocast(torch, kernel)


def _unchanged(torch: Any, operator: Any) -> Callable[..., Any]:
    if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd"):
        return _outside_autocast(torch, operator)
    return lambda *args, **kwargs: operator.decompose(*args, **kwargs)  # The operator's parts are cast by their own rules.
