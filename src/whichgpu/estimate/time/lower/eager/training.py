"""Training steps of transformers, and passes in PyTorch eager, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.memory.training.transformer import lora_projections
from whichgpu.estimate.time.lower.eager.embedding_and_head import audio_stem, cross_entropy, embedding, output_head
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter
from whichgpu.estimate.time.lower.eager.layers import LayerPass, eager_layer
from whichgpu.estimate.time.lower.eager.optimizer import optimizer_ops
from whichgpu.estimate.time.lower.fused.training import fused_loss, fused_training_layer
from whichgpu.estimate.time.lower.layer_kinds import encoder_layers_per_stage, layer_kinds
from whichgpu.estimate.time.lower.numerics import Numerics, numerics
from whichgpu.estimate.time.operators import CLASS_BY_KIND, Number, Op
from whichgpu.workload.layouts import tensor_share
from whichgpu.workload.parameters import attention_matrices, count_parameters, mlp_matrices
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Section:
    """Operators of all layers of a kind, or of an end of the model."""

    ops: list[Op]
    recomputed: tuple[int, ...] = ()  # places of those that checkpointing runs once more
    growth: float = 0.0  # how many times as often they ran besides in a model of twice the layers

    def __iter__(self) -> Iterator[Op]:
        yield from self.ops
        for place in self.recomputed:
            yield replace(self.ops[place], phase="backward")


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A step of one round, part by part; `adding` is what every further round adds."""

    sections: list[Section]
    accumulation_op: Op
    optimizer_ops: list[Op]


def training_step(workload: Workload, shape: Transformer, batch: Number) -> list[Op]:
    """A training step: forward, backward, optimizer."""
    step = training_parts(workload, shape, batch)
    ops = [op for section in step.sections for op in section]
    if workload.accumulation > 1:
        ops = [op.times(float(workload.accumulation)) for op in ops]
        ops.append(step.accumulation_op.times(float(workload.accumulation - 1)))
    return ops + step.optimizer_ops


def training_parts(workload: Workload, shape: Transformer, batch: Number) -> TrainingStep:
    """The same, not yet put together."""
    own = tensor_share(shape, workload.parallel)
    fusing = not engine_record(workload.engine).eager
    run = _Run(workload, own, numerics(workload.precision or "bf16", workload.year), training=True, fusing=fusing)
    sections = run.sections(batch, float(workload.seq_in or shape.max_context) / workload.parallel.cp)
    parameters, tensors = trained_parameters(workload, own)
    width = run.numerics.widths.parameter
    kept = parameters / (workload.parallel.dp if workload.parallel.zero >= 2 else 1)  # ZeRO 2 adds up what it has scattered
    sharded = workload.parallel.dp if workload.parallel.zero else 1
    return TrainingStep(
        sections,
        _accumulating(kept, tensors, width, run.numerics),
        optimizer_ops(workload, parameters / sharded, tensors, width),
    )


def eager_pass(workload: Workload, shape: Transformer, batch: Number, length: Number, context: Number | None = None) -> list[Op]:
    """A pass without gradients: over whole sequences, over prompts, or of one token each at a `context`."""
    own = tensor_share(shape, workload.parallel)
    run = _Run(workload, own, numerics(workload.precision or "bf16", workload.year), training=False)
    return run.whole(batch, length) if context is None else run.token(batch, context)


