"""GPUs as columns: what the curves need of each, as arrays over GPUs, with what happens where a chip lacks a unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.time.calibration import LOW_POWER
from whichgpu.estimate.time.curves.stack import Array

UNITS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp16_fp16acc", "fp8", "fp4", "int8")
# FLOPs a clock of one SM or compute unit, by compute capability (vendors' architecture papers): in fp32, and in 16 bits on matrix
# units at their full rate. Parts sold with half of that rate are bounded by their peaks.
A_CLOCK = {
    "sm_20": (64.0, 64.0), "sm_30": (384.0, 384.0), "sm_35": (384.0, 384.0), "sm_37": (384.0, 384.0), "sm_50": (256.0, 256.0),
    "sm_52": (256.0, 256.0), "sm_60": (128.0, 256.0), "sm_61": (256.0, 512.0), "sm_70": (128.0, 1024.0), "sm_75": (128.0, 1024.0),
    "sm_80": (128.0, 2048.0), "sm_86": (256.0, 1024.0), "sm_87": (256.0, 2048.0), "sm_89": (256.0, 1024.0),
    "sm_90": (256.0, 4096.0), "sm_100": (256.0, 8192.0), "sm_103": (256.0, 8192.0), "sm_120": (256.0, 1024.0),
    "sm_121": (256.0, 1024.0),
    "gfx942": (256.0, 2048.0), "gfx950": (256.0, 4096.0), "gfx1100": (256.0, 512.0), "gfx1101": (256.0, 512.0),
    "gfx1102": (256.0, 512.0), "gfx1200": (256.0, 1024.0), "gfx1201": (256.0, 1024.0),
}  # fmt: skip
A_CLOCK_TYPICAL = 128.0, 1024.0
AGAINST_HALF = {
    "tf32": 0.5,
    "bf16": 1.0,
    "fp16": 1.0,
    "fp16_fp16acc": 1.0,
    "fp8": 2.0,
    "int8": 2.0,
    "fp4": 4.0,
}  # rates of matrix units against 16 bits
# A GPU core of Apple's: published for the M1 (2.6 TFLOP/s from eight cores); later ones are a little faster.
APPLE_CORE_FLOPS = 0.33e12
PLAIN = frozenset({"GCN5", "RDNA1", "RDNA2", "Apple M1", "Apple M2", "Apple M3", "Apple M4"})  # without matrix units
# RDNA from its third generation issues two fp32 instructions at once where a compiler finds pairs; stated peaks count both, and
# libraries' kernels reach one. Convolutions in 16 bits are dot products on the same lanes there, at half the matrix units' rate.
PAIRED = {"RDNA3": 0.5, "RDNA4": 0.5}
DOTS = {"RDNA3": 0.5}
BEFORE_WINOGRAD = frozenset({"Fermi"})
CLOCK_UNKNOWN = {"Hopper": 1.83e9, "Blackwell": 1.9e9}  # where none is stated: that of siblings
CLOCK_TYPICAL = 1.5e9
# Cards for desks raise their clock above the stated boost as far as power and heat allow, whatever the model's own figure: what
# cards of a generation hold under load. Assumed, without a source: stated boosts differ by a sixth within Turing alone. Titans
# were sold with the maker's own cooler only: they hold what is stated.
SUSTAINED = {
    "Kepler": 0.95e9,
    "Maxwell": 1.16e9,
    "Pascal": 1.78e9,
    "Volta": 1.53e9,
    "Turing": 1.80e9,
    "Ampere": 1.82e9,
    "Ada": 2.65e9,
    "sm_60": 0.0,  # the server's chip on a card for desks
}
DESKS = ("consumer", "workstation")
OWN_COOLER = "titan"
# An SM's operands come from its registers and shared memory at a pace that has not grown with its units: what the tiles of the
# H200 lose to loading, those of slower SMs lose less of. FLOPs a clock and SM of the H200, fp32 and 16 bits on matrix units.
FASTEST = 256.0, 4096.0
# L2 where none is stated: that of siblings.
L2_UNKNOWN = {"Hopper": 50 << 20, "Blackwell": 96 << 20, "Ada": 48 << 20}
L2_SMALLEST = 4 << 20
# SMs where none are stated: those of siblings. Chips of makers without SMs count as so many, whatever their engines are called.
SMS_UNKNOWN = {"Hopper": 132, "Blackwell": 148}
SMS_TYPICAL = 64
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
    dots: Array  # of the 16-bit rate: what convolutions reach where they do not
    winograd: Array  # 1 where libraries have such kernels: they begin with Kepler
    wide: Array  # 1 where an SM has 128 fp32 lanes, 0 where it has 64
    bandwidth: Array
    sms: Array
    l2: Array  # the last cache before memory
    clock: Array
    latency: Array  # of a kernel that has little to do, against the H200's: as many clocks, where they are slower
    tdp: Array  # watts; infinite where unknown
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

    def known(self, parameters: Mapping[str, float], name: str) -> Array:
        """A number by what it is known of: `name.target`, or `name.architecture`, or 0."""
        pairs = zip(self.architectures, self.targets, strict=True)
        get = parameters.get
        return _column([get(f"{name}.{target}", get(f"{name}.{architecture}", 0.0)) for architecture, target in pairs])

    def factor(self, parameters: Mapping[str, float], name: str) -> Array:
        """What a chip makes of a share: `name.architecture` times `name.target`, each 1 where unknown."""
        pairs = zip(self.architectures, self.targets, strict=True)
        get = parameters.get
        return _column([get(f"{name}.{architecture}", 1.0) * get(f"{name}.{target}", 1.0) for architecture, target in pairs])


_KNOWN: dict[tuple[int, ...], tuple[Sequence[Gpu], GpuColumns]] = {}


def columns_of(gpus: Sequence[Gpu]) -> GpuColumns:
    """The columns of these very GPUs, made once; the GPUs are kept, so that their identities stay theirs."""
    key = tuple(map(id, gpus))
    if key not in _KNOWN:
        if len(_KNOWN) >= 256:
            _KNOWN.clear()
        _KNOWN[key] = tuple(gpus), columns(gpus)
    return _KNOWN[key][1]


def columns(gpus: Sequence[Gpu]) -> GpuColumns:
    """The columns of these GPUs, in order."""
    once = {id(gpu): gpu for gpu in gpus}
    if len(once) == len(gpus):
        return _columns(gpus)
    order = {key: place for place, key in enumerate(once)}
    places = [order[id(gpu)] for gpu in gpus]
    each = _columns(tuple(once.values()))
    return replace(each._some(places), among=(each, np.array(places, dtype=np.intp)))


def _columns(gpus: Sequence[Gpu]) -> GpuColumns:
    peaks = [_rates(gpu) for gpu in gpus]
    clocks = [_clock(gpu) for gpu in gpus]
    raised = [_raised(gpu, clock) for gpu, clock in zip(gpus, clocks, strict=True)]
    return GpuColumns(
        ids=tuple(gpu.id for gpu in gpus),
        architectures=tuple(gpu.architecture for gpu in gpus),
        targets=tuple(gpu.target or "" for gpu in gpus),
        peaks={unit: _column([peak[unit] for peak in peaks]) for unit in UNITS},
        rates={unit: _column([_reached(*each, unit) for each in zip(gpus, peaks, raised, strict=True)]) for unit in UNITS},
        balance={unit: _column([_balance(gpu, unit) for gpu in gpus]) for unit in UNITS},
        sm_rates={
            unit: _column([_sm_rate(gpu, unit, clock * more) for gpu, clock, more in zip(gpus, clocks, raised, strict=True)])
            for unit in UNITS
        },
        native={unit: _column([float(unit in gpu.peaks) for gpu in gpus]) for unit in UNITS},
        matrix=_column([float(_has_matrix_units(gpu)) for gpu in gpus]),
        dots=_column([DOTS.get(gpu.architecture, 1.0) for gpu in gpus]),
        winograd=_column([float(gpu.architecture not in BEFORE_WINOGRAD) for gpu in gpus]),
        wide=_column([float(_a_clock(gpu)[0] > A_CLOCK_TYPICAL[0]) for gpu in gpus]),
        bandwidth=_column([float(gpu.memory_bandwidth) for gpu in gpus]),
        sms=_column([_sms(gpu) for gpu in gpus]),
        l2=_column([float(gpu.l3_bytes or gpu.l2_bytes or L2_UNKNOWN.get(gpu.architecture, L2_SMALLEST)) for gpu in gpus]),
        clock=_column([clock * more for clock, more in zip(clocks, raised, strict=True)]),
        latency=_column([max(CLOCK_UNKNOWN["Hopper"] / (clock * more), 1.0) for clock, more in zip(clocks, raised, strict=True)]),
        tdp=_column([float(gpu.tdp_watts or inf) for gpu in gpus]),
    )


def _rates(gpu: Gpu) -> dict[str, float]:
    """FLOP/s of each unit, or of the unit that stands in for it.

    >>> from whichgpu.catalog.store import Catalog
    >>> gpus = {gpu.id: gpu for gpu in Catalog().gpus}
    >>> _rates(gpus["v100-pcie-32gb"])["bf16"] == gpus["v100-pcie-32gb"].peaks["fp32"]
    True
    >>> _rates(gpus["p4"])["fp16"] == gpus["p4"].peaks["fp32"]
    True
    """
    has = gpu.peaks
    narrow = has.get("bf16") or has.get("fp8", 0) / 2 or has.get("int8", 0) / 2 or has.get("fp4", 0) / 4
    fp32 = float(has.get("fp32") or has.get("bf16_plain") or _apple(gpu) or narrow / 8 or nan)
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


def _apple(gpu: Gpu) -> float:
    return APPLE_CORE_FLOPS * (gpu.sms or 0) if gpu.vendor == "apple" else 0.0


def _a_clock(gpu: Gpu) -> tuple[float, float]:
    return A_CLOCK.get(gpu.target or "", A_CLOCK_TYPICAL)


def _has_matrix_units(gpu: Gpu) -> bool:
    return (
        "tensor-cores" in gpu.supports
        if gpu.vendor == "nvidia"
        else gpu.architecture not in PLAIN and gpu.architecture not in DOTS
    )


def _clock(gpu: Gpu) -> float:
    return float(gpu.tensor_clock_hz or gpu.boost_clock_hz or CLOCK_UNKNOWN.get(gpu.architecture, CLOCK_TYPICAL))


def _sms(gpu: Gpu) -> float:
    stated = gpu.sms if gpu.vendor in WITH_SMS else None
    return float(stated or SMS_UNKNOWN.get(gpu.architecture, SMS_TYPICAL))


def _raised(gpu: Gpu, clock: float) -> float:
    """How far above its stated boost a card runs."""
    powered = (gpu.tdp_watts or inf) > LOW_POWER
    cooled = gpu.segment in DESKS and gpu.form_factor == "pcie" and OWN_COOLER not in gpu.id and powered
    return max(SUSTAINED.get(gpu.target or "", SUSTAINED.get(gpu.architecture, 0.0)) / clock, 1.0) if cooled else 1.0


def _reached(gpu: Gpu, peaks: Mapping[str, float], raised: float, unit: str) -> float:
    paired = PAIRED.get(gpu.architecture, 1.0) if unit in ("fp32", "tf32") else 1.0
    return peaks[unit] * raised * paired


def _balance(gpu: Gpu, unit: str) -> float:
    """FLOPs a clock and SM against the H200's; half of it where sums in fp32 run at half rate. Of its kind, not of its size."""
    a_clock = _sm_rate(gpu, unit, 1.0)
    if "fp16_fp16acc" in gpu.peaks and unit in ("tf32", "bf16", "fp16"):
        a_clock /= 2
    if unit in AGAINST_HALF and unit in gpu.peaks:
        against = FASTEST[1] * AGAINST_HALF[unit]
    else:
        against = FASTEST[1] if _stands_in(gpu, unit) else FASTEST[0]
    return min(a_clock / against, 1.0)


def _sm_rate(gpu: Gpu, unit: str, clock: float) -> float:
    """The rate of one SM; infinite where its kind is not known, so that the peak alone bounds.

    It does not depend on the number of SMs, so that more of them never slow a product of few tiles.
    """
    if gpu.target not in A_CLOCK:
        return inf
    single, half = _a_clock(gpu)
    single *= PAIRED.get(gpu.architecture, 1.0)
    if unit in AGAINST_HALF and (unit in gpu.peaks or "fp32" not in gpu.peaks):
        return half * AGAINST_HALF[unit] * clock
    return (half if _stands_in(gpu, unit) else single) * clock


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
