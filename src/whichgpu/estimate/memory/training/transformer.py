"""Memory of a transformer's training step on one GPU of a layout: its blocks in order, and the bytes by part at the peak."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from whichgpu.catalog.engines.record import TrainingTraits
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.memory.parts import PARTS
from whichgpu.estimate.memory.training.allocator_replay import BlockRun, TrainingRun, replay_training
from whichgpu.estimate.memory.training.compiled import compiled_block, compiled_head, head_beside_compiled_layers
from whichgpu.estimate.memory.training.embedding_and_head import (
    SOFT_CAPPED,
    chunked_head_block,
    chunked_loss_block,
    embedding_block,
    head_block,
)
from whichgpu.estimate.memory.training.layers import LayerRun, layer_block
from whichgpu.estimate.memory.training.operators import WIDTHS, ElementWidths, QuantisedWeights, with_main_weights
from whichgpu.estimate.memory.training.optimizer import state_sizes, step_temporary
from whichgpu.estimate.memory.training.tape import TapeBlock
from whichgpu.workload.layer_pattern import WHOLE_LAYER, LayerParts, layer_parts
from whichgpu.workload.layouts import in_flight_micro_batches, stage_layers, tensor_share
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Parallel, Workload

MAX_SMALL_WEIGHT = 1 << 17  # bytes: smaller weights are norms and biases, neither cast nor quantised
EAGER_ONLY = ("t5", "mt5", "umt5", "bloom", "deberta-v2", "deberta")  # families without fused attention
NF4_BYTES = TrainingTraits().nf4_bytes  # of a weight in NF4 with double quantisation (arXiv 2305.14314)

# A search over layouts uses the same blocks many times; cached blocks also keep their recorded log segments.
_layer, _embedding, _head = (lru_cache(maxsize=256)(block) for block in (layer_block, embedding_block, head_block))
_chunked_head, _loss = lru_cache(maxsize=64)(chunked_head_block), lru_cache(maxsize=64)(chunked_loss_block)
_compiled, _compiled_head = lru_cache(maxsize=256)(compiled_block), lru_cache(maxsize=256)(compiled_head)
_eager_head = lru_cache(maxsize=64)(head_beside_compiled_layers)


class TransformerStep(msgspec.Struct, frozen=True):
    """A training step, as all pipeline stages share it: the whole model, one rank's shard (`shape`), element widths, tokens."""

    workload: Workload
    whole: Transformer
    shape: Transformer
    widths: ElementWidths
    tokens: int
    sequence: int

    @property
    def any_depth(self) -> Transformer:
        """Return the shape with one layer, a cache key of blocks, which do not depend on the number of layers."""
        return replace(self.shape, layers=1, pattern="")

    def layer(self, parts: LayerParts = WHOLE_LAYER) -> TapeBlock:
        """Return the operators of a decoder layer with these parts, or of an encoder-only model's."""
        return self._as_run(_layer(self.any_depth, self._run(parts), self.widths))

    def encoder_layer(self) -> TapeBlock:
        """Return the operators of an encoder layer of an encoder-decoder model."""
        run = replace(self._run(WHOLE_LAYER), tokens=self.encoder_tokens, sequence=self.encoder_sequence, cross_tokens=0)
        return self._as_run(_layer(self.any_depth, run, self.widths))

    def head(self) -> tuple[TapeBlock, ...]:
        """Return the operators of the final norm, the output head and the loss, in one block or in two."""
        rank, traits = self.workload.lora_rank or 0, self.traits
        if rank and traits.head_chunk and traits.fp32_logits:
            chunks = -(-self.sequence // traits.head_chunk)
            quantised = self.quantised if traits.quantises_head else None
            whole = _chunked_head(self.any_depth, self.tokens, self.widths, rank, chunks, quantised)
            return whole, _loss(self.any_depth, self.tokens, chunks)
        block = _head(self.any_depth, self.tokens, self.widths, rank)
        if self.compiled and not traits.compiles_head:
            return (_eager_head(block),)
        return (_compiled_head(block, self.shape.vocab) if self.compiled else block,)

    @property
    def traits(self) -> TrainingTraits:
        """How the engine trains."""
        return _traits(self.workload)

    @property
    def quantised(self) -> QuantisedWeights | None:
        """How GEMMs with 4-bit weights run; None without QLoRA."""
        traits = self.traits
        return QuantisedWeights(traits.dequantised_copies, traits.keeps_quantised_inputs) if self.workload.qlora else None

    @property
    def compiled(self) -> bool:
        """Whether the engine compiles the step, fusing pointwise operators."""
        return self.workload.engine is not None and engine_record(self.workload.engine).fusion == "inductor"

    def _as_run(self, block: TapeBlock) -> TapeBlock:
        return _compiled(block) if self.compiled else block

    def layer_weights(self, parts: LayerParts = WHOLE_LAYER, cross: bool = True) -> tuple[int, ...]:
        """Return the bytes of each weight of a layer with these parts, with cross attention (`cross`) if it has any."""
        run = LayerRun(1, 1, "flash", parts=parts, cross_tokens=1 if cross and self.encoder_tokens else 0, cross_sequence=1)
        return _layer(self.any_depth, run, self.widths).weights

    def _run(self, parts: LayerParts) -> LayerRun:
        return LayerRun(
            self.tokens,
            self.sequence,
            self._attention,
            self.workload.lora_rank or 0,
            lora_projections(self.workload.lora_targets),
            parts,
            self.encoder_tokens,
            self.encoder_sequence,
            self.workload.lora_dropout or 0.0,
            self.quantised,
            self.traits.joint_projections,
            self.traits.expands_heads,
        )

    @property
    def _attention(self) -> str:
        if self.traits.writes_capped_scores and self.shape.model_type in SOFT_CAPPED:
            return "capped"
        return "eager" if self.shape.model_type in EAGER_ONLY else self.workload.attention or "flash"

    @property
    def encoder_sequence(self) -> int:
        """Tokens of one sequence in the encoder of an encoder-decoder model; 0 for other models."""
        return (self.shape.encoder_context or self.sequence) if self.shape.encoder_layers else 0

    @property
    def encoder_tokens(self) -> int:
        """Tokens of the micro-batch in the encoder."""
        return self.encoder_sequence * self.workload.local_batch


def _traits(workload: Workload) -> TrainingTraits:
    return engine_record(workload.engine, workload.year).training


def element_widths(workload: Workload) -> ElementWidths:
    """Return the element widths of a step in the request's precision, as its engine trains."""
    widths = WIDTHS[workload.precision or "bf16"]
    return with_main_weights(widths) if _traits(workload).main_weights else widths


def transformer_parts(workload: Workload, shape: Transformer) -> tuple[dict[str, int], float]:
    """Return the bytes by part on the fullest GPU, and the bytes reserved per byte allocated."""
    parts, reserved = _fullest(_memory_request(workload), shape)
    return dict(parts), reserved


def allocated_parts(workload: Workload, shape: Transformer) -> dict[str, int]:
    """Return the bytes by part on the fullest GPU, without reserved bytes, which halves the computing time."""
    return dict(_fullest(_memory_request(workload), shape, pools=False)[0])


def _memory_request(workload: Workload) -> Workload:
    """Return the request reduced to the fields its memory depends on, as a cache key; precisions of equal widths become one."""
    precision = workload.precision or "bf16"
    unfused = not workload.optimizer_fused  # Engine and year decide what an unfused optimizer step holds.
    compiled = workload.engine is not None and engine_record(workload.engine).fusion == "inductor"
    own = _traits(workload) != TrainingTraits()
    return Workload(
        "train",
        "",
        precision=next(name for name, widths in WIDTHS.items() if widths == WIDTHS[precision]),
        micro_batch=workload.local_batch,
        seq_in=workload.seq_in,
        optimizer=workload.optimizer,
        optimizer_fused=workload.optimizer_fused,
        engine=workload.engine if unfused or compiled or own else None,
        year=workload.year if unfused or own else None,
        include_optimizer_step=workload.include_optimizer_step,
        checkpointing=workload.checkpointing,
        lora_rank=workload.lora_rank,
        lora_targets=workload.lora_targets,
        lora_dropout=workload.lora_dropout,
        qlora=workload.qlora,
        attention=workload.attention,
        parallel=workload.parallel,
        accumulation=workload.accumulation,
    )


@lru_cache(maxsize=1024)
def _fullest(workload: Workload, shape: Transformer, pools: bool = True) -> tuple[dict[str, int], float]:
    parallel = workload.parallel
    sequence = -(-(workload.seq_in or shape.max_context) // parallel.cp)
    if not _traits(workload).ties_head:
        shape = replace(shape, tied=False)
    step = TransformerStep(
        workload,
        shape,
        tensor_share(shape, parallel),
        element_widths(workload),
        workload.local_batch * sequence,
        sequence,
    )
    stages = {0, parallel.pp - 1}
    return max(
        (_stage_parts(step, stage, pools) for stage in stages), key=lambda parts_and_ratio: sum(parts_and_ratio[0].values())
    )


def _stage_parts(step: TransformerStep, stage: int, pools: bool) -> tuple[dict[str, int], float]:
    """Return the bytes by part on a GPU of a pipeline stage, and the bytes reserved per byte allocated."""
    workload, shape, widths = step.workload, step.shape, step.widths
    parallel = workload.parallel
    first, last = stage == 0, stage == parallel.pp - 1
    rank = workload.lora_rank or 0
    stretches, layer_weights = _stretches(step, stage)
    head = list(_head(step.any_depth, 1, widths).weights) if last else []
    tied = shape.vocab * shape.hidden * widths.parameter if shape.tied and first and last else 0
    tables = [
        rows * shape.hidden * widths.parameter for rows in (shape.vocab, shape.positions, shape.token_types) if first and rows
    ]
    written = [*tables, *layer_weights, *(size for size in head if size != tied)]
    other = _other(step, sum(written)) if parallel == Parallel() else 0
    parameters = [*written, other] if other else written
    adapters = [size for stretch in stretches for size in stretch.block.weights] if rank else []
    trained = adapters if rank else parameters
    waiting = (in_flight_micro_batches(parallel, workload.accumulation, stage) - 1) * sum(
        stretch.block.entry.size if stretch.checkpointed else stretch.block.saved_bytes for stretch in stretches
    )
    states, gradients, weights = (parallel.dp if parallel.zero >= zero else 1 for zero in (1, 2, 3))
    replay = replay_training(
        TrainingRun(
            stretches,
            shard_sizes(_stored(step, parameters, head, tables), weights),
            shard_sizes(adapters, weights),
            shard_sizes(
                [size for one in trained for size in state_sizes(workload, one, widths.parameter, widths.master)], states
            ),
            [] if rank else [size for size in tables if size != tied] + ([other] if other else []),
            0 if rank else tied,
            shard_sizes(_accumulated(step, trained), gradients),
            sum(shard_sizes([step_temporary(workload, sum(trained), max(trained, default=0))], states)),
            {"activations": waiting},
            gradients,
            _previous_step(step, stretches),
        ),
        pools,
    )
    parts = {name: replay.breakdown.get(name, 0) for name in PARTS}
    return _with_sequence_parallelism(step, parts), replay.peak_reserved / replay.peak_allocated


def _accumulated(step: TransformerStep, trained: Sequence[int]) -> list[int]:
    """Return the bytes of gradients that are allocated throughout: main gradients, or those of earlier micro-batches."""
    width = step.widths.main_gradient or (step.widths.parameter if step.workload.accumulation > 1 else 0)
    return [size // step.widths.parameter * width for size in trained] if width else []


def shard_sizes(sizes: Sequence[int], over: int) -> list[int]:
    """Return the bytes of one GPU's shard of each tensor (ZeRO, arXiv 1910.02054).

    >>> shard_sizes([10, 3], 4)
    [3, 1]
    """
    return [-(-size // over) for size in sizes]


def _stretches(step: TransformerStep, stage: int) -> tuple[list[BlockRun], list[int]]:
    """Return the blocks of a pipeline stage in order, and the bytes of the weights of its layers."""
    shape, widths, parallel = step.shape, step.widths, step.workload.parallel
    checkpointed = step.workload.checkpointing != "none"
    share = widths.compute / widths.parameter if widths.mixed else 0

    def stretch(block: TapeBlock, weights: Sequence[int], again: bool, whole: Sequence[int] = ()) -> BlockRun:
        casts = tuple(int(size * share) for size in weights if size > MAX_SMALL_WEIGHT) if share else ()
        gathered = sum(_stored(step, weights, whole, whole)) if parallel.zero >= 3 and parallel.dp > 1 else 0
        return BlockRun(block, casts, again, gathered)

    stretches: list[BlockRun] = []
    weights: list[int] = []
    if stage == 0:
        table = shape.vocab * shape.hidden * widths.parameter
        embedding = stretch(_embedding(step.any_depth, step.tokens, widths), [table], False, [table])
        stretches.append(replace(embedding, casts=()))  # Autocast does not cast embeddings.
        if shape.encoder_layers:
            own = step.layer_weights(cross=False)
            stretches += [stretch(step.encoder_layer(), own, checkpointed)] * shape.encoder_layers
            weights += [*own] * shape.encoder_layers
    for index in stage_layers(shape.layers, parallel.pp, stage):
        parts = layer_parts(shape, index)
        block, own = step.layer(parts), step.layer_weights(parts)
        stretches.append(stretch(block, own, checkpointed))
        weights += own
    if stage == parallel.pp - 1:
        own = _head(step.any_depth, 1, widths).weights
        stretches += [stretch(block, own, False, own) for block in step.head()]
    return stretches, weights


def _other(step: TransformerStep, written: int) -> int:
    """Return the bytes of the model's parameters that are in no replayed block, such as a vision tower or relative positions."""
    return max(0, count_parameters(step.whole).total * step.widths.parameter - written)


def _stored(step: TransformerStep, parameters: Sequence[int], head: Sequence[int], tables: Sequence[int]) -> list[int]:
    """Return the bytes of weights as stored; QLoRA stores base weights in NF4 and embeddings, head and norms in 16 bit.

    Training with quantised operands keeps two quantised copies of a layer's matrices as well: one in rows, one in columns.
    """
    operand = step.widths.operand
    if operand:
        copies, others = 2.0 * operand / step.widths.parameter, {*head, *tables}
        return [size if size in others or size <= MAX_SMALL_WEIGHT else int(size * (1.0 + copies)) for size in parameters]
    if not step.workload.qlora:
        return list(parameters)
    width, whole = step.widths.parameter, [*tables, *(() if step.traits.quantises_head else head)]
    stored = []
    for size in parameters:  # Embedding and head may be of one size; each is taken off the list once.
        quantises = size not in whole and size > MAX_SMALL_WEIGHT
        if size in whole:
            whole.remove(size)
        stored.append(int(size / width * step.traits.nf4_bytes) if quantises else size * 2 // width)
    return stored


def _previous_step(step: TransformerStep, stretches: Sequence[BlockRun]) -> int:
    """Return the bytes of the step before that the loop's logits keep until the forward pass ends: themselves and their graph."""
    if not step.traits.keeps_last_logits or len(stretches) < 2:
        return 0
    return stretches[-1].block.entry.size + sum(stretch.block.dequantised_inputs for stretch in stretches)


def _with_sequence_parallelism(step: TransformerStep, parts: dict[str, int]) -> dict[str, int]:
    """Return the parts with the norms' activations sharded over tensor ranks (sequence parallelism, arXiv 2205.05198)."""
    parallel = step.workload.parallel
    if not parallel.sp or parallel.tp == 1:
        return parts
    plain = replace(step.shape, heads=1, kv_heads=1, head_dim=1, ffn=1)
    norms = layer_block(plain, LayerRun(step.tokens, step.sequence, "flash"), step.widths).saved_bytes * step.shape.layers
    return {**parts, "activations": parts["activations"] - int(min(norms, parts["activations"]) * (1 - 1 / parallel.tp))}


LORA_GROUPS = {"attention": "q k v o", "mlp": "gate up down", "all-linear": ""}


def lora_projections(text: str) -> frozenset[str]:
    """Return the projections with a LoRA adapter from a text such as `attention` or `q,v`; an empty set means all."""
    return frozenset(word for part in text.split(",") for word in LORA_GROUPS.get(part.strip(), part.strip()).split())
