"""Memory of a model known by its operator table: its steps rebuilt for a batch and replayed through the caching allocator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import MIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.overhead import workspace_bytes
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.estimate.memory.traced_steps import StepRecipe, replay_recipe
from whichgpu.workload.precisions import PRECISION_BY_NAME, TRAINED_PRECISIONS, trace_of
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.tables import OperatorTable, load_table
from whichgpu.workload.workload import Workload

# Workspace of a dense convolution wider than 1x1, as a multiple of its operands' bytes: true fp32 has its operands turned around
# and partial sums kept, TF32 some of that, 16-bit kernels next to nothing. Fitted on 18 training steps of twelve torchvision
# models (H200, PyTorch 2.11, cuDNN's own choice of algorithm; fitted 2026-11-15).
CONVOLUTION_WORKSPACE = {"fp32": 3.0, "tf32": 0.65, "fp32-default": 0.65}
# In channels-first order the tensor cores' kernels turn all their operands around first.
CONTIGUOUS_WORKSPACE = 1.0
# Device memory less what the allocator reserved, the same steps: 771 to 789 MiB on 132 SMs, of which 527 MiB before any kernel.
CONTEXT_PER_SM = 4 * MIB
KERNELS = 248 * MIB
SMS = 132  # where no GPU is named

# 90% ranges, as factors: measured over estimated was 0.995 to 1.024 allocated and 0.91 to 1.04 on the device, a little widened
# for architectures not among the eighteen.
ALLOCATED_RANGE, DEVICE_RANGE = (0.98, 1.03), (0.93, 1.06)
RESIZED_EXTRA_RANGE = 0.10  # added on both sides where the image is not the table's
QUANTISED_EXTRA_RANGE = 0.25

PART_OF_LABEL = {"input": "activations"}
MAX_CACHED_PEAKS = 4096  # peaks remembered: a stream of requests may ask for any number


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """Bytes at the fullest moment, by part, and what the allocator then holds of the device."""

    parts: dict[str, float]
    reserved: float

    @property
    def allocated(self) -> float:
        """All parts together."""
        return sum(self.parts.values())


def traced_memory(workload: Workload, shape: TracedShape, gpu: Gpu | None) -> MemoryEstimate:
    """Peak of a training step or a forward pass in PyTorch eager."""
    table = load_table(shape.table, workload.image or shape.image or None)
    recipe = _recipe(workload, shape, table)
    peak = _gathering(_between(recipe, workload.local_batch), recipe, table)
    libraries = workspace_bytes(gpu) // (1 if workload.training else 2)  # one for each thread: forward, backward
    parts = {name: int(size) for name, size in peak.parts.items()}
    parts["temporary"] = parts.get("temporary", 0) + round(peak.allocated) - sum(parts.values())  # bytes lost to rounding
    parts["workspace"] = parts.get("workspace", 0) + libraries
    parts["slack"] = round(peak.reserved) - round(peak.allocated)
    parts["context"] = CONTEXT_PER_SM * (gpu.sms if gpu and gpu.sms else SMS) + KERNELS
    wider = RESIZED_EXTRA_RANGE * (recipe.image != table.image) + QUANTISED_EXTRA_RANGE * _narrow(workload)
    return build_estimate(
        parts,
        (ALLOCATED_RANGE[0] - wider, ALLOCATED_RANGE[1] + wider),
        (DEVICE_RANGE[0] - wider, DEVICE_RANGE[1] + wider),
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
        weights=PRECISION_BY_NAME[precision].traced_bytes / 2 if _narrow(workload) else 1.0,
        space=max(CONVOLUTION_WORKSPACE.get(precision, 0.0), CONTIGUOUS_WORKSPACE if contiguous else 0.0),
        optimizer=workload.optimizer or "sgd-momentum" if training else "",
        fused=training and workload.optimizer_fused,
        stepped=training and workload.include_optimizer_step,
        accumulated=training and workload.accumulation > 1,
        shards=_shards(workload),
    )


def _shards(workload: Workload) -> tuple[tuple[str, int], ...]:
    """ZeRO's stages (arXiv 1910.02054): states, then gradients, then weights are spread over the copies."""
    layout = workload.parallel
    if not workload.training or layout.dp == 1:
        return ()
    return tuple((name, layout.dp) for name in ("optimizer", "gradients", "weights")[: layout.zero])


