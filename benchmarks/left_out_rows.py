"""Rows of the evidence with the errors of fits that never saw their model, GPU or source, as `make refit` stored them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

import msgspec
import numpy as np
from calibration.scores import score

from whichgpu.catalog.evidence import Measurement, measurements
from whichgpu.catalog.evidence_search.index import evidence_index
from whichgpu.estimate.time.left_out import FOLDS, HOST, ROOFLINE, left_out_table

OWN = "h200"  # beginning of the names of our own measurements: their models are left out, not their only GPU
HEADER = ("| | rows | mean | median | p90 | bias |", "|---|---|---|---|---|---|")


class LeftOutRow(msgspec.Struct, frozen=True):
    """A measurement with log(predicted / measured) by what a fit left out, and log factors of its 90% ranges."""

    row: Measurement
    errors: Mapping[str, float]  # by fold (model, gpu, source); absent if there is no such fit
    ranges: Mapping[str, tuple[float, float]]
    fit: float  # log error of the shipped fit, which saw the row; NaN if there is none
    structure: str  # kind of model, such as decoder, MoE or CNN
    roofline: float  # log(FLOPs over peak or bytes over bandwidth / measured); NaN if not stored
    host: float  # log(host time / device time) by the shipped fit; NaN if not stored or launches are not on the critical path

    @property
    def own(self) -> bool:
        """Whether we measured it ourselves, on the H200."""
        return self.row.source.startswith(OWN)

    @property
    def several_gpus(self) -> bool:
        """Whether it ran on more than one GPU."""
        return int(self.row.request.get("gpus", 1)) > 1

    @property
    def host_bound(self) -> bool:
        """Whether launching kernels takes longer than running them: such a row measures the host more than the GPU."""
        return self.host > 0

    @property
    def error(self) -> float:
        """Log error without the GPU, on our own H200 without the model: what `whichgpu accuracy` counts."""
        return self.errors.get("model" if self.own else "gpu", np.nan)

    def predicted(self, fold: str) -> float:
        """Seconds by the fit without the row's model, GPU or source."""
        return self.row.seconds * float(np.exp(self.errors[fold]))

    def covered(self, fold: str) -> bool:
        """Whether the measured time lies in the 90% range of that prediction."""
        low, high = self.ranges[fold]
        return low <= -self.errors[fold] <= high


def left_out_rows() -> list[LeftOutRow]:
    """Rows that have at least one prediction by a fit that never saw their model, GPU or source."""
    table = left_out_table()
    errors = {fold: table.column(fold) for fold in FOLDS}
    ends = {fold: np.column_stack([table.column(f"{fold}_low"), table.column(f"{fold}_high")]) for fold in FOLDS}
    fit, roofline, host = table.column("fit"), table.column(ROOFLINE), table.column(HOST)
    structure = evidence_index().words("structure")
    rows = []
    for place, row in enumerate(measurements()):
        known = [fold for fold in FOLDS if np.isfinite(errors[fold][place]) and np.isfinite(ends[fold][place]).all()]
        if known:
            own = {fold: float(errors[fold][place]) for fold in known}
            ranges = {fold: (float(ends[fold][place][0]), float(ends[fold][place][1])) for fold in known}
            stored = float(fit[place]), structure.of(place), float(roofline[place]), float(host[place])
            rows.append(LeftOutRow(row, own, ranges, *stored))
    return rows


def grouped(rows: Iterable[LeftOutRow], key: Callable[[LeftOutRow], str]) -> dict[str, list[LeftOutRow]]:
    """Rows that share a key, in the order of the keys."""
    groups: dict[str, list[LeftOutRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(sorted(groups.items()))


def paragraph(text: str) -> Iterator[str]:
    """Lines of a paragraph of a page, and an empty one."""
    yield from wrap(text, 120, break_long_words=False, break_on_hyphens=False)
    yield ""


def cells(logs: Sequence[float]) -> str:
    """Cells of a table's row: number of rows, mean, median, 90th percentile and bias of log errors."""
    scored = score(np.array(logs))
    return f"{scored.rows:,} | {scored.mean:.1%} | {scored.median:.1%} | {scored.p90:.1%} | {scored.bias:+.1%}"


def median_cell(rows: Sequence[LeftOutRow], fold: str) -> str:
    """Median error of the rows that a fit without their model, GPU or source predicts; a dash if there are none."""
    logs = [row.errors[fold] for row in rows if fold in row.errors]
    return f"{score(np.array(logs)).median:.1%}" if logs else "–"
