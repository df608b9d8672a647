"""The page docs/evidence/accuracy-served.md: published serving runs against predictions of the time between output tokens.

Each row is estimated as for a user: the closed form of a decode step and the share of other requests' prefills. Predictions are
those that `make refit` stored; tables that state no batch (maximum load) are estimated here by the shipped fit.
`python -m benchmarks.accuracy_pages` writes the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from calibration.scores import score

from benchmarks.left_out_rows import LeftOutRow, cells, grouped, paragraph
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.evidence import Measurement, measurements
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.time.left_out import FOLDS, left_out_table
from whichgpu.workload.spelling import from_object

SOURCES = (
    "aic-silicon", "cloudrift", "dstack", "gpustack-lab", "lambda-vllm", "ree2raz", "rocm-vllm", "sgl-cookbook", "trtllm-2026",
    "vllm-recipes",
)  # fmt: skip
AMD_SOURCES = ("argonne",)  # their rows on AMD's GPUs are listed too; those on other GPUs are in the other pages
MIXTURES = ("MoE", "MLA")  # kinds of models with experts


def is_served(row: Measurement) -> bool:
    """Whether a row is scored here."""
    return row.source in SOURCES or (row.source in AMD_SOURCES and row.gpu.startswith("mi"))


def kind_of_run(one: LeftOutRow) -> str:
    """The line of the table that a run belongs to."""
    if one.row.gpu.startswith("mi"):
        return "MI300X and related GPUs"
    if one.structure in MIXTURES:
        return "MoE, several GPUs" if one.several_gpus else "MoE, one GPU"
    return "dense"


def lines(rows: Sequence[LeftOutRow]) -> Iterator[str]:
    """Lines of the page."""
    served = [one for one in rows if is_served(one.row)]
    yield "# How far predicted times between tokens are from served runs"
    yield ""
    yield from paragraph(
        f"Made by `python -m benchmarks.accuracy_pages` from {len(served):,} published runs of serving "
        "engines at a stated concurrency and "
        f"their predictions in the fit of {left_out_table().date}, by fits that never saw the row's source, "
        "model (in ten folds, those of the H200 one by one) or GPU. Errors are shares of the measured time between output "
        "tokens (`generate`: of the "
        "whole batch). *Seen* is the shipped fit, which saw the rows. Runs under load, with first tokens and "
        "throughput, are simulated: "
        "[serving](accuracy-serving.md)."
    )
    for title, key in (
        ("By kind of model", kind_of_run),
        ("By source", lambda one: one.row.source),
        ("By engine and year", lambda one: f"{one.row.request['engine']} {one.row.request['year']}"),
        ("By GPU", lambda one: one.row.gpu),
    ):
        yield f"## {title}"
        yield ""
        yield "| | left out | rows | mean | median | p90 | bias | inside |"
        yield "|---|---|---|---|---|---|---|---|"
        for name, members in grouped(served, key).items():
            for fold in FOLDS[::-1]:
                known = [one for one in members if fold in one.errors]
                if known:
                    inside = np.mean([one.covered(fold) for one in known])
                    yield f"| {name} | {fold} | {cells([one.errors[fold] for one in known])} | {inside:.0%} |"
            yield f"| {name} | seen | {cells([one.fit for one in members])} | |"
        yield ""
    yield from at_maximum_load()


def at_maximum_load() -> Iterator[str]:
    """Output rates at maximum load, whose tables state no batch: estimated by the shipped fit, which saw none of them."""
    lookups = lookup_cache(Catalog(), own=False)
    rows = [row for row in measurements() if row.kind == "max-load"]
    logs = [(row, found) for row in rows if (found := load_error(row, lookups)) is not None]
    yield "## At maximum load"
    yield ""
    yield from paragraph(
        "Tables of output tokens per second that state no batch, estimated without one. Nothing was fitted on these rows."
    )
    yield "| source and GPU | rows | mean | median | p90 | bias |"
    yield "|---|---|---|---|---|---|"
    for name in sorted({f"{row.source}, {row.gpu}" for row, _ in logs}):
        scored = score(np.array([found for row, found in logs if f"{row.source}, {row.gpu}" == name]))
        yield f"| {name} | {scored.rows} | {scored.mean:.1%} | {scored.median:.1%} | {scored.p90:.1%} | {scored.bias:+.1%} |"
    yield ""


def load_error(row: Measurement, lookups: LookupCache) -> float | None:
    """Log of predicted over measured seconds per output token; None if the tool does not answer."""
    try:
        answer = estimate_workload(from_object(dict(row.request)), lookups)
    except WhichGpuError as error:
        print(f"not answered: {row.source} line {row.row}: {error}", file=sys.stderr)
        return None
    return None if answer.throughput is None else float(-np.log(answer.throughput.value * row.seconds))
