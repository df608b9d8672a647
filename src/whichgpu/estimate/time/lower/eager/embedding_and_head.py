"""Embedding, output head and loss in PyTorch eager."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.estimate.memory.training.embedding_and_head import OWN_WIDTH, SOFT_CAPPED
from whichgpu.estimate.time.lower.eager.attention import softmax
from whichgpu.estimate.time.lower.eager.functional import dropout, elementwise, layer_norm, linear, rms_norm, scale
from whichgpu.estimate.time.lower.eager.kernels import STRIDED, KernelWriter, MatrixSizes
from whichgpu.estimate.time.operators import Number, Op
from whichgpu.workload.shapes import Patches, Transformer


def embedding(write: KernelWriter, shape: Transformer, tokens: Number) -> MatrixSizes:
    """Append embedding lookups and their sum, with the model's norm and dropout; return the sizes of the result."""
    width = shape.embedding or shape.hidden
    x = MatrixSizes(tokens, width, write.stream)
    if shape.patches:
        _patches(write, shape, shape.patches, tokens)
    else:
        embedding_lookup(write, x, shape.vocab)
    if shape.embedding:
        x = linear(write, x, shape.hidden)
    for table in (shape.positions, shape.token_types):
        if table:
            other = MatrixSizes(tokens, shape.hidden, write.stream)
            embedding_lookup(write, other, table)
            write.elementwise(x, 2 * x.width, x.width, role=STRIDED if table == shape.positions else "")
    if shape.model_type.startswith("gemma"):
        x = scale(write, x)
    if shape.embedding_norm:
        x = layer_norm(write, x)
    return dropout(write, x, shape.dropout)


def _patches(write: KernelWriter, shape: Transformer, patches: Patches, tokens: Number) -> None:
    """Append the patch convolution and the class token's concatenation."""
    images = tokens / patches.tokens
    side = float(patches.image // patches.size)
    pixels = MatrixSizes(images * side * side, shape.hidden, write.compute)
    convolution(write, pixels, images, side, side, float(patches.channels), float(patches.size**2), float(patches.size))
    if patches.extra:
        write.concat(MatrixSizes(tokens, shape.hidden, write.compute))


def audio_stem(write: KernelWriter, shape: Transformer, batch: Number) -> None:
    """Append Whisper's two convolutions over 30 s of audio, the second with stride 2."""
    hidden, length = float(shape.hidden), float(shape.encoder_context)
    mels = (shape.other - length * hidden - 2 * hidden) / (3 * hidden) - hidden
    for cin, places, stride in ((mels, 2 * length, 1.0), (hidden, length, 2.0)):
        output = MatrixSizes(batch * places, hidden, write.compute)
        convolution(write, output, batch, 1.0, places, cin, 3.0, stride)
        elementwise(write, output, "gelu")
    write.transpose(MatrixSizes(batch * length, hidden, write.stream))


def convolution(
    write: KernelWriter, output: MatrixSizes, batch: Number, height: float, width: float, cin: float, taps: float, stride: float
) -> None:
    """Append an NCHW convolution and its bias; the input needs no gradient."""
    sizes: dict[str, Number] = {
        "batch": batch, "height": height, "width": width, "cin": cin, "cout": output.columns, "kernel": taps,
        "stride": stride, "groups": 1.0, "nhwc": 0.0,
    }  # fmt: skip
    image = batch * height * width * stride ** (1 if height == 1 else 2) * cin * output.width
    weight = cin * taps * output.columns * output.width
    op = Op("conv", write.numerics.unit, 2.0 * output.elements * cin * taps, image + weight, output.bytes, sizes, role="forward")
    write.put(op)
    write.elementwise(output, output.width, output.width, role=STRIDED)
    write.put(replace(op, kind="conv_wgrad", read=image + output.bytes, write=weight, role="wgrad"), "backward")
    write.reduce_columns(output)


def embedding_lookup(write: KernelWriter, x: MatrixSizes, rows: float) -> None:
    """Append a lookup of table rows; the gradient is dense: zeros for the whole table, to which the rows are added."""
    sizes = {**x.sizes, "table": float(rows)}
    write.move("embedding", x.bytes, x.bytes, width=x.width, sizes=sizes)
    if not write.frozen:
        table = rows * x.columns * x.width
        write.move("embedding_backward", x.bytes, x.bytes + table, width=x.width, sizes=sizes, phase="backward")


def output_head(write: KernelWriter, shape: Transformer, rows: Number) -> MatrixSizes:
    """Append final norm, any transform before the output, and the logits of `rows` tokens; return the sizes of the logits."""
    x = MatrixSizes(rows, shape.hidden, write.stream)
    if shape.final_norm and (shape.causal or shape.norm == "rms"):
        x = rms_norm(write, x, shape.model_type.startswith("gemma")) if shape.norm == "rms" else layer_norm(write, x)
    if shape.lm_transform:
        x = layer_norm(write, elementwise(write, linear(write, x, shape.hidden, shape.mlp_bias), "gelu"))
    if shape.embedding:
        x = linear(write, x, shape.embedding)
    logits = linear(write, x, shape.vocab, shape.head_bias)
    if shape.model_type in SOFT_CAPPED:
        logits = scale(write, elementwise(write, scale(write, logits)))
    if shape.tied and shape.vocab and write.trains_weights:  # The gradients of the tied table are added.
        table = MatrixSizes(shape.vocab, shape.embedding or shape.hidden, write.numerics.widths.parameter)
        write.backward(table, 2 * table.width, table.width)
    return logits


def cross_entropy(write: KernelWriter, shape: Transformer, logits: MatrixSizes) -> None:
    """Append the cross-entropy loss. Causal models cast logits to fp32 before the softmax; others, under autocast, after it."""
    if shape.model_type in OWN_WIDTH:
        losses = write.cast(softmax(write, logits), 4.0 if write.mixed else logits.width)
    else:
        losses = softmax(write, write.cast(logits, 4))
    write.tiny_kernels(3)
    write.backward(losses, 0, losses.width)  # The gradients of the log-probabilities start as zeros.
    write.tiny_kernels(3, "backward")
