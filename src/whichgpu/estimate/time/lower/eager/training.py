"""Training steps of transformers under any framework, and their forward passes in PyTorch eager, section by section."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import msgspec
from msgspec.structs import replace

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.memory.training.transformer import lora_projections
from whichgpu.estimate.time.lower.eager.embedding_and_head import audio_stem, cross_entropy, embedding, output_head
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter
from whichgpu.estimate.time.lower.eager.layers import LayerPass, eager_layer
from whichgpu.estimate.time.lower.eager.optimizer import accumulation_op, optimizer_ops, weight_quantisation
from whichgpu.estimate.time.lower.fused.training import fused_loss, fused_training_layer
from whichgpu.estimate.time.lower.layer_kinds import encoder_layers_per_stage, layer_kinds, slowest_stage
from whichgpu.estimate.time.lower.numerics import Numerics, numerics, training_numerics
from whichgpu.estimate.time.operators import CLASS_BY_KIND, Number, Op
from whichgpu.workload.layer_pattern import WHOLE_LAYER, LayerParts, full_attention_shape, layer_counts
from whichgpu.workload.layouts import tensor_share
from whichgpu.workload.parameters import attention_matrices, count_parameters, mlp_matrices, recurrent_matrices
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload


class StepSection(msgspec.Struct, frozen=True):
    """Operators of all layers of one kind, or of the embedding or head."""

    ops: list[Op]
    recomputed: tuple[int, ...] = ()  # indices of the operators that checkpointing recomputes
    growth: float = 0.0  # additional runs in a model of twice the layers, as a multiple of the present runs
    end: Literal["", "embedding", "head"] = ""  # the end of the model that the operators belong to, if they are no layers

    def __iter__(self) -> Iterator[Op]:
        yield from self.ops
        for place in self.recomputed:
            yield replace(self.ops[place], phase="backward")


class TrainingStep(msgspec.Struct, frozen=True):
    """Sections of one micro-batch, gradient accumulation (once per further micro-batch), and the optimizer."""

    sections: list[StepSection]
    accumulation_op: Op
    optimizer_ops: list[Op]


def training_step(workload: Workload, shape: Transformer, batch: Number) -> list[Op]:
    """Return the operators of a training step: forward, backward, optimizer."""
    step = training_parts(workload, shape, batch)
    ops = [op for section in step.sections for op in section]
    if workload.accumulation > 1:
        ops = [op.times(float(workload.accumulation)) for op in ops]
        if not accumulates_in_gemms(workload):
            ops.append(step.accumulation_op.times(float(workload.accumulation - 1)))
    return ops + step.optimizer_ops


def accumulates_in_gemms(workload: Workload) -> bool:
    """Whether GEMMs of weight gradients add to those of earlier micro-batches; not if ZeRO shards the gradients."""
    return engine_record(workload.engine, workload.year).megatron and workload.parallel.zero < 2


def training_parts(workload: Workload, shape: Transformer, batch: Number) -> TrainingStep:
    """Return a training step's operators by section (embedding, each kind of layer, head), accumulation and optimizer."""
    own = tensor_share(shape, workload.parallel)
    fusing = not engine_record(workload.engine).eager
    formats = training_numerics(workload.precision or "bf16", workload.year, workload.engine)
    run = _ModelPass(workload, own, formats, training=True, fusing=fusing)
    sections = run.sections(batch, float(workload.seq_in or shape.max_context) / workload.parallel.cp)
    parameters, tensors = trained_parameters(workload, own)
    width = run.numerics.widths.parameter
    ranks = workload.parallel.dp if workload.parallel.zero else 1
    gradients = parameters / (ranks if workload.parallel.zero >= 2 else 1)  # ZeRO 2 accumulates sharded gradients.
    accumulation = accumulation_op(gradients, tensors, width)
    widths = run.numerics.widths
    updates = optimizer_ops(workload, parameters / ranks, tensors, widths.master or width)
    if widths.operand and not workload.lora_rank:
        updates.append(weight_quantisation(parameters, tensors, width, widths.operand))
    return TrainingStep(sections, accumulation, updates)


