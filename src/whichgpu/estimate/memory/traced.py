"""Memory of a model with an operator table: its steps at a batch size are replayed through the caching allocator."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import MIB
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.overhead import context_bytes, device_range, kernel_bytes, workspace_bytes
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.estimate.memory.traced_steps import StepRecipe, replay_recipe
from whichgpu.estimate.memory.training.optimizer import loops_over_tensors
from whichgpu.workload.denoisers import adapter_parameters, latent_frames_ratio
from whichgpu.workload.precisions import PRECISION_BY_NAME, TRAINED_PRECISIONS, trace_of
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.tables import OperatorTable, load_table
from whichgpu.workload.workload import Workload

# Workspace of a dense convolution wider than 1x1, as a multiple of its operands' bytes: fp32 transposes its operands and stores
# partial sums, TF32 does some of that, 16-bit kernels next to none. Fitted on 18 training steps of twelve torchvision models
# (H200, PyTorch 2.11, cuDNN's default algorithms; fitted 2026-11-15).
CONVOLUTION_WORKSPACE = {"fp32": 3.0, "tf32": 0.65, "fp32-default": 0.65}
CONTIGUOUS_WORKSPACE = 1.0  # In NCHW, tensor-core kernels transpose all their operands first.
LOADED_KERNELS = 248 * MIB  # Measured on the same steps: 771 to 789 MiB of context and kernels on 132 SMs.

# 90% ranges as factors: measured divided by estimated bytes was 0.995 to 1.024 allocated and 0.91 to 1.04 on the device, widened
# a little for models other than those measured.
ALLOCATED_RANGE, DEVICE_RANGE = (0.98, 1.03), (0.93, 1.06)
RESIZED_EXTRA_RANGE = 0.10  # added to both ends of the range if the image size differs from the table's (assumed)
QUANTISED_EXTRA_RANGE = 0.25  # added to both ends of the range if the precision was not traced (assumed)
MAX_CACHED_PEAKS = 4096  # entries of each cache


class MemoryPeak(msgspec.Struct, frozen=True):
    """Bytes at the peak by part, and bytes the allocator reserves."""

    parts: dict[str, float]
    reserved: float

    @property
    def allocated(self) -> float:
        """Bytes of all parts together."""
        return sum(self.parts.values())


def traced_memory(workload: Workload, shape: TracedShape, gpu: Gpu | None) -> MemoryEstimate:
    """Return the peak memory of a training step or a forward pass of a traced model in PyTorch eager."""
    table = load_table(shape.table, workload.image or shape.image or None)
    recipe = _recipe(workload, shape, table)
    peak = _with_gathered_shards(_interpolated_peak(recipe, workload.local_batch), recipe, table)
    libraries = workspace_bytes(gpu) // (1 if workload.training else 2)  # In training two threads have one each.
    parts = {name: int(size) for name, size in peak.parts.items()}
    parts["temporary"] = parts.get("temporary", 0) + round(peak.allocated) - sum(parts.values())  # bytes lost to rounding
    parts["workspace"] = parts.get("workspace", 0) + libraries
    parts["slack"] = round(peak.reserved) - round(peak.allocated)
    kernels = kernel_bytes(engine_record(workload.engine, workload.year).memory, gpu, LOADED_KERNELS, convolutions=True)
    parts["context"] = context_bytes(gpu, kernels)
    spread = device_range(DEVICE_RANGE, parts, kernels, LOADED_KERNELS)
    wider = RESIZED_EXTRA_RANGE * (
        recipe.image != table.image or recipe.frames != 1
    ) + QUANTISED_EXTRA_RANGE * _is_untraced_precision(workload)
    return build_estimate(
        parts,
        (ALLOCATED_RANGE[0] - wider, ALLOCATED_RANGE[1] + wider),
        (spread[0] - wider, spread[1] + wider),
        sources=("h200-training",),
        warnings=_warnings(workload, recipe, table),
    )


def _recipe(workload: Workload, shape: TracedShape, table: OperatorTable) -> StepRecipe:
    precision, training = workload.precision or "fp32", workload.training
    contiguous = workload.memory_format == "contiguous"
    return StepRecipe(
        table=shape.table,
        image=workload.image or shape.image or table.image,
        training=training,
        trace=trace_of(precision),
        weights=_weight_ratio(workload),
        space=max(CONVOLUTION_WORKSPACE.get(precision, 0.0), CONTIGUOUS_WORKSPACE if contiguous else 0.0),
        optimizer=workload.optimizer or "sgd-momentum" if training else "",
        fused=training and (workload.optimizer_fused or loops_over_tensors(workload)),  # One small tensor at a time in a loop.
        stepped=training and workload.include_optimizer_step,
        accumulated=training and workload.accumulation > 1,
        shards=_shards(workload),
        frames=latent_frames_ratio(workload, shape),
        adapters=adapter_parameters(shape.table, shape.image, workload.lora_rank) if training and workload.lora_rank else 0,
    )


def _weight_ratio(workload: Workload) -> float:
    """Return the bytes of a weight divided by those in the trace; QLoRA's frozen weights are nf4, about as large as int4."""
    if workload.training and workload.qlora:
        return PRECISION_BY_NAME["int4"].traced_bytes / (2 if trace_of(workload.precision) == "bf16" else 4)
    return PRECISION_BY_NAME[workload.precision or "fp32"].traced_bytes / 2 if _is_untraced_precision(workload) else 1.0


