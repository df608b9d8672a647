"""Calibration of step times: multipliers of each time term by engine, software year, architecture and GPU.

`make refit` writes `data/corrections.csv` and `data/calibration.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from whichgpu.catalog.architecture import architecture_named, architecture_of
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.confidence.axes import generation
from whichgpu.estimate.confidence.spread import Confidence
from whichgpu.estimate.time.fitted_corrections import CorrectionTables, read_corrections
from whichgpu.estimate.time.rooflines import roofline_factors, roofline_sources
from whichgpu.estimate.time.terms import KERNEL_TERMS, TERMS

if TYPE_CHECKING:
    import numpy as np

    from whichgpu.catalog.gpu import Gpu

DATA_FOLDER = Path(__file__).parent / "data"

GENERATION_STEPS = ("prefill", "decode", "generate")
# Year in which serving engines got kernels for AMD: skinny GEMMs, custom all-reduce (vllm issue 14755), AITER (ROCm/vllm 629).
ROCM_TUNED_YEAR = 2025
# Generations and chips that share the corrections of others: Blackwell Ultra runs the kernels of Blackwell (targets sm_100f cover
# both) on as many SMs and more memory, so that differences between steps measured on one of them must not make it the slower.
SAME_KERNELS = {"Blackwell 10.3": "Blackwell 10.0", "GB110": "GB100"}
LOW_POWER_WATTS = 80  # watts; a card with this power limit or less cannot sustain its clocks

# Fields of `CorrectionKey` that select the multipliers at each level, most general level first; those of all levels apply (their
# logarithms add up).
LEVELS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "style": ("style",),
    "era": ("style", "year"),
    "engine": ("engine",),
    "year": ("engine", "year"),
    "task": ("engine", "task"),
    "platform": ("platform",),
    "architecture": ("architecture",),
    "generation": ("generation",),
    "generation-unit": ("generation", "unit"),
    "generation-task": ("generation", "task"),
    "build": ("build",),
    "vendor-engine": ("vendor", "engine"),
    "chip": ("chip",),
}
YEARLY_LEVELS = ("era", "year")  # levels at which an unmeasured year is interpolated between measured ones


class CorrectionKey(msgspec.Struct, frozen=True):
    """Facts about a step on a GPU (engine, year, task, chip, …) that select the fitted multipliers of its estimated time."""

    engine: str
    year: int
    task: str  # train, forward, prefill, decode, generate
    unit: str  # class of the arithmetic unit that does most FLOPs: half, tf32, single, narrow
    gpu: str
    architecture: str
    generation: str  # architecture and compute capability (sm_80 and sm_86 are both Ampere)
    build: str  # consumer, workstation, datacenter or low-power, which decides how far clocks deviate from stated ones
    chip: str  # chip name; its variants share corrections, so that the better variant stays the faster one
    vendor: str

    @property
    def style(self) -> str:
        """How the engine launches and fuses kernels: framework, compiled or serving."""
        return engine_record(self.engine).style

    @property
    def platform(self) -> str:
        """Name of the kernel libraries below a serving engine if they lag behind those on NVIDIA GPUs, else empty."""
        untuned = self.vendor == "amd" and self.year < ROCM_TUNED_YEAR and self.style == "serving"
        return f"rocm-before-{ROCM_TUNED_YEAR}" if untuned else ""

    @property
    def roofline(self) -> str:
        """Family of an accelerator (tpu, neuron, gaudi) to which no multiplier fitted on GPUs applies; empty for GPUs."""
        return architecture_named(self.architecture).roofline

    def of_term(self, term: str) -> CorrectionKey:
        """Return the facts that select the multiplier of a time term: of kernels, those of the engine whose kernels run."""
        other = engine_record(self.engine).kernels_of
        return replace(self, engine=other) if other and term in KERNEL_TERMS else self

    def applies(self, level: str) -> bool:
        """Whether corrections at a level (a key of LEVELS, such as `engine`) apply to this step; all but `platform` always do."""
        return level != "platform" or bool(self.platform)

    def group(self, level: str) -> str:
        """Return this step's correction group at a level: the values of the level's fields, joined by `/`, as in `vllm/2025`."""
        return "/".join(str(getattr(self, word)) for word in LEVELS[level])


class Calibration(CorrectionTables, frozen=True, eq=False):
    """Fitted multipliers that correct the modelled time of a step on a GPU."""

    multiplier_cache: dict[CorrectionKey, list[float]] = msgspec.field(default_factory=dict)

    def log_multiplier(self, key: CorrectionKey, term: str) -> float:
        """Return the log multiplier of a time term such as `gemm` (GEMM seconds): the sum over levels (engine, year, chip, …)."""
        return sum(values.get(term, 0.0) for values in self._levels(key.of_term(term)))

    def _levels(self, key: CorrectionKey) -> list[Mapping[str, float]]:
        """Return, for each level of correction (engine, year, chip, …), the log multipliers of this step by time term."""
        levels: list[Mapping[str, float]] = []
        for level, groups in self.multipliers.items():
            if level in YEARLY_LEVELS:
                levels.append(_interpolate_year(groups, key.style if level == "era" else key.engine, key.year))
            else:
                levels.append(groups.get(key.group(level), {}))
        return levels

    def _multipliers(self, key: CorrectionKey) -> list[float]:
        """Return the multiplier of each time term for a step, in order of TERMS."""
        keys = [key.of_term(term) for term in TERMS]
        levels = {one: self._levels(one) for one in dict.fromkeys(keys)}
        return [exp(sum(values.get(term, 0.0) for values in levels[one])) for term, one in zip(TERMS, keys, strict=True)]

    def own_confidence(self, engine: str, gpu: str, kind: str) -> Confidence | None:
        """Return the confidence that the user's own measurements give to a kind of step on a GPU; None if there are none."""
        return None

    def sources_of(self, engine: str, gpu: str = "") -> tuple[str, ...]:
        """Return the names of the sources whose measurements a time on a GPU comes from, under this engine."""
        return (*roofline_sources(gpu), *CorrectionTables.sources_of(self, engine))

    def factors(self, keys: Sequence[CorrectionKey]) -> np.ndarray:
        """Return the multiplier of each time term (seconds of a class of operator or of host work), [terms, keys]."""
        import numpy as np

        for key in keys:
            if key not in self.multiplier_cache and key.roofline:
                self.multiplier_cache[key] = roofline_factors(key.roofline)
            elif key not in self.multiplier_cache:
                self.multiplier_cache[key] = self._multipliers(key)
        return np.array([self.multiplier_cache[key] for key in keys]).T


