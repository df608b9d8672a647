"""Bytes a GPU needs in each layout: counted exactly where that is quick, else a linear model through a few counted points.

Replaying a training step through the allocator takes tens of milliseconds per layout. Memory at the loss is linear in layers,
and its activations and temporaries also in sequences, so two small steps give all others. At the end of the backward pass memory
holds weights, optimizer state and all gradients. The larger of the two is needed; the chosen layout is finally counted exactly.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.fit import required_memory
from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.memory.dispatch import check_training, estimate_memory
from whichgpu.estimate.memory.overhead import context_bytes, kernel_bytes, workspace_bytes
from whichgpu.estimate.memory.parts import PARTS
from whichgpu.estimate.memory.training.operators import ElementWidths
from whichgpu.estimate.memory.training.transformer import TransformerStep, allocated_parts, element_widths
from whichgpu.workload.layer_pattern import LayerParts, layer_counts
from whichgpu.workload.layouts import in_flight_micro_batches, stage_layers, tensor_share
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Parallel, Workload

FEW_LAYERS, MORE_LAYERS = 2, 4  # layers of the two steps whose memory is counted exactly, unless layers differ
MIN_SEQUENCES, MIN_TOKENS = 32, 1 << 18  # smallest sequences and tokens of a counted step: enough that the peak is at the loss
ALLOCATOR_RESERVE = 0.05  # share of the allocated bytes that the allocator reserves on top of them (assumed)
COUNTED_PARTS = tuple(name for name in PARTS if name not in ("workspace", "context", "slack"))
PART_INDEX = {name: index for index, name in enumerate(COUNTED_PARTS)}
GROWS_WITH_SEQUENCES = np.isin(COUNTED_PARTS, ("activations", "temporary"))
SHARDED_BY_ZERO = ("optimizer", "gradients", "weights")  # parts of memory that ZeRO shards from stage 1, 2 and 3 on

Lines = tuple[Array, Array, Array, Array]  # bytes by part: constant, per layer, per sequence, per layer and sequence


class LayoutMemory:
    """Computes the bytes that one GPU needs, by layout, checkpointing and micro-batch."""

    def __init__(self, workload: Workload, shape: Shape) -> None:
        self.workload, self.shape = workload, shape
        self._lines: dict[tuple[int, int, int, str], Lines] = {}
        self._saved: dict[tuple[int, int, int, bool, str], float] = {}
        self._trained = "adapters" if workload.lora_rank else "weights"  # the part of memory whose parameters have gradients

    @property
    def _widths(self) -> ElementWidths:
        return element_widths(self.workload)

    def of(self, parallel: Parallel, checkpointing: str, micro: Array, accumulation: Array) -> Array:
        """Return the bytes required on one GPU for each micro-batch size (`micro`) with its number of accumulation rounds."""
        if isinstance(self.shape, Transformer) and self.workload.training:
            return self._on_lines(self.shape, parallel, checkpointing, micro, accumulation)
        needs = []
        for size, rounds in zip(micro, accumulation, strict=True):
            one = apply_layout(self.workload, parallel, int(size), int(rounds), checkpointing)
            needs.append(required_memory(estimate_memory(one, self.shape), one).value)
        return np.array(needs)

    def _on_lines(self, shape: Transformer, parallel: Parallel, checkpointing: str, micro: Array, accumulation: Array) -> Array:
        once = self._one_pipeline_end(self._line(shape, parallel, checkpointing), shape, parallel)
        layers = float(len(stage_layers(shape.layers, parallel.pp, 0)))
        in_pipeline = np.array([in_flight_micro_batches(parallel, int(rounds), 0) for rounds in accumulation], dtype=float)
        saved = self._saved_bytes(shape, parallel, checkpointing) * layers * micro * (in_pipeline - 1.0)
        gathered = self._gathered_bytes(once, parallel)
        several = accumulation > 1
        lines = self._with_accumulated_gradients(once), once
        at_loss = np.where(several, *(_allocated_bytes(one, parallel, layers, micro, gathered) for one in lines))
        at_loss = at_loss + self._autocast_bytes(once, parallel, checkpointing) * layers
        all_gradients = self._bytes_at_end(once, parallel, layers)
        at_end = np.where(several, all_gradients + self._unadded_gradient_bytes(once, parallel), all_gradients)
        memory = engine_record(self.workload.engine, self.workload.year).memory
        total: Array = (np.maximum(at_loss, at_end) + saved) * (1.0 + ALLOCATOR_RESERVE) + (
            workspace_bytes(None) + context_bytes(None, kernel_bytes(memory, None))
        )
        return total

    def _bytes_at_end(self, lines: Lines, parallel: Parallel, layers: float) -> float:
        """Return the bytes at the end of the backward pass, when all gradients are allocated."""
        base, by_layer, _, _ = lines
        parts = np.maximum(base + by_layer * layers, 0.0)
        if not self._widths.main_gradient:
            parts[PART_INDEX["gradients"]] = parts[PART_INDEX[self._trained]]
        parts[PART_INDEX["temporary"]] = parts[PART_INDEX["activations"]] = 0.0
        return float(_after_zero(parts[:, None], parallel, self._gathered_bytes(lines, parallel)).sum())

    def _unadded_gradient_bytes(self, lines: Lines, parallel: Parallel) -> float:
        """Return the bytes of a layer's new gradients before accumulation; 0 under ZeRO 2 and 3 (`_gathered_bytes` has them)."""
        return float(lines[1][PART_INDEX[self._trained]]) if parallel.zero < 2 else 0.0

    def _gathered_bytes(self, lines: Lines, parallel: Parallel) -> float:
        """Return the bytes ZeRO briefly holds unsharded: gradients of a layer or the head; in stage 3 two layers' weights too."""
        ends, layer = (float(line[PART_INDEX["weights"]]) for line in lines[:2])
        tied = isinstance(self.shape, Transformer) and self.shape.tied
        largest = max(layer, ends if tied else ends / 2)
        return {2: largest, 3: 2.0 * largest + layer}.get(parallel.zero, 0.0)

    def _autocast_bytes(self, lines: Lines, parallel: Parallel, checkpointing: str) -> float:
        """Return the bytes of a checkpointed layer's 16-bit weights, which autocast caches until the loss; 0 under ZeRO 3."""
        if checkpointing == "none" or not self._widths.mixed or parallel.zero == 3:
            return 0.0
        return float(lines[1][PART_INDEX["weights"]]) * self._widths.compute / self._widths.parameter

    def _with_accumulated_gradients(self, lines: Lines) -> Lines:
        """Return the linear memory model (`Lines`) with gradients of earlier accumulation rounds allocated throughout."""
        if self._widths.main_gradient:  # They are in the model already.
            return lines
        base, by_layer = (line.copy() for line in lines[:2])
        for line in (base, by_layer):
            line[PART_INDEX["gradients"]] += line[PART_INDEX[self._trained]]
        return base, by_layer, *lines[2:]

    def _one_pipeline_end(self, lines: Lines, shape: Transformer, parallel: Parallel) -> Lines:
        """Return the linear memory model of a first or last pipeline stage, which has either the embedding or the output head."""
        if parallel.pp == 1 or shape.tied:
            return lines
        base = lines[0].copy()
        for name in ("weights", "gradients", "optimizer"):
            base[PART_INDEX[name]] /= 2.0
        return base, *lines[1:]

    def _saved_bytes(self, shape: Transformer, parallel: Parallel, checkpointing: str) -> float:
        """Return the bytes that a layer, in the mean of a hybrid model's, saves for the backward pass of one sequence."""
        key = parallel.tp, parallel.ep, parallel.cp, parallel.sp, checkpointing
        if key not in self._saved:
            sequence = -(-(self.workload.seq_in or shape.max_context) // parallel.cp)
            one = apply_layout(self.workload, parallel, 1, 1, checkpointing)
            step = TransformerStep(one, shape, tensor_share(shape, parallel), self._widths, sequence, sequence)
            kinds = layer_counts(shape) if shape.pattern else ((LayerParts(experts=shape.experts is not None), shape.layers),)
            blocks = [(step.layer(parts), count / shape.layers) for parts, count in kinds]
            saved = ((block.saved_bytes if checkpointing == "none" else block.entry.size) * share for block, share in blocks)
            self._saved[key] = float(sum(saved))
        return self._saved[key]

    def _line(self, shape: Transformer, parallel: Parallel, checkpointing: str) -> Lines:
        key = parallel.tp, parallel.ep, parallel.cp, checkpointing
        if key not in self._lines:
            degrees = Parallel(tp=parallel.tp, ep=parallel.ep, cp=parallel.cp, sp=parallel.sp)
            size = max(MIN_SEQUENCES, MIN_TOKENS // (self.workload.seq_in or shape.max_context))
            depths = (shape.layers, 2 * shape.layers) if shape.pattern else (FEW_LAYERS, MORE_LAYERS)
            counts = (replace(shape, layers=layers, pattern=(2 * shape.pattern)[:layers]) for layers in depths)
            few, more = (self._counted_bytes(one, degrees, checkpointing, size) for one in counts)
            slope = (more - few) / (depths[1] - depths[0])
            start = few - depths[0] * slope
            fixed, growing = np.where(GROWS_WITH_SEQUENCES, 0.0, 1.0), np.where(GROWS_WITH_SEQUENCES, 1.0 / size, 0.0)
            self._lines[key] = start * fixed, slope * fixed, start * growing, slope * growing
        return self._lines[key]

    def _counted_bytes(self, shape: Transformer, parallel: Parallel, checkpointing: str, size: int) -> Array:
        one = apply_layout(self.workload, parallel, size, 1, checkpointing)
        check_training(one, shape)
        allocated = allocated_parts(one, shape)
        return np.array([float(allocated.get(name, 0)) for name in COUNTED_PARTS])


def _allocated_bytes(lines: Lines, parallel: Parallel, layers: float, micro: Array, gathered: float) -> Array:
    """Return the bytes of `layers` layers on one GPU per micro-batch size; ZeRO shards them but holds `gathered` bytes whole."""
    base, by_layer, by_micro, by_both = lines
    parts = np.maximum((base + by_layer * layers)[:, None] + (by_micro + by_both * layers)[:, None] * micro[None, :], 0.0)
    total: Array = _after_zero(parts, parallel, gathered).sum(axis=0)
    return total


def _after_zero(parts: Array, parallel: Parallel, gathered: float) -> Array:
    """Return the bytes by part of memory on one GPU after ZeRO shards `parts`, plus `gathered` bytes it briefly holds whole."""
    for stage, name in enumerate(SHARDED_BY_ZERO, start=1):
        if parallel.zero >= stage:
            parts[PART_INDEX[name]] /= parallel.dp
    parts[PART_INDEX["temporary"]] += gathered
    return parts


def apply_layout(workload: Workload, parallel: Parallel, micro: int, accumulation: int, checkpointing: str) -> Workload:
    """Return the workload in a layout, with the number of GPUs and the global batch that follow from the layout."""
    gpus = parallel.dp * parallel.tp * parallel.pp * parallel.cp
    batch = micro * parallel.dp * (accumulation if workload.training else 1)
    return replace(workload, gpus=gpus, parallel=parallel, micro_batch=micro, accumulation=accumulation,
                   checkpointing=checkpointing, batch=batch)  # fmt: skip
