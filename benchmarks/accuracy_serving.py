"""Served runs against the simulator, with fits that never saw their source.

docs/evidence/accuracy-serving.md is this program's output:

    PYTHONPATH=src:tools python -m calibration.serving_scores --truth ../shared/truth --held held.json
    PYTHONPATH=src:tools python -m calibration.serving_scores --truth ../shared/truth --held seen.json --seen
    PYTHONPATH=src:tools python -m benchmarks.accuracy_serving ../shared/truth held.json seen.json \
        > docs/evidence/accuracy-serving.md
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from calibration.fit import digest
from calibration.scores import score
from calibration.serving_scores import HeldRun, load
from evidence.serving_rows import served_rows

from benchmarks import engine_load
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.spelling import from_object

GOALS = {"tpot": 0.15, "throughput": 0.20}
KINDS = {
    "clients": "a fixed number of clients",
    "static": "one batch, all at once",
    "online": "an offered rate",
    "flood": "as much as it takes",
}
WORST = 15


BLIND = """## What is blind here and what is not

- Loads held at a maximum print no concurrency: as many requests wait as fit three times over.
- TensorRT-LLM's online runs print a rate but not how many requests: 512 are taken, guessed from the rates and first tokens those
  same rows print (single rows point to anything from 130 to 820).
- cloudrift's limits and the random routing over its copies were put in from its result files after a first look at the errors.
  What vLLM counts into its share of a GPU (not the context it finds there), and that batches of a pipeline follow one another
  through its stages, come from vLLM's source, but were looked up because these rows were far off on small cards and in
  pipelines. Rows name quantised files whose exact size nobody prints. A pipeline's batches that have the cache in common, as
  vLLM's have since 2025, were tried too (time between tokens 10.5%, throughput 24.2%) and not kept: they crowd each other out.
- First tokens of cloudrift's runs are far off even at one client, where an H200 and a card of a third of its bandwidth both took
  0.18 to 0.19 s for 1,000 tokens: something outside the engine is in them, and nothing here stands for it.
- Host speeds of Splitwise's machines (Sapphire Rapids as the unit, Zen 2 at 0.65 of it) are put together from clocks and makers'
  claims (`tools/evidence/group_hosts.csv`), with the rows in view.

vLLM of 2023 captured no graphs, and Splitwise alone measured it: with that source left out no row has an engine like it. It is
taken for what its source shows (`estimate/group/host_launches.py`): an eager PyTorch programme whose calls are counted in
version 0.2.1, each at the cost of a PyTorch call as fitted on the reference host (the rows of `truth/h200`), and whose workers
are told of every step by a Ray call, at what Ray's documentation says one takes. None of these numbers was fitted to
Splitwise's rows, and the fit that sees them leaves the cost of a call within a few percent of where it was.
"""


def lines(truth: Path, held: Sequence[HeldRun], seen: Sequence[HeldRun]) -> Iterator[str]:
    """The page."""
    yield "# How far simulated serving is from measured serving"
    yield ""
    yield f"Made by `python -m benchmarks.accuracy_serving` on {date.today().isoformat()} from {len(held):,} published"
    yield f"runs (digest {digest()[:12]}). The simulator itself has nothing fitted: its steps come from the time model, its"
    yield "limits from the engines' defaults or the flags a run prints. Errors are shares of the measured value. *Source left"
    yield "out*: the corrections of the work and of the links were fitted without any row of that source. *As shipped*: the"
    yield "product's own fit, which knows static batches, single steps and times between tokens of some of cloudrift's runs, but"
    yield "no throughput, no first token under load, and no run at a rate."
    yield ""
    yield from table(held, seen)
    yield from engine_load.start_lines(truth)
    yield from engine_load.lines(truth)
    yield BLIND
    yield from covered(truth, held)
    yield from by(held, "## By GPU, source left out", lambda run: f"{run.source} {run.gpu}")
    yield from worst(held)


def table(held: Sequence[HeldRun], seen: Sequence[HeldRun]) -> Iterator[str]:
    """Errors by source, kind of load and metric."""
    yield "## By source"
    yield ""
    yield "| source | load | metric | runs | source left out: median | p90 | bias | goal | met | as shipped: median | bias |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    shipped = grouped(seen)
    for (source, kind, metric), errors in grouped(held).items():
        told, own = score(errors), score(shipped[source, kind, metric])
        goal = GOALS.get(metric) if kind != "flood" else None
        met = "" if goal is None else "yes" if told.median <= goal else "no"
        yield (
            f"| {source} | {KINDS[kind]} | {metric} | {told.rows} | {told.median:.1%} | {told.p90:.1%} | {told.bias:+.1%} | "
            f"{f'{goal:.0%}' if goal else ''} | {met} | {own.median:.1%} | {own.bias:+.1%} |"
        )
    for metric, goal in GOALS.items():
        errors = np.concatenate([one for (_, kind, name), one in grouped(held).items() if name == metric and kind != "flood"])
        told = score(errors)
        met = "yes" if told.median <= goal else "no"
        cells = f"{told.rows} | {told.median:.1%} | {told.p90:.1%} | {told.bias:+.1%} | {goal:.0%} | {met}"
        yield f"| all | stated loads | {metric} | {cells} | | |"
    yield ""


def covered(truth: Path, held: Sequence[HeldRun]) -> Iterator[str]:
    """How often the product's own range of the step times, put on these predictions, holds what was measured."""
    told = {(run.source, run.line): run for run in held}
    inside: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for run in served_rows(truth):
        found = told.get((run.source, run.lines[0]))
        if found is None:
            continue
        low, high = _range(run.request)
        for metric in GOALS:
            if metric in found.seen and metric in found.told:
                ratio = found.seen[metric] / found.told[metric]
                slower = 1.0 / ratio if metric == "throughput" else ratio
                for key in ((run.source, metric), ("all", metric), ("all", "both")):
                    inside[key].append(low <= slower <= high)
    yield "## 90% ranges"
    yield ""
    yield "Shares of measured values inside the range that the product gives for that engine and GPU, around predictions made"
    yield "without the source (goal: 85 to 95% of all)."
    yield ""
    yield "| source | metric | runs | inside |"
    yield "|---|---|---|---|"
    for (source, metric), hits in sorted(inside.items(), key=lambda one: (one[0][0] == "all", one[0])):
        yield f"| {source} | {metric} | {len(hits)} | {np.mean(hits):.1%} |"
    yield ""


