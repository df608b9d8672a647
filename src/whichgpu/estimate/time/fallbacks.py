"""What happens when a GPU lacks the units a precision asks for, in words."""

from __future__ import annotations

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.workload.precisions import PRECISION_BY_NAME, TRAINED_PRECISIONS
from whichgpu.workload.workload import Workload


def precision_warnings(workload: Workload, gpu: Gpu) -> tuple[Message, ...]:
    """Why a precision will not bring what it promises on this GPU; empty where it does."""
    precision = workload.precision or ""
    eager = engine_record(workload.engine).eager
    if eager and workload.traits.caching and precision not in ("", *TRAINED_PRECISIONS):
        return (msg("warning.plain-products", precision=precision),)
    if eager and precision == "fp32" and workload.memory_format and "tf32" in gpu.peaks:
        return (msg("warning.true-fp32", gpu=gpu.name),)
    record = PRECISION_BY_NAME[precision or "fp32"]
    wanted = record.wanted_peak
    if wanted is None or has_fast_unit(gpu, wanted):
        return ()
    values = {"gpu": gpu.name, "precision": precision}
    if record.operand_unit:  # Weights may still be stored so, and dequantised for 16-bit products.
        return (msg("warning.stored-only", **values),)
    if wanted == "bf16" and has_fast_unit(gpu, "fp16"):
        return (msg("warning.emulated-better", better=precision.replace("bf16", "fp16"), **values),)
    return (msg("warning.emulated", **values),)


def usual_precision(precision: str, gpu: Gpu, language: bool) -> str:
    """What people run in place of a default that a GPU has no units for: fp16 for bf16; fp32 where a network has neither.

    >>> from whichgpu.catalog.store import Catalog
    >>> gpus = Catalog().gpu_by_id
    >>> [usual_precision("amp-bf16", gpus[name], language=False) for name in ("a100-sxm-80gb", "v100-sxm-16gb", "k80")]
    ['amp-bf16', 'amp-fp16', 'fp32']
    """
    wanted = PRECISION_BY_NAME[precision].wanted_peak
    if wanted not in ("bf16", "fp16") or not gpu.peaks or has_fast_unit(gpu, wanted):
        return precision
    if wanted == "bf16" and has_fast_unit(gpu, "fp16"):
        return precision.replace("bf16", "fp16")
    return precision if language else "fp32"


def computes_fast(gpu: Gpu, precision: str) -> bool:
    """Whether the chip has fast units for what a precision asks for, or it asks for none."""
    wanted = PRECISION_BY_NAME[precision].wanted_peak
    return wanted is None or has_fast_unit(gpu, wanted)


def has_fast_unit(gpu: Gpu, unit: str) -> bool:
    """Whether the chip computes in this unit at least as fast as in fp32; in a byte, as in fp16."""
    rate = gpu.peaks.get(unit)
    against = "fp16" if unit == "int8" and "fp16" in gpu.peaks else "fp32"
    return rate is not None and rate >= gpu.peaks.get(against, 0.0)