def eager_pass(workload: Workload, shape: Transformer, batch: Number, length: Number, context: Number | None = None) -> list[Op]:
    """Return the operators of a pass without gradients: over whole sequences, or one token per sequence at a `context`."""
    own = tensor_share(shape, workload.parallel)
    run = _ModelPass(workload, own, numerics(workload.precision or "bf16", workload.year, workload.engine), training=False)
    sections = run.sections(batch, length) if context is None else run.decode_sections(batch, context)
    return [op for section in sections for op in section]


class _ModelPass(msgspec.Struct, frozen=True):
    """Lowers a model (embedding, layers, output head) to the kernels of a pass, each kind of layer once."""

    workload: Workload
    shape: Transformer
    numerics: Numerics
    training: bool
    fusing: bool = False  # a run of elementwise operators is one kernel

    def sections(self, batch: Number, length: Number) -> list[StepSection]:
        """Return embedding, layers and head of a pass over all tokens; a prefill fills the KV cache."""
        shape, prefill = self.shape, self.workload.traits.step == "prefill"
        run = LayerPass(batch, length, self.workload.attention or "sdpa", shape.causal, cached=prefill)
        if self.fusing:
            parallel, megatron = self.workload.parallel, engine_record(self.workload.engine, self.workload.year).megatron
            run = replace(run, sequence_ranks=float(parallel.tp if parallel.sp else 1), fused_projections=megatron)
        sections: list[StepSection] = []
        if shape.encoder_layers:
            source = float(shape.encoder_context) if shape.encoder_context else length
            run = replace(run, source=source, sequence=1.0 if prefill else length)
            sections += self._encoder(replace(run, sequence=source, source=None, causal=False, cached=False))
        stages = self.workload.parallel.pp if self.training and not shape.encoder_layers else 1
        stage = slowest_stage(shape, stages)
        if stage == 0:
            sections.append(StepSection(self._ops(partial(embedding, shape=shape, tokens=run.tokens)), end="embedding"))
        sections += self._layers(run, stage)
        rows = batch if prefill else run.tokens
        if stage == stages - 1:
            sections.append(StepSection(self._ops(partial(self._output, rows=rows)), end="head"))
        return sections

    def decode_sections(self, batch: Number, context: Number) -> list[StepSection]:
        """Return embedding, layers and head of one decode step with `context` tokens in each sequence's KV cache."""
        shape = self.shape
        run = LayerPass(batch, 1.0, self.workload.attention or "sdpa", False, context=context, cached=True, decoding=True)
        if shape.encoder_layers:
            run = replace(run, source=float(shape.encoder_context) if shape.encoder_context else context)
        first = StepSection(self._ops(partial(embedding, shape=shape, tokens=batch)))
        return [first, *self._layers(run), StepSection(self._ops(partial(self._output, rows=batch)))]

    def _encoder(self, run: LayerPass) -> list[StepSection]:
        shape = self.shape
        stem: Callable[[KernelWriter], object] = partial(embedding, shape=shape, tokens=run.tokens)
        if shape.model_type == "whisper":
            stem = partial(audio_stem, shape=shape, batch=run.batch)
        count = encoder_layers_per_stage(shape, self.workload.parallel)
        return [StepSection(self._ops(stem)), self._section(count, 0.0, partial(self._layer, run=run))]

    def _layers(self, run: LayerPass, stage: int = 0) -> list[StepSection]:
        parallel = self.workload.parallel
        twice = dict(layer_kinds(_twice_as_deep(self.shape), parallel, stage)) if self.training else {}
        return [
            self._section(
                count,
                twice.get(kind, count) / count - 1.0,
                partial(self._layer, run=replace(run, window=kind.window, mixture=kind.mixture, parts=kind.parts)),
            )
            for kind, count in layer_kinds(self.shape, parallel, stage)
        ]

    def _layer(self, write: KernelWriter, run: LayerPass) -> None:
        shape = self.shape if run.window else full_attention_shape(self.shape)
        if self.fusing:
            fused_training_layer(write, shape, run)
        else:
            eager_layer(write, shape, run)

    def _section(self, count: int, growth: float, write: Callable[[KernelWriter], None]) -> StepSection:
        """Return the operators of `count` equal layers; under checkpointing their forward pass runs twice."""
        workload = self.workload
        writer = KernelWriter(
            self.numerics,
            self.training,
            lora_rank=workload.lora_rank or 0,
            targets=lora_projections(workload.lora_targets),
            quantised=workload.qlora,
            accumulates=self.training and engine_record(workload.engine, workload.year).megatron,
            count=float(count),
        )
        write(writer)
        recomputed: tuple[int, ...] = ()
        if self.training and workload.checkpointing != "none":
            whole = workload.checkpointing == "full"  # Selective checkpointing does not repeat GEMMs.
            places = self._recomputed(writer.ops)
            recomputed = tuple(place for place in places if whole or CLASS_BY_KIND[writer.ops[place].kind] != "gemm")
        return StepSection(writer.ops, recomputed, growth)

    def _recomputed(self, ops: list[Op]) -> list[int]:
        """Return indices of the recomputed forward operators: all, or all but the last GEMM and operator if neither is needed."""
        forward = [place for place, op in enumerate(ops) if op.phase == "forward"]
        if self.fusing or self.shape.dropout or self.shape.norms > 2:
            return forward
        last = max(place for place in forward if CLASS_BY_KIND[ops[place].kind] == "gemm")
        return [place for place in forward[:-1] if place != last]

    def _ops(self, write: Callable[[KernelWriter], object]) -> list[Op]:
        writer = KernelWriter(self.numerics, self.training, frozen=bool(self.workload.lora_rank))
        write(writer)
        return writer.ops

    def _output(self, write: KernelWriter, rows: Number) -> None:
        """Append logits and, in training, their loss; an encoder in inference ends before them."""
        shape = self.shape
        if not shape.head or (not self.training and not (shape.causal or shape.encoder_layers)):
            return
        if self.fusing and self.training:
            fused_loss(write, shape, rows)
            return
        logits = output_head(write, shape, rows)
        if self.training:
            cross_entropy(write, shape, logits)


