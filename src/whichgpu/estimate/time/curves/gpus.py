"""GPUs as columns: what the curves need of each, as arrays over GPUs, with what happens where a chip lacks a unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichgpu.catalog.architecture import Architecture, architecture_named, architecture_of
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.time.calibration import LOW_POWER_WATTS
from whichgpu.estimate.time.curves.stack import Array
from whichgpu.estimate.time.units import UNITS

# Architecture and target of the H200, on which the curves were fitted: others are compared with its SM and clock.
REFERENCE_ARCHITECTURE = "Hopper", "sm_90"
ASYNC_MATRIX = frozenset({"wgmma", "tcgen05"})
LANES_64 = 128.0  # FLOPs per clock of an SM with 64 fp32 lanes
DESKS = ("consumer", "workstation")
OWN_COOLER = "titan"
# Chips of other vendors have no SMs, whatever their engines are called: they count as so many as their architecture's row says.
WITH_SMS = ("nvidia", "amd", "intel", "apple")


@dataclass(frozen=True, slots=True)
class GpuColumns:
    """Arrays shaped [gpus, 1, 1], ready to broadcast over operators and batches. Rates a second, sizes in bytes."""

    ids: tuple[str, ...]
    architectures: tuple[str, ...]
    targets: tuple[str, ...]  # compute capability or its like: chips of one architecture may differ
    peaks: dict[str, Array]  # by unit: the rate at which its products are made, by another unit where the chip lacks it
    rates: dict[str, Array]  # by unit: the same at the clock that is held
    balance: dict[str, Array]  # by unit: FLOPs a clock of one SM against the H200's, at most 1
    sm_rates: dict[str, Array]  # by unit: the rate of one SM
    native: dict[str, Array]  # by unit: 1 where the chip has it
    matrix: Array  # 1 where convolutions run on matrix units
    dots: Array  # share of the 16-bit rate that convolutions reach where they do not
    winograd: Array  # 1 where libraries have such kernels
    bulk_copies: Array  # 1 where tensor cores are fed by bulk copies (TMA)
    async_matrix: Array  # 1 where the full rate needs asynchronous matrix instructions (wgmma, tcgen05)
    wide: Array  # 1 where an SM has 128 fp32 lanes, 0 where it has 64
    bandwidth: Array
    sms: Array
    l2: Array  # the last cache before memory
    clock: Array
    latency: Array  # of a kernel that has little to do, against the H200's: as many clocks, where they are slower
    tdp: Array  # watts; infinite where unknown
    fp32_pj: Array  # energy of a FLOP in picojoules where the fit has none; 0 where unknown
    fp16_pj: Array
    among: tuple[GpuColumns, NDArray[np.intp]] | None = None  # where GPUs come again: each once, and which of these each is

    def __len__(self) -> int:
        return len(self.ids)

    def parts(self, most: int) -> Iterator[GpuColumns]:
        """The same in order, at most so many GPUs at a time."""
        if len(self) <= most:
            yield self
            return
        for first in range(0, len(self), most):
            yield self._some(range(first, min(first + most, len(self))))

    def _some(self, places: Sequence[int]) -> GpuColumns:
        whole: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "among"}
        return GpuColumns(**{name: _cut(value, places) for name, value in whole.items()})

    def known(self, parameters: Mapping[str, float], name: str, stated: Array) -> Array:
        """A fitted number of each GPU: `name.target`, else `name.architecture`, else the one stated."""
        each = zip(self.architectures, self.targets, stated.ravel().tolist(), strict=True)
        get = parameters.get
        return _column([get(f"{name}.{target}", get(f"{name}.{family}", value)) for family, target, value in each])

    def factor(self, parameters: Mapping[str, float], name: str) -> Array:
        """What a chip makes of a share: `name.architecture` times `name.target`, each 1 where unknown."""
        pairs = zip(self.architectures, self.targets, strict=True)
        get = parameters.get
        return _column([get(f"{name}.{family}", 1.0) * get(f"{name}.{target}", 1.0) for family, target in pairs])


_KNOWN: dict[tuple[int, ...], tuple[Sequence[Gpu], GpuColumns]] = {}


def cached_gpu_columns(gpus: Sequence[Gpu]) -> GpuColumns:
    """The columns of these very GPUs, made once; the GPUs are kept, so that their identities stay theirs."""
    key = tuple(map(id, gpus))
    if key not in _KNOWN:
        if len(_KNOWN) >= 256:
            _KNOWN.clear()
        _KNOWN[key] = tuple(gpus), build_gpu_columns(gpus)
    return _KNOWN[key][1]


def build_gpu_columns(gpus: Sequence[Gpu]) -> GpuColumns:
    """The columns of these GPUs, in order."""
    once = {id(gpu): gpu for gpu in gpus}
    if len(once) == len(gpus):
        return _columns(gpus)
    order = {key: place for place, key in enumerate(once)}
    places = [order[id(gpu)] for gpu in gpus]
    each = _columns(tuple(once.values()))
    return replace(each._some(places), among=(each, np.array(places, dtype=np.intp)))


def _columns(gpus: Sequence[Gpu]) -> GpuColumns:
    kinds = [architecture_of(gpu) for gpu in gpus]
    peaks = [_rates(gpu, kind) for gpu, kind in zip(gpus, kinds, strict=True)]
    clocks = [_clock(gpu, kind) for gpu, kind in zip(gpus, kinds, strict=True)]
    raised = [_raised(*each) for each in zip(gpus, kinds, clocks, strict=True)]
    held = [clock * more for clock, more in zip(clocks, raised, strict=True)]
    reference = architecture_named(*REFERENCE_ARCHITECTURE)
    return GpuColumns(
        ids=tuple(gpu.id for gpu in gpus),
        architectures=tuple(gpu.architecture for gpu in gpus),
        targets=tuple(gpu.target or "" for gpu in gpus),
        peaks={unit: _column([peak[unit] for peak in peaks]) for unit in UNITS},
        rates={unit: _column([_reached(*each, unit) for each in zip(kinds, peaks, raised, strict=True)]) for unit in UNITS},
        balance={unit: _column([_balance(*each, unit, reference) for each in zip(gpus, kinds, strict=True)]) for unit in UNITS},
        sm_rates={unit: _column([_sm_rate(*each, unit) for each in zip(gpus, kinds, held, strict=True)]) for unit in UNITS},
        native={unit: _column([float(unit in gpu.peaks) for gpu in gpus]) for unit in UNITS},
        matrix=_column([float(_has_matrix_convolutions(gpu, kind)) for gpu, kind in zip(gpus, kinds, strict=True)]),
        dots=_column([kind.dot_product_share for kind in kinds]),
        winograd=_column([float(bool(kind.winograd)) for kind in kinds]),
        bulk_copies=_column([float("tma" in kind.instructions) for kind in kinds]),
        async_matrix=_column([float(not ASYNC_MATRIX.isdisjoint(kind.instructions)) for kind in kinds]),
        wide=_column([float((kind.fp32_flops_per_clock or 0.0) > LANES_64) for kind in kinds]),
        bandwidth=_column([float(gpu.memory_bandwidth) for gpu in gpus]),
        sms=_column([_sms(gpu, kind) for gpu, kind in zip(gpus, kinds, strict=True)]),
        l2=_column([float(gpu.l3_bytes or gpu.l2_bytes or kind.l2_kib * 1024) for gpu, kind in zip(gpus, kinds, strict=True)]),
        clock=_column(held),
        latency=_column([max(reference.clock_mhz * 1e6 / clock, 1.0) for clock in held]),
        tdp=_column([float(gpu.tdp_watts or inf) for gpu in gpus]),
        fp32_pj=_column([kind.fp32_pj for kind in kinds]),
        fp16_pj=_column([kind.fp16_pj for kind in kinds]),
    )


def _rates(gpu: Gpu, kind: Architecture) -> dict[str, float]:
    """FLOP/s of each unit, or of the unit that stands in for it.

    >>> from whichgpu.catalog.store import Catalog
    >>> v100, p4 = (Catalog().gpu_by_id[name] for name in ("v100-pcie-32gb", "p4"))
    >>> _rates(v100, architecture_of(v100))["bf16"] == v100.peaks["fp32"]
    True
    >>> _rates(p4, architecture_of(p4))["fp16"] == p4.peaks["fp32"]
    True
    """
    has = gpu.peaks
    narrow = has.get("bf16") or has.get("fp8", 0) / 2 or has.get("int8", 0) / 2 or has.get("fp4", 0) / 4
    fp32 = float(has.get("fp32") or has.get("bf16_plain") or kind.core_tflops * 1e12 * (gpu.sms or 0) or narrow / 8 or nan)
    # GP10x computes fp16 in fp32 (its own unit has 1/64 of the rate); without bf16 units products are made in fp32 after a cast.
    fp16 = float(has.get("fp16") or has.get("bf16") or (narrow if "fp32" not in has else 0) or fp32)
    bf16 = float(has.get("bf16") or (narrow if "fp32" not in has else 0) or fp32)
    best = max(bf16, fp16)  # narrower weights are widened to this before they are multiplied
    return {
        "fp64": float(has.get("fp64_tensor") or has.get("fp64") or fp32 / 64),
        "fp32": fp32,
        "tf32": float(has.get("tf32") or fp32),
        "bf16": bf16,
        "fp16": fp16,
        "fp16_fp16acc": float(has.get("fp16_fp16acc") or fp16),
        "fp8": float(has.get("fp8") or best),
        "fp4": float(has.get("fp4") or best),
        # Volta multiplies bytes more slowly than fp16. Where no rate is known `best` is no number; the first of two stays so.
        "int8": max(best, float(has.get("int8") or 0.0)),
    }


def _has_matrix_convolutions(gpu: Gpu, kind: Architecture) -> bool:
    return "tensor-cores" in gpu.supports if kind.matrix_convolutions is None else kind.matrix_convolutions


def _clock(gpu: Gpu, kind: Architecture) -> float:
    return float(gpu.tensor_clock_hz or gpu.boost_clock_hz or kind.clock_mhz * 1e6)


def _sms(gpu: Gpu, kind: Architecture) -> float:
    stated = gpu.sms if gpu.vendor in WITH_SMS else None
    return float(stated or kind.sms)


def _raised(gpu: Gpu, kind: Architecture, clock: float) -> float:
    """How far above its stated boost a card runs: desktop cards raise their clock as far as power and heat allow.

    Titans were sold with the maker's own cooler only: they hold what is stated.
    """
    powered = (gpu.tdp_watts or inf) > LOW_POWER_WATTS
    cooled = gpu.segment in DESKS and gpu.form_factor == "pcie" and OWN_COOLER not in gpu.id and powered
    return max(kind.sustained_clock_mhz * 1e6 / clock, 1.0) if cooled else 1.0


def _reached(kind: Architecture, peaks: Mapping[str, float], raised: float, unit: str) -> float:
    return peaks[unit] * raised * (kind.dual_issue_share if unit in ("fp32", "tf32") else 1.0)


def _balance(gpu: Gpu, kind: Architecture, unit: str, reference: Architecture) -> float:
    """FLOPs per clock and SM against the reference's, at most 1; half of it where fp32 accumulation runs at half rate.

    An SM's operands come from its registers and shared memory at a pace that has not grown with its units: what the tiles of the
    reference lose to loading, those of slower SMs lose less of.
    """
    per_clock = _sm_rate(gpu, kind, 1.0, unit)
    if "fp16_fp16acc" in gpu.peaks and unit in ("tf32", "bf16", "fp16"):
        per_clock /= 2
    single, half = reference.fp32_flops_per_clock or inf, reference.fp16_flops_per_clock or inf
    if (rate := UNITS[unit].rate_vs_fp16) is not None and unit in gpu.peaks:
        against = half * rate
    else:
        against = half if _stands_in(gpu, unit) else single
    return min(per_clock / against, 1.0)


def _sm_rate(gpu: Gpu, kind: Architecture, clock: float, unit: str) -> float:
    """FLOP/s of one SM; infinite where its FLOPs per clock are unknown, so that the peak alone bounds.

    It does not depend on the number of SMs, so that more of them never slow a product of few tiles.
    """
    single, half = kind.fp32_flops_per_clock, kind.fp16_flops_per_clock
    if single is None or half is None:
        return inf
    if (rate := UNITS[unit].rate_vs_fp16) is not None and (unit in gpu.peaks or "fp32" not in gpu.peaks):
        return half * rate * clock
    return (half if _stands_in(gpu, unit) else single * kind.dual_issue_share) * clock


def _stands_in(gpu: Gpu, unit: str) -> bool:
    """Whether what the unit would do is done in fp16 by units the chip has for that."""
    return "fp16" in gpu.peaks and unit in ("fp8", "fp4", "int8", "fp16", "fp16_fp16acc")


def _cut(value: Any, places: Sequence[int]) -> Any:
    """Some GPUs' share of a column, or of each of several."""
    if isinstance(value, dict):
        return {unit: _cut(column, places) for unit, column in value.items()}
    if isinstance(value, tuple):
        return tuple(value[place] for place in places)
    return value[places.start : places.stop] if isinstance(places, range) else value[places]


def _column(values: Sequence[float]) -> Array:
    return np.asarray(values, dtype=np.float64)[:, None, None]
