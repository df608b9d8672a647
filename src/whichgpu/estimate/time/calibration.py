"""Calibration of step times: multipliers of each term by engine, software year, architecture and GPU; and 90% ranges.

`make refit` writes `data/corrections.csv` and `data/calibration.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from whichgpu.catalog.architecture import architecture_of
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.fitted_corrections import CorrectionTables, Nearness, generation, read_corrections
from whichgpu.estimate.time.terms import TERMS
from whichgpu.workload.precisions import PRECISION_BY_NAME

if TYPE_CHECKING:
    import numpy as np

    from whichgpu.catalog.gpu import Gpu

DATA_FOLDER = Path(__file__).parent / "data"

Tier = Literal["measured", "imported", "gpu", "generation", "other", "none"]  # the first two: see `own_corrections`
TIER_BY_NEARNESS: Mapping[Nearness, Tier] = {"same": "gpu", "kin": "generation", "far": "other"}
UNMEASURED_LOG_RANGE = (-0.7, 1.0)  # assumed if nothing of a vendor was measured: from half to nearly three times
MEASURED_VENDORS = ("nvidia", "amd")
GENERATION_STEPS = ("prefill", "decode", "generate")
MIN_GENERATIONS, MIN_GPUS = 3, 5  # an engine measured on fewer says little of other GPUs
LOW_POWER_WATTS = 80  # a card with this limit or less cannot sustain its clocks

# A level is a way of grouping steps whose groups have their own multipliers, the most general first. Its value lists the fields
# of `CorrectionKey` that name a group.
LEVELS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "style": ("style",),
    "era": ("style", "year"),
    "engine": ("engine",),
    "year": ("engine", "year"),
    "task": ("engine", "task"),
    "architecture": ("architecture",),
    "generation": ("generation",),
    "generation-unit": ("generation", "unit"),
    "generation-task": ("generation", "task"),
    "build": ("build",),
    "vendor-engine": ("vendor", "engine"),
    "chip": ("chip",),
}
YEARLY_LEVELS = ("era", "year")  # between their groups, a year that was not measured is interpolated


@dataclass(frozen=True, slots=True)
class CorrectionKey:
    """Facts that select the corrections of a step on a GPU."""

    engine: str
    year: int
    task: str  # train, forward, prefill, decode, generate
    unit: str
    gpu: str
    architecture: str
    generation: str  # architecture and compute capability: Ampere of data centres differs from that of desktops
    build: str  # consumer, workstation, datacenter, or low-power: how far clocks go above or below the stated ones
    chip: str  # variants of a chip share measurements, so that the better variant stays the faster one
    vendor: str

    @property
    def style(self) -> str:
        """The engine's style of launching and fusing kernels: framework, compiled, serving."""
        return engine_record(self.engine).style

    def group(self, level: str) -> str:
        """Return the name of this key's group at a level."""
        return "/".join(str(getattr(self, word)) for word in LEVELS[level])


