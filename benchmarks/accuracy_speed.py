"""The page docs/evidence/accuracy.md: predicted against measured times, by fits that never saw the GPU, the model or the source.

Its tables by source, task, engine, maker and GPU are those of `whichgpu accuracy`; all come from the predictions that
`make refit` stored. `python -m benchmarks.accuracy_pages` writes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import log

import numpy as np
from calibration.scores import score

from benchmarks import peer_aiconfigurator
from benchmarks.left_out_rows import LeftOutRow, cells, grouped, median_cell, paragraph
from whichgpu.api.facts.accuracy import Score, accuracy_answer
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.accuracy_pairs import LANGUAGE, accuracy_pairs
from whichgpu.estimate.time.left_out import left_out_table

BY = {"source": "source", "task": "task", "engine": "engine", "maker": "maker of the GPU", "gpus": "number of GPUs", "gpu": "GPU"}
H200_TASKS = {
    "h200-decode": "decode",
    "h200-prefill": "prefill",
    "h200-forward-graph": "forward, CUDA graphs",
    "h200-forward-eager": "forward, eager",
    "h200-quant": "quantised and mixtures",
    "h200-moe": "quantised and mixtures",
    "h200-compiled": "training, compiled",
}
RANKED = log(1.10)  # pairs that differ by less are left unranked


def h200_task(source: str, kind: str, field: str) -> str:
    """Name of the work of one of our own H200 rows; `field` is language or vision."""
    if source.startswith("h200-vllm"):
        return f"vLLM, {kind}"
    return H200_TASKS.get(source) or f"training, {field}"


def lines(rows: Sequence[LeftOutRow]) -> Iterator[str]:
    """Lines of the page."""
    yield "# How far predicted times are from measured ones"
    yield ""
    yield from paragraph(
        f"Made by `python -m benchmarks.accuracy_pages` from {len(rows):,} measured steps and their predictions in the fit of "
        f"{left_out_table().date}. Errors are shares of the measured time; *bias* is the median of predicted "
        "over measured less one, "
        "*inside* the share of measurements in the 90% range. Every prediction comes from a fit that never "
        "saw the row's GPU (on our "
        "own H200, the only GPU of its rows: its model) or, in the last three columns, any row of its "
        "source. The command over a "
        "table prints the same figures."
    )
    yield from paragraph(
        "See also: [several GPUs](accuracy-many.md), [serving](accuracy-serving.md), [memory](memory-accuracy.md), whether the "
        "[90% ranges hold](coverage.md), the [worst rows](worst.md), and [which rows are used, and as "
        "what](calibration-rows.md)."
    )
    for by, title in BY.items():
        yield from score_table(by, title)
    yield from own_rows([row for row in rows if row.own])
    yield from by_bound([row for row in rows if not row.own and not row.several_gpus])
    yield from ranks([row for row in rows if not row.own and not row.several_gpus and "gpu" in row.errors])
    predictions = {
        (row.row.source, row.row.row): row.predicted("model" if row.own else "gpu")
        for row in rows
        if ("model" if row.own else "gpu") in row.errors
    }
    yield from peer_aiconfigurator.lines(predictions)


def score_table(by: str, title: str) -> Iterator[str]:
    """Scores as `whichgpu accuracy` gives them, by name: without the GPU, and without the source."""
    catalog = Catalog()
    gpu, source = (
        {one.group: one for one in accuracy_answer(pairs, by, 0, catalog).scores}
        for pairs in (accuracy_pairs(), accuracy_pairs("source"))
    )
    yield f"## By {title}"
    yield ""
    yield f"`whichgpu accuracy --by {by}`; `whichgpu accuracy --left-out source --by {by}`"
    yield ""
    yield "| | rows | mean | median | p90 | bias | inside | without the source: median | p90 | inside |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name in sorted(gpu, key=lambda name: (len(name), name) if by == "gpus" else (0, name)):
        yield f"| {name} | {_cells(gpu[name])} | {_source_cells(source.get(name))} |"
    yield ""


def _cells(one: Score) -> str:
    return f"{one.rows:,} | {one.mean:.1%} | {one.median:.1%} | {one.p90:.1%} | {one.bias:+.1%} | {one.inside:.0%}"


def _source_cells(one: Score | None) -> str:
    return f"{one.median:.1%} | {one.p90:.1%} | {one.inside:.0%}" if one else "– | – | –"


def own_rows(rows: Sequence[LeftOutRow]) -> Iterator[str]:
    """Errors on our own H200 by the kind of work, each model left out."""
    yield "## Our own H200, each model left out"
    yield ""
    yield "| work | rows | mean | median | p90 | bias | plain roofline, median |"
    yield "|---|---|---|---|---|---|---|"

    def task_of(one: LeftOutRow) -> str:
        field = "language" if one.structure in LANGUAGE else "vision"
        return h200_task(one.row.source, one.row.kind, field) + (" (host-bound)" if one.host_bound else "")

    for task, members in grouped((row for row in rows if "model" in row.errors), task_of).items():
        yield f"| {task} | {cells([row.errors['model'] for row in members])} | {_roofline(members)} |"
    yield ""


def by_bound(rows: Sequence[LeftOutRow]) -> Iterator[str]:
    """Median errors of published rows on one GPU by source; those whose time is decided by launching kernels apart."""
    yield "## Published rows on one GPU, by what bounds them"
    yield ""
    yield from paragraph(
        "Median errors. Host-bound rows, whose time is decided by launching kernels, measure the host more "
        "than the GPU: they are a "
        "row of their own. The plain roofline is FLOPs over peak or bytes over bandwidth, operator by operator."
    )
    yield "| source | rows | without the GPU | without the model | without the source | plain roofline |"
    yield "|---|---|---|---|---|---|"
    for name, members in grouped(rows, lambda row: row.row.source + (" (host-bound)" if row.host_bound else "")).items():
        medians = " | ".join(median_cell(members, fold) for fold in ("gpu", "model", "source"))
        yield f"| {name} | {len(members):,} | {medians} | {_roofline(members)} |"
    yield ""


def _roofline(rows: Sequence[LeftOutRow]) -> str:
    logs = [row.roofline for row in rows if np.isfinite(row.roofline)]
    return f"{score(np.array(logs)).median:.0%}" if logs else "–"


def ranks(rows: Sequence[LeftOutRow]) -> Iterator[str]:
    """Share of pairs of GPUs, both unseen, of which the faster one is named."""
    makers = {gpu.id: gpu.vendor for gpu in Catalog().gpus}
    same: dict[str, list[LeftOutRow]] = defaultdict(list)
    for one in rows:
        request = {name: value for name, value in one.row.request.items() if name not in ("gpu", "id", "year")}
        same[f"{one.row.source} {one.row.kind} {sorted(request.items(), key=str)}"].append(one)
    counts: dict[str, list[bool]] = {"decided by the GPU": [], "all": [], "GPUs of two makers": []}
    for members in same.values():
        for one, other in combinations(members, 2):
            if one.row.gpu == other.row.gpu or abs(log(one.row.seconds / other.row.seconds)) < RANKED:
                continue
            right = (one.predicted("gpu") > other.predicted("gpu")) == (one.row.seconds > other.row.seconds)
            counts["all"].append(right)
            if not one.host_bound and not other.host_bound:
                counts["decided by the GPU"].append(right)
            if makers[one.row.gpu] != makers[other.row.gpu]:
                counts["GPUs of two makers"].append(right)
    yield "## Which of two GPUs is faster"
    yield ""
    yield from paragraph(
        "Pairs of GPUs measured on the same request by the same source that differ by more than 10%: the "
        "share in which the faster "
        "one is named, each predicted by the fit without itself, so that what both have in common (software, "
        "host) does not cancel."
    )
    yield "| rows | pairs | faster one named |"
    yield "|---|---|---|"
    for name, outcomes in counts.items():
        if outcomes:
            yield f"| {name} | {len(outcomes):,} | {np.mean(outcomes):.1%} |"
    yield ""
