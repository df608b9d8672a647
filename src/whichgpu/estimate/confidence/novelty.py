"""On which axes a question is new: what was never measured under its engine, and how far it lies beyond what was measured.

`make refit` writes what was measured to `data/measured.csv`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import log2
from pathlib import Path

from whichgpu.base.bundled_data import data_rows
from whichgpu.estimate.confidence.axes import Axes

MEASURED_FILE = Path(__file__).parent / "data" / "measured.csv"
ANY_ENGINE = ""
LEVELS = ("year", "gpu", "generation", "maker", "family", "precision", "layout", "regime")  # axes by name of their levels
SPANS = ("batch", "context")  # axes with a measured span
ON_GENERATION = "precision on generation"  # number formats measured on a generation of GPUs, under any engine
SHARED_AXES = ("gpu", "generation", "family", "layout")  # axes on which measurements under other engines help
ANYWHERE = " anywhere"  # suffix: not measured under any engine either
MAX_YEARS, MAX_DOUBLINGS = 3.0, 4.0  # distances beyond these count no more

Key = tuple[str, str, str]  # engine, task, axis


class Measured:
    """What was measured, by engine, task and axis: each level with the sources that measured it, and spans of sizes."""

    def __init__(self, levels: Mapping[Key, Mapping[str, frozenset[str]]], spans: Mapping[Key, tuple[int, int]]) -> None:
        self.levels, self.spans = levels, spans

    @classmethod
    def of(cls, measurements: Iterable[tuple[Axes, str]]) -> Measured:
        """Return what was measured, from the axes of all measurements and their sources."""
        levels: dict[Key, dict[str, set[str]]] = {}
        spans: dict[Key, tuple[int, int]] = {}
        for one, source in measurements:
            pair = f"{one.generation}/{one.precision}"
            levels.setdefault((ANY_ENGINE, "", ON_GENERATION), {}).setdefault(pair, set()).add(source)
            for engine in (one.engine, ANY_ENGINE):
                for axis in LEVELS:
                    sources_by_level = levels.setdefault((engine, one.task, axis), {})
                    sources_by_level.setdefault(str(getattr(one, axis)), set()).add(source)
                for axis in SPANS:
                    key, size = (engine, one.task, axis), getattr(one, axis)
                    low, high = spans.get(key, (size, size))
                    spans[key] = min(low, size), max(high, size)
        return cls(
            {key: {name: frozenset(one) for name, one in sources_by_level.items()} for key, sources_by_level in levels.items()},
            spans,
        )

    def rows(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield the lines of the table: engine, task, axis, level, and its sources; a span's level is its two ends."""
        for (engine, task, axis), sources_by_level in sorted(self.levels.items()):
            for level, sources in sorted(sources_by_level.items()):
                yield engine, task, axis, level, " ".join(sorted(sources))
        for (engine, task, axis), (low, high) in sorted(self.spans.items()):
            yield engine, task, axis, f"{low} {high}", ""

    def sources(self, axes: Axes, axis: str) -> frozenset[str]:
        """Return the sources that measured a axes's level of an axis under its engine, in its task."""
        sources_by_level = self.levels.get((axes.engine, axes.task, axis), {})
        return sources_by_level.get(str(getattr(axes, axis)), frozenset())

    def new_on(self, axes: Axes) -> dict[str, float]:
        """Return the axes on which a axes is new, with how far: 1, or years of software, or doublings of batch or context.

        An engine that was never measured at a task is compared with all engines on the other axes.
        """
        years = self.levels.get((axes.engine, axes.task, "year"), {})
        engine = axes.engine if years else ANY_ENGINE
        new = {} if years else {"engine": 1.0}
        if years and (away := min(abs(int(year) - axes.year) for year in years)):
            new["version"] = min(float(away), MAX_YEARS)
        for axis in LEVELS[1:]:
            level = getattr(axes, axis)
            if level not in self.levels.get((engine, axes.task, axis), {}):
                new[axis] = 1.0
                if axis in SHARED_AXES and level not in self.levels.get((ANY_ENGINE, axes.task, axis), {}):
                    new[axis + ANYWHERE] = 1.0
        if f"{axes.generation}/{axes.precision}" not in self.levels.get((ANY_ENGINE, "", ON_GENERATION), {}):
            new[ON_GENERATION] = 1.0
        for axis in SPANS:
            low, high = self.spans.get((engine, axes.task, axis), (1, 1))
            size = max(1, getattr(axes, axis))
            if (beyond := max(log2(max(1, low) / size), log2(size / max(1, high)))) > 0:
                new[axis] = min(beyond, MAX_DOUBLINGS)
        return new


@cache
def load_measured(path: Path = MEASURED_FILE) -> Measured:
    """Read what was measured from the bundled table."""
    levels: dict[Key, dict[str, frozenset[str]]] = {}
    spans: dict[Key, tuple[int, int]] = {}
    for row in data_rows(path):
        key = row["engine"], row["task"], row["axis"]
        if row["axis"] in SPANS:
            low, high = row["level"].split()
            spans[key] = int(low), int(high)
        else:
            levels.setdefault(key, {})[row["level"]] = frozenset(row["sources"].split())
    return Measured(levels, spans)


@cache
def measured_makers() -> frozenset[str]:
    """Return the makers of the GPUs on which steps were measured."""
    levels = load_measured().levels
    return frozenset(maker for (_, _, axis), sources_by_level in levels.items() if axis == "maker" for maker in sources_by_level)
