"""Operators of language models as PyTorch runs them eagerly, with the kernels that autograd runs for each in the backward pass.

The kernels follow from autograd's formulas (PyTorch's tools/autograd/derivatives.yaml), from autocast's lists (PyTorch
documentation, Automatic Mixed Precision) and from profiles of the `transformers` library's models.
"""

from __future__ import annotations

from whichgpu.estimate.memory.training.operators import SHARED_INPUTS
from whichgpu.estimate.memory.training.transformer import NF4_BYTES
from whichgpu.estimate.time.lower.eager.kernels import STRIDED, KernelWriter, MatrixSizes
from whichgpu.estimate.time.operators import Number, Phase, gemm

CUBLASLT = "cublaslt"  # role of GEMMs whose operands training quantises
PHASES: tuple[Phase, Phase] = ("forward", "backward")


def linear(write: KernelWriter, x: MatrixSizes, out: Number, bias: bool = False, role: str = "") -> MatrixSizes:
    """Append a linear layer (`role`: projection, e.g. `q`), bias in the GEMM; autocast casts weights, and gradients back."""
    x = write.cast(x, write.compute)
    adapted = bool(write.lora_rank) and (not write.targets or role in write.targets)
    gemm_with_gradients(write, x, out, frozen=write.frozen or bool(write.lora_rank), role=role)
    output = x.like(out)
    if write.mixed:
        cast_weight(write, x.columns * out)
        if bias:
            cast_weight(write, out)
    if bias and write.trains_weights:
        write.reduce_columns(output)
    return adapter(write, x, output) if adapted else output


def gemm_with_gradients(write: KernelWriter, x: MatrixSizes, out: Number, frozen: bool = False, role: str = "") -> None:
    """Append a GEMM and its gradient GEMMs: one for the input, and one for the weight if it is trained.

    Operands of projections (named by `role`) are quantised if the precision says so; results have 16 bits.
    """
    unit, width = write.numerics.unit, x.width
    if role and write.numerics.operand_unit:
        quantise(write, x, x.like(out), role)
        unit, width, result = write.numerics.operand_unit, write.numerics.widths.operand, x.width
        write.put(gemm(x.rows, out, x.columns, unit, width, role=CUBLASLT, result=result))
        write.put(gemm(x.rows, x.columns, out, unit, width, role=CUBLASLT, result=result), "backward")
        if not frozen:
            write.put(gemm(out, x.columns, x.rows, unit, width, role=CUBLASLT, result=result), "backward")
        return
    if frozen and write.quantised:
        for phase in PHASES:
            size = x.columns * out
            sizes = {"elements": size}
            write.move("copy", NF4_BYTES * size, width * size, width=width, sizes=sizes, phase=phase, role="unpack")
    write.put(gemm(x.rows, out, x.columns, unit, width))
    write.put(gemm(x.rows, x.columns, out, unit, width, role="dgrad"), "backward")
    if not frozen:
        write.put(gemm(out, x.columns, x.rows, unit, width, role="wgrad"), "backward")


def quantise(write: KernelWriter, x: MatrixSizes, output: MatrixSizes, role: str) -> None:
    """Append the quantisation of a GEMM's input and of its output's gradient, each in rows and in columns.

    The kernel of a norm writes the quantised copies of its result itself.
    """
    copies = 2.0 * write.numerics.widths.operand
    if role not in SHARED_INPUTS:
        normed = role in ("q", "gate", "mixer_in")
        write.elementwise(x, 0.0 if normed else x.width, copies, kind="copy")
    write.elementwise(output, output.width, copies, kind="copy", phase="backward")


def cast_weight(write: KernelWriter, elements: Number) -> None:
    """Append autocast's cast of a weight, and the cast of its gradient back to the parameter's width."""
    write.copy(elements, write.numerics.widths.parameter, write.compute)
    if write.trains_weights:
        write.copy(elements, write.compute, write.numerics.widths.parameter, "backward")


