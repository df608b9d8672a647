"""Corrections of multi-GPU steps by engine, year and link, fitted to measurements, and 90% ranges.

`make refit` writes `data/corrections.csv` and `data/calibration.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import exp
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from whichgpu.catalog.architecture import architecture_of
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.group.breakdown import TERMS
from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.group.fabric import Fabric
from whichgpu.estimate.time.calibration import GENERATION_STEPS
from whichgpu.estimate.time.fitted_corrections import CorrectionTables, Nearness, read_corrections
from whichgpu.estimate.time.rooflines import roofline_row, roofline_tier

DATA_FOLDER = Path(__file__).parent / "data"
Tier = Literal["group", "group-kin", "group-other", "none"]
ROOFLINE_TIERS: Mapping[str, Tier] = {"gpu": "group", "generation": "group-kin", "other": "group-other", "none": "none"}
TIERS: Mapping[Nearness, Tier] = {"same": "group", "kin": "group-kin", "far": "group-other"}
THREADS_SUFFIX = "-threads"
# Suffix of engines whose workers run step after step without a host call for each. Multipliers of links and waiting that were
# fitted to engines with such calls (vLLM of 2023 and 2024) do not apply to them.
OVERLAPPED_SUFFIX = "-overlapped"
# Multipliers on TPUs, Trainium and Inferentia, which have collectives of their own, so that those fitted on GPUs do not apply:
# chips at a fixed clock run one compiled program in lockstep, so no rank is slower than others.
TORUS_MULTIPLIERS = {"straggle": 0.0}
UNKNOWN_RANGE = (-0.8, 1.1)  # log factors of the 90% range if a tier was not measured (assumed)
# Fields of `GroupSetting` that select the multipliers at each level, most general level first; those of all levels apply.
LEVELS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "style": ("style",),
    "engine": ("engine",),
    "year": ("engine", "year"),
    "task": ("engine", "step"),
    "link": ("link",),
    "fabric": ("fabric",),
}


class GroupSetting(msgspec.Struct, frozen=True):
    """Properties of a multi-GPU step by which its fitted multipliers are looked up."""

    engine: str
    year: int
    task: str
    link: str  # nvswitch, cube-mesh, mesh, torus, pairs, pcie, pcie-host
    fabric: str  # link kind with its generation

    @property
    def step(self) -> str:
        """Step kind in the multipliers' key; "generate" for all steps of serving engines, since prefill and decode share them."""
        compiled = self.style in ("framework", "compiled", "threads")
        return "generate" if self.task in GENERATION_STEPS and not compiled else self.task

    @property
    def style(self) -> str:
        """How the engine launches and fuses kernels, such as "framework", "compiled", "threads" or "overlapped"."""
        if self.overlapped:
            return OVERLAPPED_SUFFIX.strip("-")
        return "threads" if self.engine.endswith(THREADS_SUFFIX) else engine_record(self.engine).style

    @property
    def overlapped(self) -> bool:
        """Whether the engine's workers run step after step without a call from the host for each."""
        return self.engine.endswith(OVERLAPPED_SUFFIX)

    def key(self, level: str) -> str:
        """Return the key of the multipliers at a level of LEVELS: at "year", engine and year joined by `/`.

        Levels without an engine or style have keys of their own for overlapped engines.
        """
        key = "/".join(str(getattr(self, name)) for name in LEVELS[level])
        return f"{key}{OVERLAPPED_SUFFIX}" if self.overlapped and level in ("all", "link", "fabric") else key


class GroupCalibration(CorrectionTables, frozen=True, eq=False):
    """Fitted multipliers of the seconds of multi-GPU steps, and the 90% ranges of the results."""

    cache: dict[GroupSetting, list[float]] = msgspec.field(default_factory=dict)  # multipliers in order of TERMS

    def log_multiplier(self, setting: GroupSetting, term: str) -> float:
        """Return the log of the multiplier named `term` in TERMS, summed over levels; an unmeasured year uses the nearest one."""
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
        """Return the fitted multipliers by name in TERMS (such as "latency"), each of shape [settings, 1]."""
        for setting in settings:
            if setting not in self.cache and setting.link == "torus":
                self.cache[setting] = [TORUS_MULTIPLIERS.get(term, 1.0) for term in TERMS]
            elif setting not in self.cache:
                self.cache[setting] = [exp(self.log_multiplier(setting, term)) for term in TERMS]
        multipliers = np.array([self.cache[setting] for setting in settings], dtype=np.float64)
        return {term: multipliers[:, index : index + 1] for index, term in enumerate(TERMS)}

    def tier(self, engine: str, gpu: Gpu, kind: str = "") -> Tier:
        """Return the evidence tier: this GPU measured in groups under this engine, a related GPU or other engine, or neither.

        For TPUs and other accelerators that are no GPUs, it depends on the kind of step and may be "none".
        """
        if family := architecture_of(gpu).roofline:
            return ROOFLINE_TIERS[roofline_tier(family, gpu.id, kind)]
        return TIERS[self.nearness(engine, gpu)]

    def log_factor_range(self, tier: Tier, task: str, gpu: str = "") -> tuple[float, float]:
        """Return the logs of the 90% range's ends relative to the estimate, for a task in an evidence tier."""
        if row := roofline_row(gpu, task):
            return row.low, row.high
        table = self.ranges.get(tier, {})
        low, high = table.get(task, table.get("any", UNKNOWN_RANGE))
        return low, high


def group_setting(fabric: Fabric, engine: str, year: int, task: str, threads: bool) -> GroupSetting:
    """Return the properties that select the multipliers of a step; `threads`: one process drives all GPUs (calibrated apart)."""
    suffix = THREADS_SUFFIX if threads else ""
    if not (threads or task == "train" or engine_record(engine, year).host.calls_workers):
        suffix = OVERLAPPED_SUFFIX
    return GroupSetting(f"{engine}{suffix}", year, task, fabric.kind, fabric.name)


NO_CORRECTIONS = GroupCalibration({}, {}, {}, {})


@cache
def load_group_calibration(folder: Path = DATA_FOLDER) -> GroupCalibration:
    """Read the fitted multipliers and 90% ranges of multi-GPU steps from a folder, by default the bundled ones."""
    return read_corrections(folder, GroupCalibration)
