"""Warnings and substitutes for precisions whose arithmetic units a GPU lacks."""

from __future__ import annotations

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.workload.precisions import PRECISION_BY_NAME, TRAINED_PRECISIONS
from whichgpu.workload.workload import Workload


def precision_warnings(workload: Workload, gpu: Gpu) -> tuple[Message, ...]:
    """Return messages on why a precision is slower on this GPU than one would expect; empty if it is not."""
    precision = workload.precision or ""
    eager = engine_record(workload.engine).eager
    if eager and workload.traits.caching and precision not in ("", *TRAINED_PRECISIONS):
        return (msg("warning.plain-products", precision=precision),)
    if eager and precision == "fp32" and workload.memory_format and "tf32" in gpu.peaks:
        return (msg("warning.true-fp32", gpu=gpu.name),)
    record = PRECISION_BY_NAME[precision or "fp32"]
    unit = record.wanted_peak
    if unit is None or has_fast_unit(gpu, unit):
        return ()
    values = {"gpu": gpu.name, "precision": precision}
    if record.operand_unit:  # Weights may still be stored in this precision and dequantised for 16-bit GEMMs.
        return (msg("warning.stored-only", **values),)
    if unit == "bf16" and has_fast_unit(gpu, "fp16"):
        return (msg("warning.emulated-better", better=precision.replace("bf16", "fp16"), **values),)
    return (msg("warning.emulated", **values),)


def usual_precision(precision: str, gpu: Gpu, language: bool) -> str:
    """Return a default precision, or its substitute on a GPU without units for it: fp16 for bf16, else fp32 for vision models.

    >>> from whichgpu.catalog.store import Catalog
    >>> gpus = Catalog().gpu_by_id
    >>> [usual_precision("amp-bf16", gpus[name], language=False) for name in ("a100-sxm-80gb", "v100-sxm-16gb", "k80")]
    ['amp-bf16', 'amp-fp16', 'fp32']
    """
    unit = PRECISION_BY_NAME[precision].wanted_peak
    if unit not in ("bf16", "fp16") or not gpu.peaks or has_fast_unit(gpu, unit):
        return precision
    if unit == "bf16" and has_fast_unit(gpu, "fp16"):
        return precision.replace("bf16", "fp16")
    return precision if language else "fp32"


def computes_fast(gpu: Gpu, precision: str) -> bool:
    """Whether the chip has fast units for a precision, or the precision needs no special unit."""
    unit = PRECISION_BY_NAME[precision].wanted_peak
    return unit is None or has_fast_unit(gpu, unit)


def has_fast_unit(gpu: Gpu, unit: str) -> bool:
    """Whether a chip computes in an arithmetic unit (bf16, …) at least as fast as in fp32; int8 must be as fast as fp16."""
    rate = gpu.peaks.get(unit)
    reference = "fp16" if unit == "int8" and "fp16" in gpu.peaks else "fp32"
    return rate is not None and rate >= gpu.peaks.get(reference, 0.0)