def adapter(write: KernelWriter, x: MatrixSizes, output: MatrixSizes) -> MatrixSizes:
    """Append a LoRA adapter next to a frozen layer (arXiv 2106.09685): base(x) + scale * B(A(x))."""
    rank = float(write.lora_rank)
    gemm_with_gradients(write, x, rank)
    gemm_with_gradients(write, x.like(rank), output.columns)
    if write.mixed:
        write.copy((x.columns + output.columns) * rank, 4, write.compute)
        write.copy((x.columns + output.columns) * rank, write.compute, 4, "backward")
    scale(write, output)
    write.elementwise(output, 2 * output.width, output.width)
    write.sum_gradients(x, 2)
    return output


def scale(write: KernelWriter, x: MatrixSizes) -> MatrixSizes:
    """Append a multiplication by a constant."""
    write.elementwise(x, x.width, x.width)
    write.backward(x, x.width, x.width)
    return x


def shift(write: KernelWriter, x: MatrixSizes) -> MatrixSizes:
    """Append an addition of a constant, whose gradient needs no kernel."""
    write.elementwise(x, x.width, x.width)
    return x


def add(write: KernelWriter, x: MatrixSizes, y: MatrixSizes) -> MatrixSizes:
    """Append a sum of two tensors; its gradient goes to both, with a cast if their widths differ."""
    width = max(x.width, y.width)
    write.elementwise(x, x.width + y.width, width, role="" if x.width == y.width else STRIDED)
    for part in (x, y):
        if part.width != width:
            write.copy(part.elements, width, part.width, "backward")
    return x.like(width=width)


def multiply(write: KernelWriter, x: MatrixSizes, y: MatrixSizes) -> MatrixSizes:
    """Append an elementwise product of two tensors, which takes two products in the backward pass."""
    width = max(x.width, y.width)
    role = "" if x.width == y.width else STRIDED
    write.elementwise(x, x.width + y.width, width, role=role)
    for part, other in ((x, y), (y, x)):
        write.backward(x, width + other.width, width, role=role)
        if part.width != width:
            write.copy(part.elements, width, part.width, "backward")
    return x.like(width=width)


def elementwise(write: KernelWriter, x: MatrixSizes, role: str = "") -> MatrixSizes:
    """Append an activation (silu, gelu, relu, tanh): one kernel each way; the backward kernel reads one more tensor."""
    write.elementwise(x, x.width, x.width, role=role)
    write.backward(x, 2 * x.width, x.width, role=f"{role}_backward" if role else "")
    return x


def activation(write: KernelWriter, name: str, x: MatrixSizes) -> MatrixSizes:
    """Append the activation that a model's shape names."""
    if name == "gelu_tanh":
        return gelu_tanh(write, x)
    if name == "gelu_bloom":
        return gelu_bloom(write, x)
    if name == "quick_gelu":  # x * sigmoid(1.702 x)
        write.sum_gradients(x, 2)
        return multiply(write, x, elementwise(write, scale(write, x)))
    return elementwise(write, x, name)


def gelu_tanh(write: KernelWriter, x: MatrixSizes) -> MatrixSizes:
    """Append 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) as separate operators; autocast runs `pow` in fp32."""
    half = scale(write, x)
    base = write.cast(x, 4) if write.mixed else x
    cubed = scale(write, power(write, base))
    gate = shift(write, elementwise(write, scale(write, add(write, x, cubed))))
    write.sum_gradients(x, 3)
    return multiply(write, half, gate)


def gelu_bloom(write: KernelWriter, x: MatrixSizes) -> MatrixSizes:
    """Append x/2 (1 + tanh(0.79788456 x (1 + 0.044715 x^2))) as separate operators of one autograd function."""
    for reads in (1, 1, 1, 2, 1, 2, 1, 1, 2):
        write.elementwise(x, reads * x.width, x.width)
    for reads in (1, 1, 2, 1, 2, 1, 1, 2, 1, 1, 2, 1, 2, 2, 1, 1, 2, 2):
        write.backward(x, reads * x.width, x.width)
    return x


