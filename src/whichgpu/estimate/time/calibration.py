"""What was measured, as corrections: multipliers of each term by engine, software year, architecture and GPU; and ranges.

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
from whichgpu.estimate.time.fitted_corrections import FittedCorrections, Nearness, generation, read_corrections
from whichgpu.estimate.time.terms import TERMS
from whichgpu.workload.precisions import PRECISION_BY_NAME

if TYPE_CHECKING:
    import numpy as np

    from whichgpu.catalog.gpu import Gpu

DATA_FOLDER = Path(__file__).parent / "data"

Tier = Literal["measured", "imported", "gpu", "generation", "other", "none"]  # the first two: see `own`
TIER_BY_NEARNESS: Mapping[Nearness, Tier] = {"same": "gpu", "kin": "generation", "far": "other"}
UNMEASURED_LOG_RANGE = (-0.7, 1.0)  # log factors where nothing of a maker was measured: from half to nearly three times
MEASURED_VENDORS = ("nvidia", "amd")
GENERATION_STEPS = ("prefill", "decode", "generate")
MIN_GENERATIONS, MIN_GPUS = 3, 5  # generations; GPUs
LOW_POWER_WATTS = 80  # watts at or below which a card cannot hold its clocks

# A level is a kind of group that may have its own multiplier of a term; the first is the most general.
# Each is spelled as the words of a `CorrectionKey` that make its key.
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


YEARLY_LEVELS = ("era", "year")  # groups of years, between which a year not measured is interpolated


@dataclass(frozen=True, slots=True)
class CorrectionKey:
    """What decides which corrections apply to a step."""

    engine: str
    year: int
    task: str  # train, forward, prefill, decode, generate
    unit: str
    gpu: str
    architecture: str
    generation: str  # architecture and compute capability: the Ampere of data centres is not that of desktops
    build: str  # consumer, workstation, datacenter, or low-power: how far clocks go above or below the stated ones
    chip: str  # variants of one chip share what was measured of any, so that the better variant stays the faster one
    vendor: str

    @property
    def style(self) -> str:
        """How its engine launches and fuses."""
        return engine_record(self.engine).style

    def key(self, level: str) -> str:
        """The name of this setting's group at a level."""
        return "/".join(str(getattr(self, word)) for word in LEVELS[level])


