"""Whether a workload fits on a GPU: verdict, headroom, and the largest batch and context that fit.

The functions are pure; the caller provides `memory(workload)`, which estimates a workload's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import sqrt
from typing import Literal

import msgspec
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.dispatch import minimum_training_memory
from whichgpu.estimate.memory.engine_memory import engine_of
from whichgpu.estimate.memory.parts import MemoryEstimate
from whichgpu.estimate.usable import fast_bytes, usable_bytes
from whichgpu.workload.decoding.offload import Offload
from whichgpu.workload.denoisers import pipeline_of
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.training_defaults import first_fitting, training_options
from whichgpu.workload.workload import Workload

Verdict = Literal["fits", "tight", "no"]
MemoryOf = Callable[[Workload], MemoryEstimate]
Field = Literal["batch", "context"]
MAX_SIZES = {"batch": 1 << 20, "context": 1 << 24}  # largest samples per rank and tokens of context tried (assumed)
BLOCK = 16  # tokens: the smallest step of a context, a block of the KV cache
ROUNDING_MARGIN = 0.02  # share of one step: interpolated sizes this close to a whole number are computed exactly
SPAN_ERROR = 0.02  # Without `exact`, memory is interpolated if this is its largest error as a share of the interval.
GRID = 32  # sizes between one and its double that a search without `exact` tries otherwise (chosen for speed)


class FitResult(msgspec.Struct, frozen=True):
    """Whether a workload fits on a GPU, with usable and spare bytes; a negative headroom is missing memory."""

    fits: Verdict
    usable: int
    headroom: int
    warnings: tuple[Message, ...] = ()


def required_memory(estimate: MemoryEstimate, workload: Workload) -> Figure:
    """Return the bytes a GPU must have: the sum of the parts in use, not the larger share an engine reserves at start."""
    if workload.training or engine_of(workload).memory.reservation == "none":
        return estimate.device
    parts = estimate.parts.values()
    value = sum(part.value for part in parts)
    below = sqrt(sum((part.value - part.low) ** 2 for part in parts))  # Independent deviations add as squares.
    above = sqrt(sum((part.high - part.value) ** 2 for part in parts))
    return Figure(value, value - below, value + above, "byte", estimate.device.basis, estimate.device.sources)


def device_usage(need: Figure, device: Figure, usable: int, workload: Workload) -> Figure:
    """Return the bytes of device memory in use; an engine limited to a share of the GPU reserves all of that share at start."""
    if workload.training or not engine_of(workload).memory.capped:
        return device
    value, low, high = (max(float(usable), bound) for bound in (need.value, need.low, need.high))
    return Figure(value, low, high, device.unit, device.basis, device.sources)


def verdict(need: Figure, usable: int) -> Verdict:
    """Return "fits" if even the upper end of the range is usable, "tight" if the limit lies inside the range, else "no".

    >>> need = Figure(10.0, 9.0, 11.0, "byte", "modelled")
    >>> verdict(need, 12), verdict(need, 10), verdict(need, 8)
    ('fits', 'tight', 'no')
    """
    if need.high <= usable:
        return "fits"
    return "tight" if need.low <= usable else "no"


def fit(need: Figure, workload: Workload, gpu: Gpu, allowed: float | None = None) -> FitResult:
    """Return the verdict, headroom and warnings for required bytes on a GPU; an engine may use the share `allowed` of the GPU."""
    usable, fast = usable_bytes(gpu, workload, allowed), fast_bytes(gpu)
    result = verdict(need, usable)
    warnings = []
    if fast is not None:
        over = need.high > fast
        result = "tight" if over and result == "fits" else result
        id = "warning.slow-part" if over else "warning.slow-part-unused"
        warnings.append(msg(id, gpu=gpu.name, fast=format_memory(fast), need=format_memory(int(need.value))))
    if unknown := unsupported_dtype(gpu, workload):
        warnings.append(msg("warning.no-dtype", gpu=gpu.name, dtype=unknown))
    return FitResult(result, usable, usable - int(need.value), tuple(warnings))


def adapts_by_default(workload: Workload, shape: Shape, fields_set: Collection[str]) -> bool:
    """Whether a training request may be adapted to its GPU; `fields_set` are the names of the fields that the user set.

    It may not if these include micro-batch, accumulation or checkpointing. The batch of a language model and of fine-tuning is
    that of an optimizer step; one that the user set for another network is one micro-batch, as in a loop without accumulation.
    """
    if not workload.training or {"micro_batch", "accumulation", "checkpointing"} & set(fields_set):
        return False
    return workload.task == "finetune" or shape.is_generative or "batch" not in fields_set


def with_training_defaults(workload: Workload, shape: Shape, gpu: Gpu, fields_set: Collection[str], memory: MemoryOf) -> Workload:
    """Return a training request adapted to a GPU, with checkpointing and smaller micro-batches if it needs them to fit.

    A request whose micro-batch, accumulation or checkpointing the user set (`fields_set`: names of such fields) is unchanged but
    for its optimizer states and sequences, which engines that train with Megatron divide among the ranks by default.
    """
    workload = _with_megatron_options(workload, fields_set)
    if not adapts_by_default(workload, shape, fields_set):
        return workload

    def verdict_of(one: Workload) -> Verdict:
        usable = usable_bytes(gpu, one)
        return "no" if minimum_training_memory(one, shape) > usable else verdict(required_memory(memory(one), one), usable)

    return first_fitting(training_options(workload, shape, "batch" in fields_set), verdict_of)


def _with_megatron_options(workload: Workload, fields_set: Collection[str]) -> Workload:
    """Return a request over tensor or pipeline ranks with the options every Megatron recipe sets, unless the user did.

    They are sequence parallelism beside tensor parallelism, and optimizer states sharded among the replicas (ZeRO stage 1).
    """
    layout = workload.parallel
    usual = engine_of(workload).training.megatron and workload.training
    if not usual or max(layout.tp, layout.pp) == 1 or {"parallel.sp", "parallel.zero"} & set(fields_set):
        return workload
    return replace(workload, parallel=replace(layout, sp=layout.sp or layout.tp > 1, zero=layout.zero or int(layout.dp > 1)))


def with_automatic_offload(workload: Workload, shape: Shape, gpu: Gpu, memory: MemoryOf) -> Workload:
    """Return a request whose offload is automatic with as little in host memory as makes it fit.

    That is nothing, experts, or layers; of a diffusion model nothing or the parts that do not run.
    """
    parts = pipeline_of(workload, shape) is not None
    if workload.offload is None or not workload.offload.automatic or workload.training:
        return workload
    if not parts and not isinstance(shape, Transformer):
        return workload
    usable = usable_bytes(gpu, workload)

    def fits(offload: Offload | None) -> bool:
        one = replace(workload, offload=offload)
        return required_memory(memory(one), one).high <= usable

    if fits(None):
        return replace(workload, offload=None)
    if not isinstance(shape, Transformer):
        return replace(workload, offload=Offload(parts=True))
    return replace(workload, offload=fewest_on_host(shape, fits))


def fewest_on_host(shape: Transformer, fits: Callable[[Offload], bool]) -> Offload:
    """Return the fewest layers whose experts must lie in host memory; whole layers if there are none or they do not suffice."""
    experts = shape.experts is not None and fits(Offload(experts=True))
    low, high = 1, shape.layers
    while low < high:  # bisection
        middle = (low + high) // 2
        low, high = (low, middle) if fits(Offload(experts=experts, layers=middle)) else (middle + 1, high)
    return Offload(experts=True) if experts and low == shape.layers else Offload(experts=experts, layers=low)


def unsupported_dtype(gpu: Gpu, workload: Workload) -> str | None:
    """Return the dtype a workload computes in if the GPU has no units for it, else None."""
    dtype = PRECISION_BY_NAME[workload.precision or "fp32"].wanted_peak
    return dtype if dtype in ("bf16", "fp8", "fp4") and dtype not in gpu.supports else None


class MemoryCurve:
    """Required bytes as a function of batch or context; each value is computed once and used for all GPUs."""

    def __init__(
        self, workload: Workload, shape: Shape, field: Field, memory: MemoryOf, max_size: int | None = None, exact: bool = True
    ) -> None:
        """Prepare a search for the largest `field` up to `max_size`; without `exact` it may be off by about 1 / `GRID`."""
        self._workload = workload
        self._exact = exact
        self._field = field
        self._memory = memory
        self._points: dict[int, float] = {}
        self._deviations: dict[tuple[int, int], float] = {}
        self._step = BLOCK
        limit = shape.max_context if isinstance(shape, Transformer) and shape.max_context else MAX_SIZES["context"]
        self._most = max(1, limit // BLOCK)
        if field == "batch":
            self._step = workload.parallel.dp * (workload.accumulation if workload.training else 1)
            self._most = max_size or MAX_SIZES["batch"]

    def at(self, size: int) -> Workload:
        """Return the workload with `size` samples per replica and micro-batch, or `size` blocks of input plus output tokens."""
        if self._field == "batch":
            return replace(self._workload, batch=size * self._step, micro_batch=None)
        answer = 0 if self._workload.training else self._workload.seq_out or 0
        return replace(self._workload, seq_in=max(1, size * BLOCK - answer))

    def need(self, size: int) -> float:
        """Return the upper end of the range of required bytes at a size."""
        if size not in self._points:
            workload = self.at(size)
            self._points[size] = required_memory(self._memory(workload), workload).high
        return self._points[size]

    def largest(self, usable: int) -> int:
        """Return the largest size that fits in `usable` bytes, found by doubling and then narrowing; 0 if not even 1 fits."""
        if self.need(1) > usable:
            return 0
        low = 1
        while low < self._most and self.need(min(2 * low, self._most)) <= usable:
            low = min(2 * low, self._most)
        if low == self._most:
            return low
        high = min(2 * low, self._most)
        if not self._exact and self._deviation(low, high) <= SPAN_ERROR * (high - low):
            return max(low, int(self._place(low, high, usable) - 2 * self._deviation(low, high)))
        return self._narrowed(low, high, usable) if self._exact else self._on_grid(low, high, usable)

    def _on_grid(self, low: int, high: int, usable: int) -> int:
        """Return the largest fitting size among GRID sizes between two, so that GPUs of almost the same memory share them."""
        step = max(1, (high - low) // GRID)
        while high - low > step:
            steps = min(int((self._place(low, high, usable) - low) / step), (high - low - 1) // step)
            middle = low + max(1, steps) * step
            low, high = (middle, high) if self.need(middle) <= usable else (low, middle)
        return low

    def _narrowed(self, low: int, high: int, usable: int) -> int:
        """Return the largest fitting size between one that fits and one that does not."""
        while high - low > 1:
            place = self._place(low, high, usable)
            if abs(place - round(place)) > ROUNDING_MARGIN and self._deviation(low, high) < ROUNDING_MARGIN / 2:
                return int(place)
            edge = max(1, (high - low) // 64)  # The middle is kept off both ends, so that the interval shrinks from both sides.
            middle = min(max(int(place), low + edge), high - edge)
            low, high = (middle, high) if self.need(middle) <= usable else (low, middle)
        return low

    def _place(self, low: int, high: int, usable: int) -> float:
        """Return the size that needs `usable` bytes, interpolated linearly between two sizes."""
        return low + (usable - self.need(low)) / (self.need(high) - self.need(low)) * (high - low)

    def to_user_units(self, size: int) -> int:
        """Convert a size to the user's units: samples of the global batch, or input plus output tokens."""
        return size * self._step

    def _deviation(self, low: int, high: int) -> float:
        """Return the error of interpolating required bytes linearly between two sizes, as a difference in size."""
        if (low, high) not in self._deviations:
            start, slope = self.need(low), (self.need(high) - self.need(low)) / (high - low)
            between = {low + (high - low) * part // 3 for part in (1, 2)} if high - low > 8 else ()
            off = [abs(self.need(point) - start - slope * (point - low)) for point in between]
            self._deviations[low, high] = max(off) / slope if off and slope > 0 else float("inf")
        return self._deviations[low, high]


def largest_fitting(workload: Workload, shape: Shape, usable: int, field: Field, memory: MemoryOf) -> int:
    """Return the largest global batch, or context (input plus output tokens), that fits in `usable` bytes; 0 if none does."""
    curve = MemoryCurve(workload, shape, field, memory)
    return curve.to_user_units(curve.largest(usable))