@dataclass(frozen=True, slots=True)
class Calibration(CorrectionTables):
    """Corrections of a step on one GPU."""

    multiplier_cache: dict[CorrectionKey, list[float]] = field(default_factory=dict, compare=False)

    def log_multiplier(self, key: CorrectionKey, term: str) -> float:
        """Return a term's log multiplier, summed over levels; years between measured ones are interpolated."""
        return sum(values.get(term, 0.0) for values in self._levels(key))

    def _levels(self, key: CorrectionKey) -> list[Mapping[str, float]]:
        """Log multipliers by term that each level has for this key."""
        levels: list[Mapping[str, float]] = []
        for level, groups in self.multipliers.items():
            if level in YEARLY_LEVELS:
                levels.append(_interpolate_year(groups, key.style if level == "era" else key.engine, key.year))
            else:
                levels.append(groups.get(key.group(level), {}))
        return levels

    def tier(self, engine: str, gpu: Gpu, kind: str = "", precision: str = "") -> Tier:
        """Return how close the measurements are: this GPU and engine, its generation, other GPUs, or none of the vendor.

        The tier is "other" if the generation was not measured at this bit width, the engine not in this kind of step, or the
        engine on too few generations to say much of the next. "gpu" needs the engine measured on it at this bit width.
        """
        if gpu.vendor not in MEASURED_VENDORS:
            return "none"
        unmeasured_width = precision and not self._measured_width(gpu, precision)
        generations = self._generations(engine)
        if unmeasured_width or (kind and not self._measured_step(engine, kind)):
            return "other"
        if len(generations) < MIN_GENERATIONS and generation(gpu) not in generations:
            return "other"
        nearest = TIER_BY_NEARNESS[self.nearness(engine, gpu)]
        bits = self.engine_evidence(engine).get("bits", {}).get(gpu.id, ())
        return "generation" if nearest == "gpu" and precision and PRECISION_BY_NAME[precision].bits not in bits else nearest

    def _generations(self, engine: str) -> Sequence[str]:
        """Generations of the GPUs an engine was measured on."""
        generations: Sequence[str] = self.engine_evidence(engine).get("generations", ())
        return generations

    def _measured_width(self, gpu: Gpu, precision: str) -> bool:
        """Whether this bit width was measured on a GPU's generation; emulated bf16 does not count."""
        emulated = precision.endswith("bf16") and "bf16" not in gpu.peaks
        return not emulated and PRECISION_BY_NAME[precision].bits in self.evidence.get("bits", {}).get(generation(gpu), ())

    def _measured_step(self, engine: str, kind: str) -> bool:
        """Whether this kind of step was measured under an engine; any generation step covers prefill and decode."""
        tasks = self.engine_evidence(engine).get("tasks", {})
        return kind in tasks or (kind in GENERATION_STEPS and any(one in tasks for one in GENERATION_STEPS))

    def log_range(self, tier: Tier, kind: str, gpu: str = "", engine: str = "") -> tuple[float, float]:
        """Return the 90% range of a kind of step as log factors: under this engine, under any, or of any kind.

        An engine measured on few generations says little of others: there the range covers that of all engines too; if it was
        measured on few GPUs, that of any step.
        """
        table = self.ranges.get(tier, {})
        any_step = table.get("any", UNMEASURED_LOG_RANGE)
        all_engines = table.get(kind, any_step)
        low, high = table.get(f"{engine}/{kind}", all_engines)
        if tier == "other" and len(self._generations(engine)) < MIN_GENERATIONS:
            low, high = min(low, all_engines[0]), max(high, all_engines[1])
        if tier == "other" and len(self.engine_evidence(engine).get("gpus", ())) < MIN_GPUS:
            low, high = min(low, any_step[0]), max(high, any_step[1])
        return low, high

    def factors(self, keys: Sequence[CorrectionKey]) -> np.ndarray:
        """Return the multipliers, [terms, keys]."""
        import numpy as np

        for key in keys:
            if key not in self.multiplier_cache:
                levels = self._levels(key)
                self.multiplier_cache[key] = [exp(sum(values.get(term, 0.0) for values in levels)) for term in TERMS]
        return np.array([self.multiplier_cache[key] for key in keys]).T


def _interpolate_year(groups: Mapping[str, Mapping[str, float]], name: str, year: int) -> Mapping[str, float]:
    """Return a year's own numbers, or interpolate between its neighbours'; beyond the ends, take the nearest."""
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
    """Return the key of a step on a GPU; architectures without measurements use their kin's."""
    row = architecture_of(gpu)
    kin = row.kin if gpu.segment in (row.kin_for or (gpu.segment,)) else None
    architecture, kind = kin or (gpu.architecture, generation(gpu))
    return CorrectionKey(engine, year, task, unit, gpu.id, architecture, kind, power_class(gpu), gpu.chip or gpu.id, gpu.vendor)


def power_class(gpu: Gpu) -> str:
    """Return the class of clocks and power that a card is built for: its segment, or low-power."""
    return "low-power" if (gpu.tdp_watts or LOW_POWER_WATTS + 1) <= LOW_POWER_WATTS else gpu.segment


@cache
def load_calibration(folder: Path = DATA_FOLDER) -> Calibration:
    """Read the shipped calibration."""
    return read_corrections(folder, Calibration)