@cache
def _desk() -> LookupCache:
    return lookup_cache(Catalog(), own=False)


def _range(request: Mapping[str, Any]) -> tuple[float, float]:
    """As factors of a step's time; nothing where it cannot be told."""
    answer = estimate_workload(from_object({name: value for name, value in request.items() if name != "id"}), _desk())
    return answer.time.relative_range if answer.time else (1.0, 1.0)


def by(held: Sequence[HeldRun], title: str, key: Callable[[HeldRun], str]) -> Iterator[str]:
    """Scores of runs that share a key, with a stated load."""
    yield title
    yield ""
    yield "| | metric | runs | median | p90 | bias |"
    yield "|---|---|---|---|---|---|"
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in held:
        if run.kind != "flood":
            for metric in GOALS:
                if metric in run.seen and metric in run.told:
                    found[key(run), metric].append(np.log(run.told[metric] / run.seen[metric]))
    for (name, metric), errors in sorted(found.items()):
        told = score(np.array(errors))
        yield f"| {name} | {metric} | {told.rows} | {told.median:.1%} | {told.p90:.1%} | {told.bias:+.1%} |"
    yield ""


def worst(held: Sequence[HeldRun]) -> Iterator[str]:
    """The largest errors of runs with a stated load."""
    yield "## Worst cases, source left out"
    yield ""
    yield "| source | GPU | GPUs | clients | rate | row | metric | measured | simulated |"
    yield "|---|---|---|---|---|---|---|---|---|"
    found = [
        (abs(np.log(run.told[metric] / run.seen[metric])), run, metric)
        for run in held
        if run.kind != "flood"
        for metric in GOALS
        if metric in run.seen and metric in run.told
    ]
    for _, run, metric in sorted(found, key=lambda one: -one[0])[:WORST]:
        clients, rate = run.concurrency or "", run.rate or ""
        yield (
            f"| {run.source} | {run.gpu} | {run.gpus} | {clients} | {rate} | {run.line} | {metric} | "
            f"{run.seen[metric]:.4g} | {run.told[metric]:.4g} |"
        )


def grouped(runs: Sequence[HeldRun]) -> dict[tuple[str, str, str], np.ndarray]:
    """Log errors by source, kind and metric."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for run in runs:
        for metric, value in run.seen.items():
            if metric in run.told:
                found[run.source, run.kind, metric].append(float(np.log(run.told[metric] / value)))
    return {key: np.array(errors) for key, errors in sorted(found.items())}


if __name__ == "__main__":
    truth, held, seen = map(Path, sys.argv[1:4])
    print("\n".join(lines(truth, load(held), load(seen))))