def _twice_as_deep(shape: Transformer) -> Transformer:
    return replace(shape, layers=2 * shape.layers, pattern=2 * shape.pattern)


def trained_parameters(workload: Workload, shape: Transformer) -> tuple[float, float]:
    """Return how many parameters one GPU's optimizer updates, and in how many tensors."""
    kinds = [*layer_counts(shape), *([(WHOLE_LAYER, shape.encoder_layers)] if shape.encoder_layers else [])]
    stages = workload.parallel.pp
    if rank := workload.lora_rank:
        targets = lora_projections(workload.lora_targets)
        adapters = [
            (count, sum(sizes))
            for parts, count in kinds
            for role, sizes in _projections(shape, parts)
            if not targets or role in targets
        ]
        return rank * sum(count * both for count, both in adapters) / stages, 2.0 * sum(count for count, _ in adapters) / stages
    norms = shape.norms * (2 if shape.norm == "layer" else 1)
    each = 2 if shape.mlp_bias else 1  # tensors of a matrix and its bias
    tensors = sum(count * (each * len(_projections(shape, parts)) + norms) for parts, count in kinds)
    return count_parameters(shape).total / stages, (tensors + 3.0) / stages


def _projections(shape: Transformer, parts: LayerParts) -> list[tuple[str, tuple[int, int]]]:
    """Return the matrices of a layer with these parts in order, each with its role and (input width, output width)."""
    attention = zip(("q", "k", "v", "o"), attention_matrices(shape), strict=False)
    mixer = (("mixer_out" if sizes[1] == shape.hidden else "mixer_in", sizes) for sizes in recurrent_matrices(shape))
    mlp = zip((*(("gate",) if shape.gated else ()), "up", "down"), mlp_matrices(shape, shape.ffn), strict=True)
    return [*(attention if parts.attention else ()), *(mixer if parts.recurrent else ()), *(mlp if parts.mlp else ())]