def power(write: KernelWriter, x: MatrixSizes) -> MatrixSizes:
    """Append x^n, whose gradient is grad * (n * x^(n-1))."""
    write.elementwise(x, x.width, x.width)
    for reads in (1, 1, 2):
        write.backward(x, reads * x.width, x.width)
    return x


def dropout(write: KernelWriter, x: MatrixSizes, share: float) -> MatrixSizes:
    """Append fused dropout of a `share` of elements, which writes a mask of one byte each; nothing outside training."""
    if share > 0 and write.training:
        write.elementwise(x, x.width, x.width + 1, kind="dropout")
        write.backward(x, x.width + 1, x.width)
    return x


def rms_norm(write: KernelWriter, x: MatrixSizes, wide_weight: bool = False) -> MatrixSizes:
    """Append RMS norm as separate operators: an fp32 copy squared, averaged, scaled, cast back, times the weight.

    With `wide_weight` (Gemma) the weight is applied in fp32, as 1 + weight, and the cast comes last.
    """
    wide = write.cast(x, 4)
    power(write, wide)
    write.reduce(wide)
    write.tiny_kernels(2)  # adds epsilon and takes rsqrt
    write.elementwise(wide, 4, 4, role=STRIDED)  # multiplies each row by its rsqrt
    write.backward(wide, 4, 4, role=STRIDED)  # gradient of x
    write.backward(wide, 8, 4)  # gradient of the rsqrt of each row
    write.reduce(wide, "backward")
    write.tiny_kernels(3, "backward")  # gradient of rsqrt's input
    write.backward(wide, 0, 4, role=STRIDED)  # gradient of the mean, broadcast over the row
    write.sum_gradients(wide, 2)
    if wide_weight:
        write.tiny_kernels(2)
        return write.cast(column_weight(write, wide), x.width)
    return column_weight(write, write.cast(wide, x.width))


def column_weight(write: KernelWriter, x: MatrixSizes) -> MatrixSizes:
    """Append a multiplication by a weight per column, whose gradient is a product summed over the rows."""
    write.elementwise(x, x.width, x.width, role=STRIDED)
    write.backward(x, x.width, x.width, role=STRIDED)
    if write.trains_weights:
        write.backward(x, 2 * x.width, x.width)
        write.reduce_columns(x)
    return x


def layer_norm(write: KernelWriter, x: MatrixSizes) -> MatrixSizes:
    """Append layer norm in one kernel; autocast runs it in fp32."""
    if write.mixed:
        x = write.cast(x, 4)
    write.move("norm", x.bytes, x.bytes, width=x.width, sizes=x.sizes)
    write.move("norm_backward", 2 * x.bytes, x.bytes, width=x.width, sizes=x.sizes, phase="backward")
    return x


def rotary(write: KernelWriter, x: MatrixSizes, share: float = 1.0) -> MatrixSizes:
    """Append RoPE, x * cos + rotate(x) * sin, on a `share` of each head; rotate joins the negated second half and the first.

    cos and sin have the stream's width, one row per position, and no gradient. The rest of each head is concatenated afterwards.
    """
    whole, x = x, x.like(x.columns * share)
    width = max(x.width, write.stream)
    half = x.like(x.columns / 2)
    write.elementwise(x, x.width, width, role=STRIDED)  # product with cos
    write.elementwise(half, x.width, x.width, role=STRIDED)  # negated second half
    write.concat(x)
    write.elementwise(x, x.width, width, role=STRIDED)  # product with sin
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
    write.transpose(whole, "backward")  # heads are merged into rows again
    return whole.like(width=width)


def _split_gradient(write: KernelWriter, x: MatrixSizes) -> None:
    """Append the gradient of a split tensor: each part is padded with zeros, and the results are added."""
    for _ in range(2):
        write.backward(x, 0, x.width)
        write.transpose(x.like(x.columns / 2), "backward")
    write.sum_gradients(x, 2)
