"""Properties of GPUs as arrays (columns) for the operators' timing models, such as peak FLOP/s, native or emulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, nan
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from whichgpu.catalog.architecture import Architecture, architecture_named, architecture_of
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.time.calibration import LOW_POWER_WATTS
from whichgpu.estimate.time.curves.stack import Array, Parameters
from whichgpu.estimate.time.units import UNITS

# The operators' timing models were fitted on the H200: other GPUs are compared with its SM and clock.
REFERENCE_ARCHITECTURE = "Hopper", "sm_90"
ASYNC_MATRIX_INSTRUCTIONS = frozenset({"wgmma", "tcgen05"})
MATRIX_ROWS = {"tcgen05": 128.0, "wgmma": 64.0}  # fewest rows of one matrix instruction (PTX ISA)
MATRIX_ROWS_OTHERS = 16.0  # mma.sync, and the matrix instructions of other vendors
OVERCLOCKED_SEGMENTS = ("consumer", "workstation")
REFERENCE_COOLER = "titan"  # sold only with NVIDIA's own cooler, so these cards sustain the stated clock but no more
# Chips of other vendors have no SMs; the row of their architecture gives the number used instead.
VENDORS_WITH_SMS = ("nvidia", "amd", "intel", "apple")
MAX_CACHED_COLUMNS = 256  # entries, one per set of GPUs; beyond this the cache is emptied
# Targets that run the kernels of another on as many SMs: Blackwell Ultra those of Blackwell (compiled for sm_100f).
KERNELS_OF_TARGET = {"sm_103": "sm_100"}
PICO = 1e-12  # joules per picojoule
PCIE3_LANE, PCIE_SHARE = 0.985e9, 0.8  # bytes/s of a lane of PCIe 3.0 in one direction; share that copies achieve (assumed)


class GpuColumns(msgspec.Struct, frozen=True):
    """Properties of GPUs as arrays [gpus, 1, 1], to broadcast over operators and batches; rates per second, sizes in bytes."""

    ids: tuple[str, ...]
    architectures: tuple[str, ...]
    rooflines: tuple[str, ...]  # family of an accelerator that is timed as shares of peak and bandwidth; "" for GPUs
    targets: tuple[str, ...]  # compute capability or its equivalent, since chips of one architecture may differ
    matrix_instructions: tuple[str, ...]  # asynchronous matrix instructions that the full rate needs: wgmma, tcgen05, or ""
    peaks: dict[str, Array]  # by arithmetic unit: peak FLOP/s of GEMMs, or of the unit that emulates it
    clocked_peaks: dict[str, Array]  # by arithmetic unit: peak FLOP/s at the sustained clock if that is above the stated one
    sustained_peaks: dict[str, Array]  # by arithmetic unit: FLOP/s that no step of some length exceeds, at the power limit
    sustained_rates: dict[str, Array]  # by arithmetic unit: FLOP/s at the sustained clock
    sm_rate_vs_reference: dict[str, Array]  # by arithmetic unit: an SM's FLOPs per clock relative to the H200's, at most 1
    sm_rates: dict[str, Array]  # by arithmetic unit: FLOP/s of one SM
    native: dict[str, Array]  # by arithmetic unit: 1 if GEMMs use the chip's own
    matrix_units: Array  # 1 if the chip has matrix units: tensor cores, matrix cores
    matrix_convolutions: Array  # 1 if convolutions run on matrix units
    dot_product_share: Array  # share of the 16-bit rate that convolutions achieve without matrix units
    winograd: Array  # 1 if libraries have Winograd kernels
    bulk_copies: Array  # 1 if tensor cores are fed by bulk copies (TMA)
    async_matrix: Array  # 1 if the full rate needs asynchronous matrix instructions (wgmma, tcgen05)
    matrix_rows: Array  # fewest rows of one matrix instruction
    bandwidth: Array
    sms: Array
    l2: Array  # bytes of the last cache before memory
    clock: Array
    latency: Array  # latency of a near-empty kernel relative to the H200's: inverse ratio of clocks, at least 1
    tdp: Array  # watts; infinite if unknown
    fp32_pj: Array  # picojoules per FLOP if the fit has none; 0 if unknown
    fp16_pj: Array
    # Bytes/s that copies from host memory achieve; the memory's own if GPU and CPU share it.
    pcie: Array = msgspec.field(default_factory=lambda: _column([PCIE_SHARE * PCIE3_LANE * 16]))
    distinct: tuple[GpuColumns, NDArray[np.intp]] | None = None  # if GPUs repeat: the distinct ones, each GPU's index

    def __len__(self) -> int:
        return len(self.ids)

    def parts(self, size: int) -> Iterator[GpuColumns]:
        """Yield the arrays of properties in order, split into parts of at most `size` GPUs."""
        if len(self) <= size:
            yield self
            return
        for first in range(0, len(self), size):
            yield self._take(range(first, min(first + size, len(self))))

    def _take(self, places: Sequence[int]) -> GpuColumns:
        whole = asdict(self)
        del whole["distinct"]
        return GpuColumns(**{name: _take_places(value, places) for name, value in whole.items()})

    def fitted_value(self, parameters: Mapping[str, float], name: str, stated: Array) -> Array:
        """Return a value per GPU: the fitted parameter of its compute target (sm_90), else of its architecture, else `stated`."""
        pairs = list(zip(self.architectures, self.targets, strict=True))
        get = parameters.get
        fitted = {(family, target): get(f"{name}.{target}", get(f"{name}.{family}")) for family, target in set(pairs)}
        values = zip(map(fitted.__getitem__, pairs), stated.ravel().tolist(), strict=True)
        return _column([value if fit is None else fit for fit, value in values])

    def architecture_share(self, parameters: Mapping[str, float], name: str) -> Array:
        """Return a factor per GPU on a share of peak: `architecture_factor`, at least of the target whose kernels it runs."""
        own = self.architecture_factor(parameters, name, self.targets)
        if not KERNELS_OF_TARGET.keys() & set(self.targets):
            return own
        kin = tuple(KERNELS_OF_TARGET.get(target, target) for target in self.targets)
        return np.maximum(own, self.architecture_factor(parameters, name, kin))

    def architecture_factor(self, parameters: Mapping[str, float], name: str, targets: Sequence[str] = ()) -> Array:
        """Return a factor per GPU: the fitted one of its architecture times its compute target's (sm_90), each 1 if absent."""
        pairs = list(zip(self.architectures, targets or self.targets, strict=True))
        get = parameters.get
        factors = {(family, target): get(f"{name}.{family}", 1.0) * get(f"{name}.{target}", 1.0) for family, target in set(pairs)}
        return _column([factors[pair] for pair in pairs])