def _narrow(workload: Workload) -> bool:
    """Whether no trace has this precision."""
    return (workload.precision or "fp32") not in TRAINED_PRECISIONS


def _warnings(workload: Workload, recipe: StepRecipe, table: OperatorTable) -> tuple[Message, ...]:
    said = []
    if recipe.image != table.image:
        said.append(msg("warning.image-scaled", model=table.name, image=recipe.image, traced=table.image))
    if _narrow(workload):
        said.append(msg("warning.precision-not-traced", precision=workload.precision or ""))
    layout = workload.parallel
    ignored = {
        "checkpointing": workload.training and workload.checkpointing != "none",
        "lora_rank": workload.lora_rank is not None,
        "parallel": max(layout.tp, layout.pp, layout.ep, layout.cp) > 1,
    }
    said += [msg("warning.not-in-tables", field=field) for field, wanted in ignored.items() if wanted]
    return tuple(said)


def _gathering(peak: MemoryPeak, recipe: StepRecipe, table: OperatorTable) -> MemoryPeak:
    """With what ZeRO has whole for a while: the largest gradient till it is spread, the two largest weights while used."""
    shares = dict(recipe.shards)
    sizes = sorted(kind.size[0] for kind in table.kinds if kind.label == "weights")
    whole = sum(sizes[-1:]) * ("gradients" in shares) + sum(sizes[-2:]) * ("weights" in shares)
    spread = sum(peak.parts.get(name, 0.0) * (over - 1) for name, over in shares.items() if name != "optimizer")
    more = min(float(whole), spread)
    parts = peak.parts | {"temporary": peak.parts.get("temporary", 0.0) + more}
    return MemoryPeak(parts, peak.reserved + more)


def _between(recipe: StepRecipe, batch: int) -> MemoryPeak:
    """The peak at a batch, on a line between the nearest of 1, 2, 3, 4, 6, 8, 12, …: fragmentation jumps, a fit must not."""
    low = 1
    while _next(low) <= batch:
        low = _next(low)
    first, share = _steady(recipe, low), (batch - low) / (_next(low) - low)
    if not share:
        return first
    second = _steady(recipe, _next(low))
    mixed = {
        name: (1 - share) * first.parts.get(name, 0) + share * second.parts.get(name, 0) for name in first.parts | second.parts
    }
    return MemoryPeak(mixed, (1 - share) * first.reserved + share * second.reserved)


def _next(batch: int) -> int:
    """The rung after this one: halves between powers of two."""
    if batch < 3:
        return batch + 1
    return batch * 4 // 3 if batch % 3 == 0 else batch * 3 // 2


def _below(batch: int) -> int:
    """The rung before this one."""
    if batch < 4:
        return batch - 1
    return batch * 2 // 3 if batch % 3 == 0 else batch * 3 // 4


@lru_cache(maxsize=MAX_CACHED_PEAKS)
def _steady(recipe: StepRecipe, batch: int) -> MemoryPeak:
    """The peak at a rung, never under that of a smaller one.

    Where most of it, and a good deal, grows with the batch, a rung outdoes fragmentation: one look back will do.
    """
    here = _peak(recipe, batch)
    if batch == 1:
        return here
    grows = sum(here.parts.get(name, 0) for name in ("activations", "temporary"))
    growing = grows > max(0.6 * here.allocated, 256 * MIB)
    below = (_peak if growing else _steady)(recipe, _below(batch))
    most = here if here.allocated >= below.allocated else below
    return MemoryPeak(most.parts, max(here.reserved, below.reserved))


@lru_cache(maxsize=MAX_CACHED_PEAKS)
def _peak(recipe: StepRecipe, batch: int) -> MemoryPeak:
    """Two steps through the allocator: the second has optimizer states from its start."""
    found = replay_recipe(recipe, batch)
    parts: dict[str, float] = {}
    for label, size in found.breakdown.items():
        part = PART_OF_LABEL.get(label, label)
        parts[part] = parts.get(part, 0) + size
    # Blocks whose rest is too small to be cut off count whole: the difference belongs to those who asked for them.
    share = found.peak_allocated / sum(parts.values())
    return MemoryPeak({name: size * share for name, size in parts.items()}, float(found.peak_reserved))
