"""The page docs/evidence/accuracy-many.md: predicted against measured times of steps on several GPUs.

All figures come from the predictions that `make refit` stored; `python -m benchmarks.accuracy_pages` writes the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from calibration.group_alone import key, replicas_of

from benchmarks.left_out_rows import LeftOutRow, cells, grouped, median_cell, paragraph
from whichgpu.estimate.time.left_out import left_out_table

NEAR = 0.08  # distance of a scaling efficiency that counts as near (goal: 80% of the cases)
LAYOUT_NAMES = {"dp": "data", "tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}


def lines(rows: Sequence[LeftOutRow]) -> Iterator[str]:
    """Lines of the page."""
    several = [row for row in rows if row.several_gpus and "gpu" in row.errors]
    yield "# How far predicted times on several GPUs are from measured ones"
    yield ""
    yield from paragraph(
        f"Made by `python -m benchmarks.accuracy_pages` from {len(several):,} measured steps on several GPUs "
        "and their predictions in "
        f"the fit of {left_out_table().date}. Errors are shares of the measured time. The corrections of the "
        "work and those of the links "
        "were both fitted without the GPU (last columns: the source) that is predicted; layouts are those "
        "the sources ran. While the "
        "links are fitted without a GPU, the work of the other GPUs' rows is corrected by the fit on all of "
        "them. If one GPU alone was "
        "measured on the same work, links are fitted with that time given, so that they do not compensate errors in the work. "
        "`whichgpu accuracy --gpus 2..1024` prints the figures of these rows, with `--by` grouped."
    )
    yield from table("## By source", several, lambda one: one.row.source)
    yield from scaling(rows)
    yield from table("## By parallelism", several, layout)
    yield from table("## By number of GPUs", several, lambda one: f"{one.row.request['gpus']:>4}")
    yield from table("## By GPU", several, lambda one: one.row.gpu)
    yield from table("## By kind of step and engine", several, lambda one: f"{one.row.kind}, {one.row.request.get('engine')}")


def layout(one: LeftOutRow) -> str:
    """Kinds of parallelism of a row, such as `tensor, pipeline`."""
    degrees = one.row.request.get("parallel", {})
    kinds = [name for field, name in LAYOUT_NAMES.items() if int(degrees.get(field, 1)) > 1]
    return ", ".join(kinds) + (" over nodes" if int(one.row.request.get("nodes", 1)) > 1 else "") or "default of the engine"


def table(title: str, rows: Sequence[LeftOutRow], key_of: Callable[[LeftOutRow], str]) -> Iterator[str]:
    """Errors of rows that share a key, without their GPU and without their source, and the share inside the 90% range."""
    yield title
    yield ""
    yield "| | rows | mean | median | p90 | bias | inside | without the source: median | inside |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, members in grouped(rows, key_of).items():
        errors = cells([row.errors["gpu"] for row in members])
        yield f"| {name} | {errors} | {inside(members, 'gpu')} | {median_cell(members, 'source')} | {inside(members, 'source')} |"
    yield ""


def inside(rows: Sequence[LeftOutRow], fold: str) -> str:
    """Share of rows in the 90% range of the fit without their GPU or source; a dash if there is no such fit."""
    covered = [row.covered(fold) for row in rows if fold in row.errors]
    return f"{np.mean(covered):.0%}" if covered else "–"


class Scaled(msgspec.Struct, frozen=True):
    """A step on several GPUs, and the same on one GPU alone: seconds, measured and predicted without the GPU."""

    gpus: int
    replicas: int
    measured: tuple[float, float]  # several GPUs, one alone
    predicted: tuple[float, float]

    @property
    def efficiency(self) -> tuple[float, float]:
        """Throughput per GPU relative to one GPU alone, measured and predicted.

        Data-parallel replicas each do the work of one GPU; other layouts divide it.
        """
        share = 1.0 if self.replicas > 1 else 1.0 / self.gpus
        return share * self.measured[1] / self.measured[0], share * self.predicted[1] / self.predicted[0]


def scaled_rows(rows: Sequence[LeftOutRow]) -> Iterator[tuple[LeftOutRow, Scaled]]:
    """Rows on several GPUs for which one GPU alone was measured on the same work."""
    known = [one for one in rows if "gpu" in one.errors]
    alone: Mapping[str, list[LeftOutRow]] = grouped(
        (one for one in known if not one.several_gpus and "batch" in one.row.request), lambda one: key(one.row, 1)
    )
    for one in known:
        if one.several_gpus and "batch" in one.row.request and (single := alone.get(key(one.row, replicas_of(one.row)))):
            measured, predicted = (float(np.median(times)) for times in zip(*map(_seconds, single), strict=True))
            own = _seconds(one)
            gpus = int(one.row.request["gpus"])
            yield one, Scaled(gpus, replicas_of(one.row), (own[0], measured), (own[1], predicted))


def _seconds(one: LeftOutRow) -> tuple[float, float]:
    return one.row.seconds, one.predicted("gpu")


def scaling(rows: Sequence[LeftOutRow]) -> Iterator[str]:
    """Scaling efficiencies of rows for which one GPU alone was measured as well."""
    yield "## Scaling efficiency"
    yield ""
    yield from paragraph(
        "Throughput per GPU relative to one GPU alone, if one alone was measured on the same work: share of "
        "cases in which it is "
        f"predicted within {NEAR * 100:.0f} points, and the median distance in points. Both times are "
        "predicted without the GPU."
    )
    yield "| source | cases | within | median distance | measured, median | predicted, median |"
    yield "|---|---|---|---|---|---|"
    pairs: dict[str, list[tuple[float, float]]] = {}
    for one, scaled in scaled_rows(rows):
        pairs.setdefault(f"{one.row.source}, {one.row.kind}", []).append(scaled.efficiency)
    everything = [pair for own in pairs.values() for pair in own]
    for name, own in (*sorted(pairs.items()), ("all", everything)):
        if own:
            measured, predicted = np.array(own).T
            apart = np.abs(measured - predicted)
            medians = f"{np.median(measured):.0%} | {np.median(predicted):.0%}"
            yield f"| {name} | {len(own):,} | {np.mean(apart <= NEAR):.0%} | {100 * np.median(apart):.1f} | {medians} |"
    yield ""