def _shards(workload: Workload) -> tuple[tuple[str, int], ...]:
    """Return the parts ZeRO shards and over how many ranks (arXiv 1910.02054): optimizer states, then gradients, then weights."""
    layout = workload.parallel
    if not workload.training or layout.dp == 1:
        return ()
    return tuple((name, layout.dp) for name in ("optimizer", "gradients", "weights")[: layout.zero])


def _is_untraced_precision(workload: Workload) -> bool:
    return (workload.precision or "fp32") not in TRAINED_PRECISIONS


def _warnings(workload: Workload, recipe: StepRecipe, table: OperatorTable) -> tuple[Message, ...]:
    warnings = []
    if recipe.image != table.image:
        warnings.append(msg("warning.image-scaled", model=table.name, image=recipe.image, traced=table.image))
    if _is_untraced_precision(workload):
        warnings.append(msg("warning.precision-not-traced", precision=workload.precision or ""))
    layout = workload.parallel
    ignored = {
        "checkpointing": workload.training and workload.checkpointing != "none",
        "parallel": max(layout.tp, layout.pp, layout.ep, layout.cp) > 1,
    }
    warnings += [msg("warning.not-in-tables", field=field) for field, is_set in ignored.items() if is_set]
    return tuple(warnings)


def _with_gathered_shards(peak: MemoryPeak, recipe: StepRecipe, table: OperatorTable) -> MemoryPeak:
    """Add the bytes ZeRO gathers: the largest gradient before it is scattered, and the two largest weights in use."""
    shards = dict(recipe.shards)
    sizes = sorted(kind.size[0] for kind in table.kinds if kind.label == "weights")
    gathered = sum(sizes[-1:]) * ("gradients" in shards) + sum(sizes[-2:]) * ("weights" in shards)
    elsewhere = sum(peak.parts.get(name, 0.0) * (over - 1) for name, over in shards.items() if name != "optimizer")
    extra = min(float(gathered), elsewhere)
    parts = peak.parts | {"temporary": peak.parts.get("temporary", 0.0) + extra}
    return MemoryPeak(parts, peak.reserved + extra)


def _interpolated_peak(recipe: StepRecipe, batch: int) -> MemoryPeak:
    """Return the peak memory at a batch, interpolated between 1, 2, 3, 4, 6, … because fragmentation makes it jump."""
    low = 1
    while _next_batch(low) <= batch:
        low = _next_batch(low)
    first, share = _monotonic_peak(recipe, low), (batch - low) / (_next_batch(low) - low)
    if not share:
        return first
    second = _monotonic_peak(recipe, _next_batch(low))
    mixed = {
        name: (1 - share) * first.parts.get(name, 0) + share * second.parts.get(name, 0) for name in first.parts | second.parts
    }
    return MemoryPeak(mixed, (1 - share) * first.reserved + share * second.reserved)


def _next_batch(batch: int) -> int:
    """Return the next batch size at which peaks are replayed: a power of two or the point half-way between two."""
    if batch < 3:
        return batch + 1
    return batch * 4 // 3 if batch % 3 == 0 else batch * 3 // 2


def _previous_batch(batch: int) -> int:
    """Return the previous batch size at which peaks are replayed: a power of two or the point half-way between two."""
    if batch < 4:
        return batch - 1
    return batch * 2 // 3 if batch % 3 == 0 else batch * 3 // 4


@lru_cache(maxsize=MAX_CACHED_PEAKS)
def _monotonic_peak(recipe: StepRecipe, batch: int) -> MemoryPeak:
    """Return the peak memory at a replayed batch size (1, 2, 3, 4, 6, …), at least that of any smaller one.

    If most of the peak grows with the batch, fragmentation cannot outweigh a grid step, so one smaller batch is compared.
    """
    peak = _peak(recipe, batch)
    if batch == 1:
        return peak
    per_sample = sum(peak.parts.get(name, 0) for name in ("activations", "temporary"))
    growing = per_sample > max(0.6 * peak.allocated, 256 * MIB)
    below = (_peak if growing else _monotonic_peak)(recipe, _previous_batch(batch))
    larger = peak if peak.allocated >= below.allocated else below
    return MemoryPeak(larger.parts, max(peak.reserved, below.reserved))


@lru_cache(maxsize=MAX_CACHED_PEAKS)
def _peak(recipe: StepRecipe, batch: int) -> MemoryPeak:
    """Return the peak memory of two steps replayed in the caching allocator; the second starts with the optimizer states."""
    replay = replay_recipe(recipe, batch)
    parts: dict[str, float] = {}
    for label, size in replay.breakdown.items():
        part = "activations" if label == "input" else label
        parts[part] = parts.get(part, 0) + size
    # The allocator hands out a block whole if its remainder is too small to split; the parts share the difference.
    share = replay.peak_allocated / sum(parts.values())
    return MemoryPeak({name: size * share for name, size in parts.items()}, float(replay.peak_reserved))