@dataclass(frozen=True, slots=True)
class _Run:
    """A model's parts written one after another, each kind of layer once."""

    workload: Workload
    shape: Transformer
    numerics: Numerics
    training: bool
    fusing: bool = False  # runs of elementwise operators are one kernel each

    def whole(self, batch: Number, length: Number) -> list[Op]:
        """All tokens of `batch` sequences."""
        return [op for section in self.sections(batch, length) for op in section]

    def sections(self, batch: Number, length: Number) -> list[Section]:
        """The same, part by part; prompts leave a cache and the logits of their last token."""
        shape, prefill = self.shape, self.workload.traits.step == "prefill"
        run = LayerPass(batch, length, self.workload.attention or "sdpa", shape.causal, cached=prefill)
        found: list[Section] = []
        if shape.encoder_layers:
            source = float(shape.encoder_context) if shape.encoder_context else length
            run = replace(run, source=source, sequence=1.0 if prefill else length)
            found += self._encoder(replace(run, sequence=source, source=None, causal=False, cached=False))
        found.append(Section(self._ends(partial(_embedded, shape=shape, tokens=run.tokens))))
        found += self._layers(run)
        rows = batch if prefill else run.tokens
        return [*found, Section(self._ends(lambda write: self._output(write, rows)))]

    def token(self, batch: Number, context: Number) -> list[Op]:
        """One more token of each sequence."""
        shape = self.shape
        run = LayerPass(batch, 1.0, self.workload.attention or "sdpa", False, context=context, cached=True, decoding=True)
        if shape.encoder_layers:
            run = replace(run, source=float(shape.encoder_context) if shape.encoder_context else context)
        ops = self._ends(partial(_embedded, shape=shape, tokens=batch))
        ops += [op for section in self._layers(run) for op in section]
        return ops + self._ends(lambda write: self._output(write, batch))

    def _encoder(self, run: LayerPass) -> list[Section]:
        shape = self.shape
        heard = shape.model_type == "whisper"
        stem = partial(audio_stem, shape=shape, batch=run.batch) if heard else partial(_embedded, shape=shape, tokens=run.tokens)
        count = encoder_layers_per_stage(shape, self.workload.parallel)
        return [Section(self._ends(stem)), self._counted(count, 0.0, partial(self._layer, run=run))]

    def _layers(self, run: LayerPass) -> list[Section]:
        parallel = self.workload.parallel
        twice = dict(layer_kinds(replace(self.shape, layers=2 * self.shape.layers), parallel)) if self.training else {}
        return [
            self._counted(
                count,
                twice.get(kind, count) / count - 1.0,
                partial(self._layer, run=replace(run, window=kind.window, mixture=kind.mixture)),
            )
            for kind, count in layer_kinds(self.shape, parallel)
        ]

    def _layer(self, write: KernelWriter, run: LayerPass) -> None:
        if self.fusing:
            fused_training_layer(write, self.shape, run)
        else:
            eager_layer(write, self.shape, run)

    def _counted(self, count: int, grows: float, write: Callable[[KernelWriter], None]) -> Section:
        """So many layers, their forward pass twice where they are checkpointed."""
        workload = self.workload
        writer = KernelWriter(
            self.numerics,
            self.training,
            lora_rank=workload.lora_rank or 0,
            targets=lora_projections(workload.lora_targets),
            quantised=workload.qlora,
            count=float(count),
        )
        write(writer)
        again: tuple[int, ...] = ()
        if self.training and workload.checkpointing != "none":
            again = tuple(place for place in self._recomputed(writer.ops) if self._again(writer.ops[place]))
        return Section(writer.ops, again, grows)

    def _recomputed(self, ops: list[Op]) -> list[int]:
        """A layer's forward pass up to the last tensor that backward needs: the last product's input, if nothing follows."""
        forward = [place for place, op in enumerate(ops) if op.phase == "forward"]
        if self.fusing or self.shape.dropout or self.shape.norms > 2:
            return forward
        last = max(place for place in forward if CLASS_BY_KIND[ops[place].kind] == "gemm")
        return [place for place in forward[:-1] if place != last]

    def _again(self, op: Op) -> bool:
        """Whether checkpointing runs an operator again: all of them, or with `selective` those that are no products."""
        return self.workload.checkpointing == "full" or CLASS_BY_KIND[op.kind] != "gemm"

    def _ends(self, write: Callable[[KernelWriter], None]) -> list[Op]:
        writer = KernelWriter(self.numerics, self.training, frozen=bool(self.workload.lora_rank))
        write(writer)
        return writer.ops

    def _output(self, write: KernelWriter, rows: Number) -> None:
        """Logits, and their loss when training; an encoder that is not trained ends before them."""
        shape = self.shape
        if not shape.head or (not self.training and not (shape.causal or shape.encoder_layers)):
            return
        if self.fusing and self.training:
            fused_loss(write, shape, rows)
            return
        logits = output_head(write, shape, rows)
        if self.training:
            cross_entropy(write, shape, logits)


def _embedded(write: KernelWriter, shape: Transformer, tokens: Number) -> None:
    embedding(write, shape, tokens)


def trained_parameters(workload: Workload, shape: Transformer) -> tuple[float, float]:
    """Parameters the optimizer goes over on one GPU, and in how many tensors."""
    layers = shape.layers + shape.encoder_layers
    matrices = (*attention_matrices(shape), *mlp_matrices(shape, shape.ffn))
    stages = workload.parallel.pp
    if rank := workload.lora_rank:
        wanted = lora_projections(workload.lora_targets)
        named = zip(("q", "k", "v", "o", *(("gate",) if shape.gated else ()), "up", "down"), matrices, strict=False)
        adapters = [sizes for role, sizes in named if not wanted or role in wanted]
        return layers * sum(rank * sum(sizes) for sizes in adapters) / stages, 2.0 * layers * len(adapters) / stages
    biases = len(matrices) if shape.mlp_bias else 0
    norms = shape.norms * (2 if shape.norm == "layer" else 1)
    return count_parameters(shape).total / stages, (layers * (len(matrices) + biases + norms) + 3.0) / stages


def _accumulating(parameters: float, tensors: float, width: float, own: Numerics) -> Op:
    """Gradients of a further micro-step added to those there are."""
    each = parameters / tensors
    read, write = 2 * each * width, each * width
    sizes: dict[str, Number] = {"elements": each, "resident": 0.0}
    return Op("pointwise", own.dtype(width), 0.0, read, write, sizes, tensors, "backward")
