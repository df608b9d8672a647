"""The ends of a model in PyTorch eager: embedding, output head and loss."""

from __future__ import annotations

from dataclasses import replace

from whichgpu.estimate.memory.training.embedding_and_head import OWN_WIDTH, SOFT_CAPPED
from whichgpu.estimate.time.lower.eager.attention import softmax
from whichgpu.estimate.time.lower.eager.functional import dropout, layer_norm, linear, pointwise, rms_norm, scale
from whichgpu.estimate.time.lower.eager.kernels import STRIDED, KernelWriter, Tensor
from whichgpu.estimate.time.operators import Number, Op
from whichgpu.workload.shapes import Patches, Transformer


def embedding(write: KernelWriter, shape: Transformer, tokens: Number) -> Tensor:
    """Tables looked up and added, normed and dropped out as the family does."""
    width = shape.embedding or shape.hidden
    x = Tensor(tokens, width, write.stream)
    if shape.patches:
        _patches(write, shape, shape.patches, tokens)
    else:
        embedding_lookup(write, x, shape.vocab)
    if shape.embedding:
        x = linear(write, x, shape.hidden)
    for table in (shape.positions, shape.token_types):
        if table:
            other = Tensor(tokens, shape.hidden, write.stream)
            embedding_lookup(write, other, table)
            write.elementwise(x, 2 * x.width, x.width, role=STRIDED if table == shape.positions else "")
    if shape.model_type.startswith("gemma"):
        x = scale(write, x)
    if shape.embedding_norm:
        x = layer_norm(write, x)
    return dropout(write, x, shape.dropout)


def _patches(write: KernelWriter, shape: Transformer, patches: Patches, tokens: Number) -> None:
    """Squares of pixels through a convolution as large as they are; a class token joined; positions added."""
    images = tokens / patches.tokens
    side = float(patches.image // patches.size)
    pixels = Tensor(images * side * side, shape.hidden, write.compute)
    convolution(write, pixels, images, side, side, float(patches.channels), float(patches.size**2), float(patches.size))
    if patches.extra:
        write.concat(Tensor(tokens, shape.hidden, write.compute))


def audio_stem(write: KernelWriter, shape: Transformer, batch: Number) -> None:
    """Whisper's two convolutions over 30 s of sound; the second takes every other place."""
    hidden, length = float(shape.hidden), float(shape.encoder_context)
    mels = (shape.other - length * hidden - 2 * hidden) / (3 * hidden) - hidden
    for cin, places, stride in ((mels, 2 * length, 1.0), (hidden, length, 2.0)):
        made = Tensor(batch * places, hidden, write.compute)
        convolution(write, made, batch, 1.0, places, cin, 3.0, stride)
        pointwise(write, made, "gelu")
    write.transpose(Tensor(batch * length, hidden, write.stream))


def convolution(
    write: KernelWriter, made: Tensor, batch: Number, height: float, width: float, cin: float, taps: float, stride: float
) -> None:
    """A convolution in PyTorch's own layout, then its bias; of its input no gradient is asked."""
    sizes: dict[str, Number] = {
        "batch": batch, "height": height, "width": width, "cin": cin, "cout": made.columns, "kernel": taps,
        "stride": stride, "groups": 1.0, "nhwc": 0.0,
    }  # fmt: skip
    entering = batch * height * width * stride ** (1 if height == 1 else 2) * cin * made.width
    weight = cin * taps * made.columns * made.width
    op = Op("conv", write.numerics.unit, 2.0 * made.elements * cin * taps, entering + weight, made.bytes, sizes, role="forward")
    write.put(op)
    write.elementwise(made, made.width, made.width, role=STRIDED)
    write.put(replace(op, kind="conv_wgrad", read=entering + made.bytes, write=weight, role="wgrad"), "backward")
    write.reduce_columns(made)


def embedding_lookup(write: KernelWriter, x: Tensor, rows: float) -> None:
    """Rows of a table; the gradient is dense: zeros for the whole table, then the rows added."""
    sizes = {**x.sizes, "table": float(rows)}
    write.move("embedding", x.bytes, x.bytes, width=x.width, sizes=sizes)
    if not write.frozen:
        table = rows * x.columns * x.width
        write.move("embedding_backward", x.bytes, x.bytes + table, width=x.width, sizes=sizes, phase="backward")


def output_head(write: KernelWriter, shape: Transformer, rows: Number) -> Tensor:
    """Final norm, what stands before the output, and the logits of so many tokens."""
    x = Tensor(rows, shape.hidden, write.stream)
    if shape.final_norm and (shape.causal or shape.norm == "rms"):
        x = rms_norm(write, x, shape.model_type.startswith("gemma")) if shape.norm == "rms" else layer_norm(write, x)
    if shape.lm_transform:
        x = layer_norm(write, pointwise(write, linear(write, x, shape.hidden, shape.mlp_bias), "gelu"))
    if shape.embedding:
        x = linear(write, x, shape.embedding)
    logits = linear(write, x, shape.vocab, shape.head_bias)
    if shape.model_type in SOFT_CAPPED:
        logits = scale(write, pointwise(write, scale(write, logits)))
    if shape.tied and shape.vocab and not write.frozen and not write.lora_rank:  # the table's two gradients are added
        table = Tensor(shape.vocab, shape.embedding or shape.hidden, write.numerics.widths.parameter)
        write.backward(table, 2 * table.width, table.width)
    return logits


def cross_entropy(write: KernelWriter, shape: Transformer, logits: Tensor) -> None:
    """Cross entropy over the vocabulary. Causal models widen the logits before the softmax; others, under autocast, after it."""
    if shape.model_type in OWN_WIDTH:
        told = write.cast(softmax(write, logits), 4.0 if write.mixed else logits.width)
    else:
        told = softmax(write, write.cast(logits, 4))
    write.tiny_kernels(3)
    write.backward(told, 0, told.width)  # zeros, in which the labels' gradients are put
    write.tiny_kernels(3, "backward")