def power_bound(flops: Array, unit: str, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the least seconds that these FLOPs in an arithmetic unit take at the board's power limit (low on small cards)."""
    if (energy := UNITS[unit].energy_vs_fp16) is not None:
        joules = gpus.fitted_value(p, "power.fp16_energy_per_flop", gpus.fp16_pj) * (PICO * energy)
        joules = np.where(gpus.native[unit] > 0, joules, 0.0)
    else:
        joules = gpus.fitted_value(p, "power.fp32_energy_per_flop", gpus.fp32_pj) * PICO
    return flops * (joules / gpus.tdp)


_COLUMN_CACHE: dict[tuple[int, ...], tuple[Sequence[Gpu], GpuColumns]] = {}


def cached_gpu_columns(gpus: Sequence[Gpu]) -> GpuColumns:
    """Return the properties of these GPUs as arrays, cached by object identity; the cache keeps the objects alive."""
    key = tuple(map(id, gpus))
    if key not in _COLUMN_CACHE:
        if len(_COLUMN_CACHE) >= MAX_CACHED_COLUMNS:
            _COLUMN_CACHE.clear()
        _COLUMN_CACHE[key] = tuple(gpus), build_gpu_columns(gpus)
    return _COLUMN_CACHE[key][1]


def build_gpu_columns(gpus: Sequence[Gpu]) -> GpuColumns:
    """Build the arrays of properties of these GPUs in order; repeated GPUs are computed once."""
    distinct = {id(gpu): gpu for gpu in gpus}
    if len(distinct) == len(gpus):
        return _columns(gpus)
    order = {key: place for place, key in enumerate(distinct)}
    places = [order[id(gpu)] for gpu in gpus]
    columns = _columns(tuple(distinct.values()))
    return replace(columns._take(places), distinct=(columns, np.array(places, dtype=np.intp)))


def _columns(gpus: Sequence[Gpu]) -> GpuColumns:
    rows = [(gpu, architecture_of(gpu)) for gpu in gpus]
    kinds = [kind for _, kind in rows]
    peaks = [_peaks(*row) for row in rows]
    stated = [_stated_clock(*row) for row in rows]
    boosts = [_boost(*row, clock) for row, clock in zip(rows, stated, strict=True)]
    clocks = [clock * boost for clock, boost in zip(stated, boosts, strict=True)]
    reference = architecture_named(*REFERENCE_ARCHITECTURE)
    by_gpu = list(zip(rows, peaks, boosts, strict=True))
    by_rate, by_clock = list(zip(kinds, peaks, boosts, strict=True)), list(zip(rows, clocks, strict=True))
    return GpuColumns(
        ids=tuple(gpu.id for gpu in gpus),
        architectures=tuple(gpu.architecture for gpu in gpus),
        rooflines=tuple(kind.roofline for kind in kinds),
        targets=tuple(gpu.target or "" for gpu in gpus),
        matrix_instructions=tuple(next(iter(sorted(ASYNC_MATRIX_INSTRUCTIONS & kind.instructions)), "") for kind in kinds),
        peaks={unit: _column([peak[unit] for peak in peaks]) for unit in UNITS},
        clocked_peaks={unit: _column([peak[unit] * boost for _, peak, boost in by_rate]) for unit in UNITS},
        sustained_peaks={
            unit: _column([peak[unit] * boost * _sustained_share(*row, boost, unit) for row, peak, boost in by_gpu])
            for unit in UNITS
        },
        sustained_rates={unit: _column([_sustained_rate(*row, unit) for row in by_rate]) for unit in UNITS},
        sm_rate_vs_reference={unit: _column([_sm_rate_vs(reference, *row, unit) for row in rows]) for unit in UNITS},
        sm_rates={unit: _column([_sm_rate(*row, clock, unit) for row, clock in by_clock]) for unit in UNITS},
        native={unit: _column([float(_has_unit(gpu, unit)) for gpu in gpus]) for unit in UNITS},
        matrix_units=_column([float("tensor-cores" in gpu.supports) for gpu in gpus]),
        matrix_convolutions=_column([float(_has_matrix_convolutions(*row)) for row in rows]),
        dot_product_share=_column([kind.dot_product_share for kind in kinds]),
        winograd=_column([float(bool(kind.winograd)) for kind in kinds]),
        bulk_copies=_column([float("tma" in kind.instructions) for kind in kinds]),
        async_matrix=_column([float(not ASYNC_MATRIX_INSTRUCTIONS.isdisjoint(kind.instructions)) for kind in kinds]),
        matrix_rows=_column(
            [max(MATRIX_ROWS.get(one, MATRIX_ROWS_OTHERS) for one in ("", *kind.instructions)) for kind in kinds]
        ),
        bandwidth=_column([float(gpu.memory_bandwidth) for gpu in gpus]),
        pcie=_column([_pcie_rate(gpu) for gpu in gpus]),
        sms=_column([_sms(*row) for row in rows]),
        l2=_column([float(gpu.l3_bytes or gpu.l2_bytes or kind.l2_kib * 1024) for gpu, kind in rows]),
        clock=_column(clocks),
        latency=_column([max(reference.clock_mhz * 1e6 / clock, 1.0) for clock in clocks]),
        tdp=_column([float(gpu.tdp_watts or inf) for gpu in gpus]),
        fp32_pj=_column([kind.fp32_pj for kind in kinds]),
        fp16_pj=_column([kind.fp16_pj for kind in kinds]),
    )


def _pcie_rate(gpu: Gpu) -> float:
    """Return the bytes/s that copies from host memory achieve: 80% of the PCIe link (assumed), of a 3.0 x16 link if unknown."""
    if gpu.segment == "soc":
        return float(gpu.memory_bandwidth)
    generation, width = (float(gpu.pcie.generation), gpu.pcie.lanes) if gpu.pcie else (3.0, 16)
    return float(PCIE_SHARE * PCIE3_LANE * 2.0 ** (generation - 3.0) * width)


def _peaks(gpu: Gpu, kind: Architecture) -> dict[str, float]:
    """Return the FLOP/s of each arithmetic unit, or of the unit that emulates it on this GPU.

    >>> from whichgpu.catalog.store import Catalog
    >>> v100, p4 = (Catalog().gpu_by_id[name] for name in ("v100-pcie-32gb", "p4"))
    >>> _peaks(v100, architecture_of(v100))["bf16"] == v100.peaks["fp32"]
    True
    >>> _peaks(p4, architecture_of(p4))["fp16"] == p4.peaks["fp32"]
    True

    CDNA's GEMMs run in fp32 on matrix cores, at twice the vector peak.

    >>> mi210 = Catalog().gpu_by_id["mi210"]
    >>> _peaks(mi210, architecture_of(mi210))["fp32"] / mi210.peaks["fp32"]
    2.0
    """
    has = gpu.peaks
    half = has.get("bf16") or has.get("fp8", 0) / 2 or has.get("int8", 0) / 2 or has.get("fp4", 0) / 4
    fp32 = float(
        has.get("fp32", 0) * kind.fp32_matrix_ratio
        or has.get("bf16_plain")
        or kind.core_tflops * 1e12 * (gpu.sms or 0)
        or half / 8
        or nan
    )
    # GP10x computes fp16 in fp32 (its fp16 unit has 1/64 of the rate); without bf16 units GEMMs run in fp32 after a cast.
    fp16 = float(has.get("fp16") or has.get("bf16") or (half if "fp32" not in has else 0) or fp32)
    bf16 = float(has.get("bf16") or (half if "fp32" not in has else 0) or fp32)
    best = max(bf16, fp16)  # Weights below 16 bits are dequantised to the faster of the two.
    return {
        "fp64": float(has.get("fp64_tensor") or has.get("fp64") or fp32 / 64),
        "fp32": fp32,
        "tf32": float(has.get("tf32") or fp32),
        "bf16": bf16,
        "fp16": fp16,
        "fp16_fp16acc": float(has.get("fp16_fp16acc") or fp16),
        "fp8": float(has.get("fp8") or best),
        "fp4": float(has.get("fp4") or best),
        # Volta's int8 dot products (dp4a) are slower than its tensor cores in fp16; Pascal has nothing faster. If no rate
        # is known `best` is NaN, and max() returns its first argument.
        "int8": max(best, float(has.get("int8") or 0.0)),
    }


def _has_unit(gpu: Gpu, unit: str) -> bool:
    """Whether GEMMs use a GPU's own unit for a type; int8 slower than 16 bits (V100, B300) is dequantised instead."""
    has = gpu.peaks
    return unit in has and (unit != "int8" or has["int8"] >= max(has.get("fp16", 0), has.get("bf16", 0)))


def _has_matrix_convolutions(gpu: Gpu, kind: Architecture) -> bool:
    return "tensor-cores" in gpu.supports if kind.matrix_convolutions is None else kind.matrix_convolutions


def _stated_clock(gpu: Gpu, kind: Architecture) -> float:
    return float(gpu.tensor_clock_hz or gpu.boost_clock_hz or kind.clock_mhz * 1e6)


def _sms(gpu: Gpu, kind: Architecture) -> float:
    stated = gpu.sms if gpu.vendor in VENDORS_WITH_SMS else None
    return float(stated or kind.sms)


def _boost(gpu: Gpu, kind: Architecture, clock: float) -> float:
    """Return the ratio of sustained to stated clock, at least 1: desktop cards raise it as far as power and heat allow."""
    powered = (gpu.tdp_watts or inf) > LOW_POWER_WATTS
    desktop = gpu.segment in OVERCLOCKED_SEGMENTS and gpu.form_factor == "pcie" and REFERENCE_COOLER not in gpu.id
    return max(kind.sustained_clock_mhz * 1e6 / clock, 1.0) if desktop and powered else 1.0


def _sustained_rate(kind: Architecture, peaks: Mapping[str, float], boost: float, unit: str) -> float:
    return peaks[unit] * boost * (kind.dual_issue_share if unit in ("fp32", "tf32") else 1.0)


def _sustained_share(gpu: Gpu, kind: Architecture, boost: float, unit: str) -> float:
    """Return the share of a unit's peak, times `boost`, that GEMMs sustain at the power limit; 1 where nothing was measured.

    An SM's clock, and so its rate, grows with the cube root of its power, as voltage has to grow with the clock. GeForce cards,
    which accumulate at half rate, sustain the little they state; so do units of more than 16 bits.

    >>> from whichgpu.catalog.store import Catalog
    >>> gpus = [Catalog().gpu_by_id[name] for name in ("h100-sxm", "h100-pcie", "h20-96gb", "rtx-4090")]
    >>> [round(_sustained_share(gpu, architecture_of(gpu), 1.0, "bf16"), 2) for gpu in gpus]
    [0.8, 0.76, 1.0, 1.0]
    """
    full_rate = _has_unit(gpu, unit) and "fp16_fp16acc" not in gpu.peaks and (UNITS[unit].rate_vs_fp16 or 0.0) >= 1.0
    peak = max(gpu.peaks.get("bf16", 0), gpu.peaks.get("fp16", 0))
    if not (full_rate and peak and gpu.tdp_watts and kind.sustained_tflops):
        return 1.0
    sms = _sms(gpu, kind) / kind.sustained_sms
    power = gpu.tdp_watts / kind.sustained_watts / sms
    return min(kind.sustained_tflops * 1e12 * sms * float(power ** (1 / 3)) / (peak * boost), 1.0)


def _sm_rate_vs(reference: Architecture, gpu: Gpu, kind: Architecture, unit: str) -> float:
    """Return the ratio of an SM's FLOPs per clock to the reference's, at most 1; halved if fp32 accumulation is half rate.

    The rate at which registers and shared memory feed an SM has not grown with its arithmetic units, so tiles on slower SMs lose
    less time to loading than tiles on the reference.
    """
    per_clock = _sm_rate(gpu, kind, 1.0, unit)
    if "fp16_fp16acc" in gpu.peaks and unit in ("tf32", "bf16", "fp16"):
        per_clock /= 2
    single, half = reference.fp32_flops_per_clock or inf, reference.fp16_flops_per_clock or inf
    if (rate := UNITS[unit].rate_vs_fp16) is not None and _has_unit(gpu, unit):
        reference_rate = half * rate
    else:
        reference_rate = half if _emulated_in_fp16(gpu, unit) else single
    return min(per_clock / reference_rate, 1.0)


def _sm_rate(gpu: Gpu, kind: Architecture, clock: float, unit: str) -> float:
    """Return the FLOP/s of one SM; infinite if its FLOPs per clock are unknown, so that only the GPU's peak limits it.

    The rate does not depend on the number of SMs, so that more SMs never slow down a GEMM of few tiles.
    """
    single, half = kind.fp32_flops_per_clock, kind.fp16_flops_per_clock
    if single is None or half is None:
        return inf
    if (rate := UNITS[unit].rate_vs_fp16) is not None and (_has_unit(gpu, unit) or "fp32" not in gpu.peaks):
        return half * rate * clock
    return (half if _emulated_in_fp16(gpu, unit) else single * kind.dual_issue_share) * clock


def _emulated_in_fp16(gpu: Gpu, unit: str) -> bool:
    return "fp16" in gpu.peaks and unit in ("fp8", "fp4", "int8", "fp16", "fp16_fp16acc")


def _take_places(value: Any, places: Sequence[int]) -> Any:
    """Return the values of the GPUs at indices `places` of a column, or of each column of a mapping."""
    if isinstance(value, dict):
        return {unit: _take_places(column, places) for unit, column in value.items()}
    if isinstance(value, tuple):
        return tuple(value[place] for place in places)
    return value[places.start : places.stop] if isinstance(places, range) else value[places]


def _column(values: Sequence[float]) -> Array:
    return np.asarray(values, dtype=np.float64)[:, None, None]
