"""How much a record of ten measured steps improves estimates on a GPU that the shipped fit never saw.

    PYTHONPATH=src:tools python -m benchmarks.one_record > docs/evidence/one-record.md

Takes a few minutes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec
import numpy as np
from calibration import fit_steps
from calibration.examples import examples
from calibration.fit_steps import Design, folds
from calibration.scores import gpu_of, source_of

from whichgpu.catalog.evidence import measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.time.own_corrections import OwnCorrections, with_own_corrections
from whichgpu.measure import fit as own_fit

MIN_STEPS, RECORDED, DRAWS = 20, 10, 8
LARGE_ERROR = 0.15
INTRODUCTION = """# What one record of measurements brings

Made by `python -m benchmarks.one_record`. For every GPU the shipped corrections were fitted without any row of it. Steps of one
source, engine, year, kind and precision on that GPU count as one machine: ten of them, drawn at random, were the record that
`whichgpu measure` would have made, and the others were estimated before and after (eight draws; errors are medians).
"""


class Group(msgspec.Struct, frozen=True):
    """Steps of one GPU, source, engine, year, kind and precision, and the median error of their estimates."""

    name: tuple[str, ...]
    steps: int
    before: float  # by the fit without the GPU
    after: float  # with a record of ten other steps of the group


def groups() -> Iterator[Group]:
    """Yield the groups of measured steps with enough of them, with their errors before and after a record."""
    design = Design(examples(steps(measurements()), Catalog()))
    without = folds(design, gpu_of, design.fit(np.ones(len(design.examples), dtype=bool)))
    by_name: dict[tuple[str, ...], list[fit_steps.Example]] = defaultdict(list)
    for one in design.examples:
        if one.later is None:
            where = (gpu_of(one), source_of(one), one.setting.engine, str(one.setting.year))
            by_name[*where, one.setting.task, str(one.row.request.get("precision"))].append(one)
    for name, found in sorted(by_name.items()):
        if len(found) >= MIN_STEPS and name[0] in without:
            yield _group(name, found, design.calibration(without[name[0]].theta))


def _group(name: tuple[str, ...], found: Sequence[fit_steps.Example], shipped: Calibration) -> Group:
    measured = [own_fit.Example(one.seconds, one.terms, one.floors, one.setting, one.host, one.setting.task) for one in found]
    chance = np.random.default_rng(1)
    before, after = [], []
    for _ in range(DRAWS):
        drawn = set(chance.choice(len(measured), RECORDED, replace=False).tolist())
        rest = [one for place, one in enumerate(measured) if place not in drawn]
        fitted = own_fit.fit_steps([measured[place] for place in sorted(drawn)], shipped)
        own = OwnCorrections(name[0], "record", "measured", fitted.kinds, fitted.multipliers, fitted.spreads)
        before.append(_median_error(rest, shipped))
        after.append(_median_error(rest, with_own_corrections(shipped, {name[0]: (own,)})))
    return Group(name, len(found), median(before), median(after))


def _median_error(measured: Sequence[own_fit.Example], calibration: Calibration) -> float:
    return median(abs(own_fit.shipped_seconds(one, calibration) / one.seconds - 1) for one in measured)


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    found = list(groups())
    large = [one for one in found if one.before > LARGE_ERROR]
    worse = [one for one in found if one.after > one.before + 0.02]
    yield INTRODUCTION
    yield f"- {len(found)} groups: median error {_before_and_after(found)}. {len(worse)} became worse by more than 2 points."
    yield f"- {len(large)} of them were off by more than {LARGE_ERROR:.0%}: {_before_and_after(large)}.\n"
    yield "| GPU | source | engine | year | step | precision | steps | before | after |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for one in sorted(large, key=lambda one: -one.before):
        yield f"| {' | '.join(one.name)} | {one.steps} | {one.before:.1%} | {one.after:.1%} |"


def _before_and_after(found: Sequence[Group]) -> str:
    return f"{median(one.before for one in found):.1%} before, {median(one.after for one in found):.1%} after"


if __name__ == "__main__":
    print("\n".join(page()))