def _interpolate_year(groups: Mapping[str, Mapping[str, float]], name: str, year: int) -> Mapping[str, float]:
    """Return the log multipliers of an engine or style in a year: measured, else interpolated, else of the nearest year."""
    split = ((key.rpartition("/"), values) for key, values in groups.items())
    by_year = {int(measured): values for (whose, _, measured), values in split if whose == name}
    early = max((one for one in by_year if one <= year), default=None)
    late = min((one for one in by_year if one >= year), default=None)
    if early is None or late is None or early == late:
        nearest = late if early is None else early
        return {} if nearest is None else by_year[nearest]
    low, high = by_year[early], by_year[late]
    return {
        term: low.get(term, 0.0) + (high.get(term, 0.0) - low.get(term, 0.0)) * (year - early) / (late - early)
        for term in low.keys() | high.keys()
    }


def correction_key(gpu: Gpu, engine: str, year: int, task: str, unit: str) -> CorrectionKey:
    """Return the facts that select a step's fitted multipliers on a GPU; an unmeasured architecture uses a related one's.

    The steps of a serving engine share one key, so that a decode step takes as long alone as inside a served request.
    """
    if task in GENERATION_STEPS and engine_record(engine).style == "serving":
        task = "generate"
    row = architecture_of(gpu)
    kin = row.kin if gpu.segment in (row.kin_for or (gpu.segment,)) else None
    architecture, kind = kin or (gpu.architecture, generation(gpu))
    kind, chip = SAME_KERNELS.get(kind, kind), gpu.chip or gpu.id
    return CorrectionKey(
        engine, year, task, unit, gpu.id, architecture, kind, power_class(gpu), SAME_KERNELS.get(chip, chip), gpu.vendor
    )


def power_class(gpu: Gpu) -> str:
    """Return the class of clocks and power a card is built for: its market segment, or low-power."""
    return "low-power" if (gpu.tdp_watts or LOW_POWER_WATTS + 1) <= LOW_POWER_WATTS else gpu.segment


@cache
def load_calibration(folder: Path = DATA_FOLDER) -> Calibration:
    """Read the shipped calibration (fitted multipliers of step times) from a folder."""
    return read_corrections(folder, Calibration)
