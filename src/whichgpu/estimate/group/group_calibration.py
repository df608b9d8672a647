"""What was measured of groups, as corrections of their terms by engine, year and link; and ranges.

`make refit` writes `data/corrections.csv` and `data/calibration.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import exp
from pathlib import Path
from typing import Literal

import numpy as np

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.group.breakdown import TERMS
from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.group.fabric import Fabric
from whichgpu.estimate.time.fitted_corrections import CorrectionTables, Nearness, read_corrections

DATA_FOLDER = Path(__file__).parent / "data"
Tier = Literal["group", "group-kin", "group-other"]
TIERS: Mapping[Nearness, Tier] = {"same": "group", "kin": "group-kin", "far": "group-other"}
THREADS = "-threads"
UNKNOWN_SPREAD = (-0.8, 1.1)
# A level is a kind of group that may have its own multiplier of a term; the first is the most general.
LEVELS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "style": ("style",),
    "engine": ("engine",),
    "year": ("engine", "year"),
    "task": ("engine", "task"),
    "link": ("link",),
    "fabric": ("fabric",),
}


@dataclass(frozen=True, slots=True)
class GroupSetting:
    """What decides the corrections of a group's step."""

    engine: str
    year: int
    task: str
    link: str  # nvswitch, cube-mesh, mesh, pairs, pcie, pcie-host
    fabric: str  # with its generation

    @property
    def style(self) -> str:
        """How its engine launches and fuses."""
        return "threads" if self.engine.endswith(THREADS) else engine_record(self.engine).style

    def key(self, level: str) -> str:
        """The name of this setting's group at a level."""
        return "/".join(str(getattr(self, word)) for word in LEVELS[level])


@dataclass(frozen=True, slots=True)
class GroupCalibration(CorrectionTables):
    """Corrections of a group's step."""

    known: dict[GroupSetting, list[float]] = field(default_factory=dict, compare=False)  # multipliers already put together

    def log_multiplier(self, setting: GroupSetting, term: str) -> float:
        """The sum over levels; an engine's year that was not measured takes the nearest that was."""
        total = 0.0
        for level, groups in self.multipliers.items():
            key = setting.key(level)
            if level == "year" and key not in groups:
                years = [int(name.rpartition("/")[2]) for name in groups if name.rpartition("/")[0] == setting.engine]
                if not years:
                    continue
                key = f"{setting.engine}/{min(years, key=lambda year: abs(year - setting.year))}"
            total += groups.get(key, {}).get(term, 0.0)
        return total

    def factors(self, settings: Sequence[GroupSetting]) -> dict[str, Array]:
        """Multipliers of each term, [settings, 1]."""
        for setting in settings:
            if setting not in self.known:
                self.known[setting] = [exp(self.log_multiplier(setting, term)) for term in TERMS]
        found = np.array([self.known[setting] for setting in settings], dtype=np.float64)
        return {term: found[:, place : place + 1] for place, term in enumerate(TERMS)}

    def tier(self, engine: str, gpu: Gpu) -> Tier:
        """How near the measurements of groups are: this GPU under this engine, its kin or another engine, or others."""
        return TIERS[self.nearness(engine, gpu)]

    def spread(self, tier: Tier, task: str) -> tuple[float, float]:
        """The 90% range as log factors."""
        table = self.ranges.get(tier, {})
        low, high = table.get(task, table.get("any", UNKNOWN_SPREAD))
        return low, high


def group_setting(fabric: Fabric, engine: str, year: int, task: str, threads: bool) -> GroupSetting:
    """The setting of a step on a fabric; one process of threads is another thing than a process a GPU."""
    return GroupSetting(f"{engine}{THREADS}" if threads else engine, year, task, fabric.kind, fabric.name)


NO_CORRECTIONS = GroupCalibration({}, {}, {}, {})


@cache
def load_group_calibration(folder: Path = DATA_FOLDER) -> GroupCalibration:
    """The fitted numbers."""
    return read_corrections(folder, GroupCalibration)