@dataclass(frozen=True, slots=True)
class Calibration(FittedCorrections):
    """Corrections of a step on one GPU."""

    known: dict[CorrectionKey, list[float]] = field(default_factory=dict, compare=False)  # multipliers already put together

    def log_multiplier(self, setting: CorrectionKey, term: str) -> float:
        """The sum over levels; years between known ones are interpolated."""
        return sum(values.get(term, 0.0) for values in self._levels(setting))

    def _levels(self, setting: CorrectionKey) -> list[Mapping[str, float]]:
        """By term, what each level says of this setting."""
        found: list[Mapping[str, float]] = []
        for level, groups in self.multipliers.items():
            if level in YEARLY_LEVELS:
                found.append(_by_year(groups, setting.style if level == "era" else setting.engine, setting.year))
            else:
                found.append(groups.get(setting.key(level), {}))
        return found

    def tier(self, engine: str, gpu: Gpu, kind: str = "", precision: str = "") -> Tier:
        """How near the measurements are: this GPU under this engine, its kin or another engine, others, or none.

        Where nothing of its generation was measured in numbers so wide, or no such step under the engine, only others were; nor
        does an engine known on a generation or two tell of the next by what others do there. A GPU itself was measured where the
        engine was on it in such numbers.
        """
        if gpu.vendor not in MEASURED_VENDORS:
            return "none"
        strange = (precision and not self._known(gpu, precision)) or (kind and not self._done(engine, kind))
        known = self._generations(engine)
        if strange or (len(known) < MIN_GENERATIONS and generation(gpu) not in known):
            return "other"
        nearest = TIER_BY_NEARNESS[self.nearness(engine, gpu)]
        told = self.evidence.get("engines", {}).get(engine, {}).get("bits", {}).get(gpu.id, ())
        return "generation" if nearest == "gpu" and precision and PRECISION_BY_NAME[precision].bits not in told else nearest

    def _generations(self, engine: str) -> Sequence[str]:
        """Of the GPUs an engine was measured on."""
        found: Sequence[str] = self.evidence.get("engines", {}).get(engine, {}).get("generations", ())
        return found

    def _known(self, gpu: Gpu, precision: str) -> bool:
        """Whether numbers of this width were measured on a GPU's generation; bf16 without units for it is another thing."""
        emulated = precision.endswith("bf16") and "bf16" not in gpu.peaks
        return not emulated and PRECISION_BY_NAME[precision].bits in self.evidence.get("bits", {}).get(generation(gpu), ())

    def _done(self, engine: str, kind: str) -> bool:
        """Whether steps of a kind were measured under an engine; answers as a whole tell of their prompts and tokens."""
        tasks = self.evidence.get("engines", {}).get(engine, {}).get("tasks", {})
        return kind in tasks or (kind in GENERATION_STEPS and any(one in tasks for one in GENERATION_STEPS))

    def log_range(self, tier: Tier, kind: str, gpu: str = "", engine: str = "") -> tuple[float, float]:
        """The 90% range of a kind of step as log factors: under this engine, under any, or of any kind.

        An engine measured on a few generations tells little of others: there the range of all engines counts, too; and of one
        measured on a few GPUs, that of any step.
        """
        table = self.ranges.get(tier, {})
        all_engines = table.get(kind, table.get("any", UNMEASURED_LOG_RANGE))
        low, high = table.get(f"{engine}/{kind}", all_engines)
        if tier == "other" and len(self._generations(engine)) < MIN_GENERATIONS:
            low, high = min(low, all_engines[0]), max(high, all_engines[1])
        if tier == "other" and len(self.evidence.get("engines", {}).get(engine, {}).get("gpus", ())) < MIN_GPUS:
            any_step = table.get("any", UNMEASURED_LOG_RANGE)
            low, high = min(low, any_step[0]), max(high, any_step[1])
        return low, high

    def factors(self, settings: Sequence[CorrectionKey]) -> np.ndarray:
        """Multipliers, [terms, settings]."""
        import numpy as np

        for setting in settings:
            if setting not in self.known:
                levels = self._levels(setting)
                self.known[setting] = [exp(sum(values.get(term, 0.0) for values in levels)) for term in TERMS]
        return np.array([self.known[setting] for setting in settings]).T


def _by_year(groups: Mapping[str, Mapping[str, float]], name: str, year: int) -> Mapping[str, float]:
    """The year's own numbers, or between its neighbours'; beyond the ends the nearest."""
    named = ((key.rpartition("/"), values) for key, values in groups.items())
    known = {int(known): values for (whose, _, known), values in named if whose == name}
    early = max((one for one in known if one <= year), default=None)
    late = min((one for one in known if one >= year), default=None)
    if early is None or late is None or early == late:
        nearest = late if early is None else early
        return {} if nearest is None else known[nearest]
    low, high = known[early], known[late]
    return {
        term: low.get(term, 0.0) + (high.get(term, 0.0) - low.get(term, 0.0)) * (year - early) / (late - early)
        for term in low.keys() | high.keys()
    }


def correction_key(gpu: Gpu, engine: str, year: int, task: str, unit: str) -> CorrectionKey:
    """The setting of a step on a GPU."""
    row = architecture_of(gpu)
    kin = row.kin if gpu.segment in (row.kin_for or (gpu.segment,)) else None
    architecture, kind = kin or (gpu.architecture, generation(gpu))
    return CorrectionKey(engine, year, task, unit, gpu.id, architecture, kind, power_class(gpu), gpu.chip or gpu.id, gpu.vendor)


def power_class(gpu: Gpu) -> str:
    """What clocks and power a card is built for."""
    return "low-power" if (gpu.tdp_watts or LOW_POWER_WATTS + 1) <= LOW_POWER_WATTS else gpu.segment


@cache
def load_calibration(folder: Path = DATA_FOLDER) -> Calibration:
    """The fitted numbers."""
    return read_corrections(folder, Calibration)
