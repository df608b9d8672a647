"""What layouts need in memory, many at a time: exact where counting is quick, on lines through counted points where it is not.

A training step is played through the allocator, which takes tens of milliseconds a layout. What is there when the loss is
computed grows in lines with layers, and activations and temporaries with sequences too, so two small steps tell every other; at
the end of the backward pass there are weights, states and all gradients. The larger of the two is the need; what is chosen in the
end is counted exactly.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whichgpu.estimate.fit import required_memory
from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.memory.dispatch import check_training, estimate_memory
from whichgpu.estimate.memory.overhead import context_bytes, workspace_bytes
from whichgpu.estimate.memory.parts import PARTS
from whichgpu.estimate.memory.training.operators import WIDTHS
from whichgpu.estimate.memory.training.transformer import TransformerStep, allocated_parts
from whichgpu.workload.layouts import in_flight_micro_batches, stage_layers, tensor_share
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Parallel, Workload

FEW, MORE = 2, 4  # layers counted
SEQUENCES, TOKENS = 32, 1 << 18  # at least: so many that the loss is the peak
SLACK = 0.05  # of what is allocated, which the allocator holds beside it
COUNTED_PARTS = tuple(name for name in PARTS if name not in ("workspace", "context", "slack"))
PART_INDEX = {name: index for index, name in enumerate(COUNTED_PARTS)}
GROWING = np.isin(COUNTED_PARTS, ("activations", "temporary"))  # with sequences; the rest is there without any
SHARDED = ("optimizer", "gradients", "weights")  # by ZeRO 1, 2 and 3

Lines = tuple[Array, Array, Array, Array]


class LayoutMemory:
    """Bytes a GPU must have room for, by layout, checkpointing and micro-batch."""

    def __init__(self, workload: Workload, shape: Shape) -> None:
        self.workload, self.shape = workload, shape
        self._lines: dict[tuple[int, int, int, str], Lines] = {}
        self._held: dict[tuple[int, int, int, bool, str], float] = {}
        self._outside = workspace_bytes(None) + context_bytes(None)

    def of(self, parallel: Parallel, checkpointing: str, micro: Array, accumulation: Array) -> Array:
        """For each micro-batch."""
        shape = self.shape
        if isinstance(shape, Transformer) and self.workload.training:
            return self._lined(shape, parallel, checkpointing, micro, accumulation)
        told = []
        for size, rounds in zip(micro, accumulation, strict=True):
            asked = apply_layout(self.workload, parallel, int(size), int(rounds), checkpointing)
            told.append(required_memory(estimate_memory(asked, shape), asked).value)
        return np.array(told)

    def _lined(self, shape: Transformer, parallel: Parallel, checkpointing: str, micro: Array, accumulation: Array) -> Array:
        once = self._parted(self._line(shape, parallel, checkpointing), shape, parallel)
        again = self._accumulated(once)
        layers = float(len(stage_layers(shape.layers, parallel.pp, 0)))
        held = np.array([in_flight_micro_batches(parallel, int(rounds), 0) for rounds in accumulation], dtype=float)
        kept = self._kept(shape, parallel, checkpointing) * layers * micro * (held - 1.0)
        gathered = self._gathered(once, parallel)
        told = np.where(accumulation > 1, *(_allocated_bytes(line, parallel, layers, micro, gathered) for line in (again, once)))
        told = told + self._cast(once, parallel, checkpointing) * layers
        ends = self._ended(once, parallel, layers)
        told = np.maximum(told, np.where(accumulation > 1, ends + self._added(once, parallel), ends))
        whole: Array = (told + kept) * (1.0 + SLACK) + self._outside
        return whole

    def _ended(self, lines: Lines, parallel: Parallel, layers: float) -> float:
        """Bytes when all gradients are there."""
        base, by_layer, _, _ = lines
        parts = np.maximum(base + by_layer * layers, 0.0)
        parts[PART_INDEX["gradients"]] = parts[PART_INDEX["adapters" if self.workload.lora_rank else "weights"]]
        parts[PART_INDEX["temporary"]] = parts[PART_INDEX["activations"]] = 0.0
        return float(_zeroed(parts[:, None], parallel, self._gathered(lines, parallel)).sum())

    def _added(self, lines: Lines, parallel: Parallel) -> float:
        """Bytes of a layer's gradients before they are added to those of earlier rounds; ZeRO 2 and 3 have them whole anyway."""
        return float(lines[1][PART_INDEX["adapters" if self.workload.lora_rank else "weights"]]) if parallel.zero < 2 else 0.0

    def _gathered(self, lines: Lines, parallel: Parallel) -> float:
        """Bytes that ZeRO has whole for a while: gradients of a layer or the head, and under 3 its weights and the next one's."""
        ends, layer = (float(line[PART_INDEX["weights"]]) for line in lines[:2])
        tied = isinstance(self.shape, Transformer) and self.shape.tied
        most = max(layer, ends if tied else ends / 2)
        return {2: most, 3: 2.0 * most + layer}.get(parallel.zero, 0.0)

    def _cast(self, lines: Lines, parallel: Parallel, checkpointing: str) -> float:
        """Bytes of a checkpointed layer's 16-bit copies, which autocast holds till the loss is there; gathered weights: none."""
        widths = WIDTHS[self.workload.precision or "bf16"]
        if checkpointing == "none" or not widths.mixed or parallel.zero == 3:
            return 0.0
        return float(lines[1][PART_INDEX["weights"]]) * widths.compute / widths.parameter

    def _accumulated(self, lines: Lines) -> Lines:
        """With the gradients of earlier rounds there all the time."""
        base, by_layer = (line.copy() for line in lines[:2])
        for line in (base, by_layer):
            line[PART_INDEX["gradients"]] += line[PART_INDEX["adapters" if self.workload.lora_rank else "weights"]]
        return base, by_layer, *lines[2:]

    def _parted(self, lines: Lines, shape: Transformer, parallel: Parallel) -> Lines:
        """Of a pipeline one end has the embedding, the other the output head."""
        if parallel.pp == 1 or shape.tied:
            return lines
        base = lines[0].copy()
        for name in ("weights", "gradients", "optimizer"):
            base[PART_INDEX[name]] /= 2.0
        return base, *lines[1:]

    def _kept(self, shape: Transformer, parallel: Parallel, checkpointing: str) -> float:
        """Bytes a layer keeps of one sequence for its backward pass."""
        key = parallel.tp, parallel.ep, parallel.cp, parallel.sp, checkpointing
        if key not in self._held:
            self._held[key] = self._of_layer(shape, parallel, checkpointing)
        return self._held[key]

    def _of_layer(self, shape: Transformer, parallel: Parallel, checkpointing: str) -> float:
        sequence = -(-(self.workload.seq_in or shape.max_context) // parallel.cp)
        own, widths = tensor_share(shape, parallel), WIDTHS[self.workload.precision or "bf16"]
        asked = apply_layout(self.workload, parallel, 1, 1, checkpointing)
        block = TransformerStep(asked, shape, own, widths, sequence, sequence).layer(shape.experts is not None)
        return float(block.kept if checkpointing == "none" else block.entry.size)

    def _line(self, shape: Transformer, parallel: Parallel, checkpointing: str) -> Lines:
        """Parts as a + b layers + c sequences + d layers x sequences."""
        key = parallel.tp, parallel.ep, parallel.cp, checkpointing
        if key not in self._lines:
            plain = Parallel(tp=parallel.tp, ep=parallel.ep, cp=parallel.cp, sp=parallel.sp)
            size = max(SEQUENCES, TOKENS // (self.workload.seq_in or shape.max_context))
            few, more = (self._counted(replace(shape, layers=layers), plain, checkpointing, size) for layers in (FEW, MORE))
            slope = (more - few) / (MORE - FEW)
            start = few - FEW * slope
            fixed, growing = np.where(GROWING, 0.0, 1.0), np.where(GROWING, 1.0 / size, 0.0)
            self._lines[key] = start * fixed, slope * fixed, start * growing, slope * growing
        return self._lines[key]

    def _counted(self, shape: Transformer, parallel: Parallel, checkpointing: str, size: int) -> Array:
        asked = apply_layout(self.workload, parallel, size, 1, checkpointing)
        check_training(asked, shape)
        told = allocated_parts(asked, shape)
        return np.array([float(told.get(name, 0)) for name in COUNTED_PARTS])


def _allocated_bytes(lines: Lines, parallel: Parallel, layers: float, micro: Array, gathered: float) -> Array:
    """Bytes allocated with so many layers at each micro-batch, less what ZeRO puts elsewhere."""
    base, by_layer, by_micro, by_both = lines
    parts = np.maximum((base + by_layer * layers)[:, None] + (by_micro + by_both * layers)[:, None] * micro[None, :], 0.0)
    told: Array = _zeroed(parts, parallel, gathered).sum(axis=0)
    return told


def _zeroed(parts: Array, parallel: Parallel, gathered: float) -> Array:
    """What is left on one GPU under ZeRO, with what it gathers."""
    for stage, name in enumerate(SHARDED, start=1):
        if parallel.zero >= stage:
            parts[PART_INDEX[name]] /= parallel.dp
    parts[PART_INDEX["temporary"]] += gathered
    return parts


def apply_layout(workload: Workload, parallel: Parallel, micro: int, accumulation: int, checkpointing: str) -> Workload:
    """The request in a layout."""
    gpus = parallel.dp * parallel.tp * parallel.pp * parallel.cp
    batch = micro * parallel.dp * (accumulation if workload.training else 1)
    return replace(
        workload,
        gpus=gpus,
        parallel=parallel,
        micro_batch=micro,
        accumulation=accumulation,
        checkpointing=checkpointing,
        batch=batch,
    )
