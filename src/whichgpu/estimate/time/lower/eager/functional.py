"""Operators of language models as PyTorch runs them eagerly, with what autograd runs for each on the way back.

The kernels follow from autograd's formulas (PyTorch's tools/autograd/derivatives.yaml), from autocast's lists (PyTorch
documentation, Automatic Mixed Precision) and from profiles of the `transformers` library's models.
"""

from __future__ import annotations

from whichgpu.estimate.memory.training.transformer import NF4_BYTES
from whichgpu.estimate.time.lower.eager.kernels import STRIDED, KernelWriter, Tensor
from whichgpu.estimate.time.operators import Number, Phase, gemm

PHASES: tuple[Phase, Phase] = ("forward", "backward")


def linear(write: KernelWriter, x: Tensor, out: Number, bias: bool = False, role: str = "") -> Tensor:
    """x @ W, the bias in the product's own kernel; autocast casts weights once a step and their gradients back."""
    x = write.cast(x, write.compute)
    adapted = bool(write.lora_rank) and (not write.targets or role in write.targets)
    gemm_with_gradients(write, x, out, frozen=write.frozen or bool(write.lora_rank))
    made = x.like(out)
    if write.mixed:
        cast_weight(write, x.columns * out)
        if bias:
            cast_weight(write, out)
    if bias and not write.frozen and not write.lora_rank:
        write.reduce_columns(made)
    return adapter(write, x, made) if adapted else made


def gemm_with_gradients(write: KernelWriter, x: Tensor, out: Number, frozen: bool = False) -> None:
    """The product and those of its gradients: of the input, and of a weight that is trained."""
    unit, width = write.numerics.unit, x.width
    if frozen and write.quantised:
        for phase in PHASES:
            size = x.columns * out
            sizes = {"elements": size}
            write.move("copy", NF4_BYTES * size, width * size, width=width, sizes=sizes, phase=phase, role="unpack")
    write.put(gemm(x.rows, out, x.columns, unit, width))
    write.put(gemm(x.rows, x.columns, out, unit, width, role="dgrad"), "backward")
    if not frozen:
        write.put(gemm(out, x.columns, x.rows, unit, width, role="wgrad"), "backward")


def cast_weight(write: KernelWriter, elements: Number) -> None:
    """Autocast's copy of a weight, and its gradient back to the parameter's width."""
    write.copy(elements, write.numerics.widths.parameter, write.compute)
    if not write.frozen and not write.lora_rank:
        write.copy(elements, write.compute, write.numerics.widths.parameter, "backward")


def adapter(write: KernelWriter, x: Tensor, made: Tensor) -> Tensor:
    """A low-rank adapter beside a frozen layer (arXiv 2106.09685): base(x) + scale * B(A(x))."""
    rank = float(write.lora_rank)
    gemm_with_gradients(write, x, rank)
    gemm_with_gradients(write, x.like(rank), made.columns)
    if write.mixed:
        write.copy((x.columns + made.columns) * rank, 4, write.compute)
        write.copy((x.columns + made.columns) * rank, write.compute, 4, "backward")
    scale(write, made)
    write.elementwise(made, 2 * made.width, made.width)
    write.fan_out(x, 2)
    return made


def scale(write: KernelWriter, x: Tensor) -> Tensor:
    """Times a constant."""
    write.elementwise(x, x.width, x.width)
    write.backward(x, x.width, x.width)
    return x


def shift(write: KernelWriter, x: Tensor) -> Tensor:
    """Plus a constant: the gradient passes."""
    write.elementwise(x, x.width, x.width)
    return x


def add(write: KernelWriter, x: Tensor, y: Tensor) -> Tensor:
    """A sum; its gradient goes to both as it is, in the narrower one's width where they differ."""
    width = max(x.width, y.width)
    write.elementwise(x, x.width + y.width, width, role="" if x.width == y.width else STRIDED)
    for part in (x, y):
        if part.width != width:
            write.copy(part.elements, width, part.width, "backward")
    return x.like(width=width)


def multiply(write: KernelWriter, x: Tensor, y: Tensor) -> Tensor:
    """A product of two tensors; two products on the way back."""
    width = max(x.width, y.width)
    role = "" if x.width == y.width else STRIDED
    write.elementwise(x, x.width + y.width, width, role=role)
    for part, other in ((x, y), (y, x)):
        write.backward(x, width + other.width, width, role=role)
        if part.width != width:
            write.copy(part.elements, width, part.width, "backward")
    return x.like(width=width)


def pointwise(write: KernelWriter, x: Tensor, role: str = "") -> Tensor:
    """silu, gelu, relu, tanh: one kernel each way, the gradient's with one more tensor to read."""
    write.elementwise(x, x.width, x.width, role=role)
    write.backward(x, 2 * x.width, x.width, role=f"{role}_backward" if role else "")
    return x


def activation(write: KernelWriter, name: str, x: Tensor) -> Tensor:
    """An activation by its name in a shape."""
    if name == "gelu_tanh":
        return gelu_tanh(write, x)
    if name == "gelu_bloom":
        return gelu_bloom(write, x)
    if name == "quick_gelu":  # x * sigmoid(1.702 x)
        write.fan_out(x, 2)
        return multiply(write, x, pointwise(write, scale(write, x)))
    return pointwise(write, x, name)


def gelu_tanh(write: KernelWriter, x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) written out; `pow` turns fp32 under autocast."""
    half = scale(write, x)
    base = write.cast(x, 4) if write.mixed else x
    cubed = scale(write, power(write, base))
    bent = shift(write, pointwise(write, scale(write, add(write, x, cubed))))
    write.fan_out(x, 3)
    return multiply(write, half, bent)


def gelu_bloom(write: KernelWriter, x: Tensor) -> Tensor:
    """x/2 (1 + tanh(0.79788456 x (1 + 0.044715 x^2))), forward and backward written out in one autograd function."""
    for reads in (1, 1, 1, 2, 1, 2, 1, 1, 2):
        write.elementwise(x, reads * x.width, x.width)
    for reads in (1, 1, 2, 1, 2, 1, 1, 2, 1, 1, 2, 1, 2, 2, 1, 1, 2, 2):
        write.backward(x, reads * x.width, x.width)
    return x


def power(write: KernelWriter, x: Tensor) -> Tensor:
    """x^n: backward it is grad * (n * x^(n-1))."""
    write.elementwise(x, x.width, x.width)
    for reads in (1, 1, 2):
        write.backward(x, reads * x.width, x.width)
    return x


def dropout(write: KernelWriter, x: Tensor, share: float) -> Tensor:
    """A fused kernel that writes a mask of a byte an element; none where nothing is trained or dropped."""
    if share > 0 and write.training:
        write.elementwise(x, x.width, x.width + 1, kind="dropout")
        write.backward(x, x.width + 1, x.width)
    return x


def rms_norm(write: KernelWriter, x: Tensor, wide_weight: bool = False) -> Tensor:
    """Written out: an fp32 copy squared, averaged, scaled, cast back, times the weight.

    With `wide_weight` (Gemma) the weight is applied in fp32, as 1 + weight, and the cast comes last.
    """
    wide = write.cast(x, 4)
    power(write, wide)
    write.reduce(wide)
    write.tiny_kernels(2)  # + epsilon, rsqrt
    write.elementwise(wide, 4, 4, role=STRIDED)  # times a number a row
    write.backward(wide, 4, 4, role=STRIDED)  # its gradient to x
    write.backward(wide, 8, 4)  # and to that number
    write.reduce(wide, "backward")
    write.tiny_kernels(3, "backward")  # rsqrt's gradient
    write.backward(wide, 0, 4, role=STRIDED)  # the mean's gradient, spread over the row
    write.fan_out(wide, 2)
    if wide_weight:
        write.tiny_kernels(2)
        return write.cast(column_weight(write, wide), x.width)
    return column_weight(write, write.cast(wide, x.width))


def column_weight(write: KernelWriter, x: Tensor) -> Tensor:
    """Times a weight a column, whose gradient is a product summed over the rows."""
    write.elementwise(x, x.width, x.width, role=STRIDED)
    write.backward(x, x.width, x.width, role=STRIDED)
    if not write.frozen and not write.lora_rank:
        write.backward(x, 2 * x.width, x.width)
        write.reduce_columns(x)
    return x


def layer_norm(write: KernelWriter, x: Tensor) -> Tensor:
    """One kernel; autocast runs it in fp32."""
    if write.mixed:
        x = write.cast(x, 4)
    write.move("norm", x.bytes, x.bytes, width=x.width, sizes=x.sizes)
    write.move("norm_backward", 2 * x.bytes, x.bytes, width=x.width, sizes=x.sizes, phase="backward")
    return x


def rotary(write: KernelWriter, x: Tensor, share: float = 1.0) -> Tensor:
    """x * cos + rotate(x) * sin, where rotate joins the negated second half and the first; on a `share` of each head.

    cos and sin are of the stream's width, a row a position, and need no gradient. What is not turned is joined to it again.
    """
    whole, x = x, x.like(x.columns * share)
    width = max(x.width, write.stream)
    half = x.like(x.columns / 2)
    write.elementwise(x, x.width, width, role=STRIDED)  # times cos
    write.elementwise(half, x.width, x.width, role=STRIDED)  # minus the second half
    write.concat(x)
    write.elementwise(x, x.width, width, role=STRIDED)  # times sin
    write.elementwise(x, 2 * width, width, role=STRIDED)
    for _ in range(2):
        write.backward(x, width, width, role=STRIDED)
        if width != x.width:
            write.copy(x.elements, width, x.width, "backward")
    write.backward(half, x.width, x.width, role=STRIDED)
    _split_gradient(write, x)
    write.backward(x, 2 * x.width, x.width, role=STRIDED)
    if share < 1:
        write.concat(whole.like(width=width))
        _split_gradient(write, whole)
    write.transpose(whole, "backward")  # heads beside one another again
    return whole.like(width=width)


def _split_gradient(write: KernelWriter, x: Tensor) -> None:
    """The gradient of a tensor cut in two: each part lies in zeros, and both are added."""
    for _ in range(2):
        write.backward(x, 0, x.width)
        write.transpose(x.like(x.columns / 2), "backward")
    write.fan_out(x, 2)
