"""Served runs against the simulator, with fits that never saw their source.

docs/evidence/accuracy-serving.md is this program's output:

    PYTHONPATH=src:tools python -m calibration.serving_scores --truth ../shared/truth --held-out held_out.json
    PYTHONPATH=src:tools python -m calibration.serving_scores --truth ../shared/truth --held-out shipped.json --product-fit
    PYTHONPATH=src:tools python -m benchmarks.accuracy_serving ../shared/truth held_out.json shipped.json \
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
from evidence.serving_rows import left_out_rows, served_rows

from benchmarks import engine_load
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.spelling import from_object

GOALS = {"tpot": 0.15, "throughput": 0.20}  # median error
KINDS = {
    "clients": "a fixed number of clients",
    "static": "one batch, all at once",
    "online": "an offered rate",
    "flood": "maximum load",
}
WORST_CASES = 15  # rows listed at the end of the page


BLIND = """## What is blind here and what is not

- Runs at maximum load print no concurrency: they are simulated with three times as many requests as fit at once.
- TensorRT-LLM's online runs print a rate but not how many requests: 512 are taken, guessed from the rates and first tokens those
  same rows print (single rows point to anything from 130 to 820).
- cloudrift's limits and the random routing over its replicas were taken from its result files after a first look at the errors.
  What vLLM counts into its share of a GPU (not the context it finds there), and that batches of a pipeline follow one another
  through its stages, come from vLLM's source, but were looked up because these rows were far off on small cards and in
  pipelines. Rows name quantised files whose exact size nobody prints. A pipeline's batches that have the cache in common, as
  vLLM's have since 2025, were tried too (time between tokens 10.5%, throughput 24.2%) and not kept: they crowd each other out.
- First tokens of cloudrift's runs are far off even at one client, where an H200 and a card of a third of its bandwidth both took
  0.18 to 0.19 s for 1,000 tokens: they include something outside the engine that is not modelled here.
- Host speeds of Splitwise's machines (Sapphire Rapids as the unit, Zen 2 at 0.65 of it) are derived from clocks and makers'
  claims (`tools/evidence/group_hosts.csv`), with the rows in view.

vLLM of 2023 captured no graphs, and Splitwise alone measured it: with that source left out no row has an engine like it. It is
modelled from its source (`estimate/group/host_launches.py`): an eager PyTorch programme whose calls are counted in version
0.2.1, each at the cost of a PyTorch call as fitted on the reference host (the rows of `truth/h200`), and whose workers receive
every step by a Ray call, at the cost that Ray's documentation states. None of these numbers was fitted to Splitwise's rows,
and the fit that sees them changes the cost of a call by only a few percent.
"""


def lines(truth: Path, held_runs: Sequence[HeldRun], shipped: Sequence[HeldRun]) -> Iterator[str]:
    """Lines of the page."""
    yield "# How far simulated serving is from measured serving"
    yield ""
    yield f"Made by `python -m benchmarks.accuracy_serving` on {date.today().isoformat()} from {len(held_runs):,} published"
    yield f"runs (digest {digest()[:12]}). The simulator itself has nothing fitted: its steps come from the time model, its"
    yield "limits from the engines' defaults or the flags a run prints. Errors are shares of the measured value. *Source left"
    yield "out*: the corrections of the work and of the links were fitted without any row of that source. *As shipped*: the"
    yield "product's own fit, which knows static batches, single steps and times between tokens of some of cloudrift's runs, but"
    yield "no throughput, no first token under load, and no run at a rate."
    yield ""
    yield from table(held_runs, shipped)
    yield from left_out(truth, held_runs)
    yield from engine_load.start_lines(truth)
    yield from engine_load.lines(truth)
    yield BLIND
    yield from covered(truth, held_runs)
    yield from by(held_runs, "## By GPU, source left out", lambda run: f"{run.source} {run.gpu}")
    yield from worst(held_runs)


def table(runs: Sequence[HeldRun], shipped: Sequence[HeldRun]) -> Iterator[str]:
    """Errors by source, kind of load and metric."""
    yield "## By source"
    yield ""
    yield "| source | load | metric | runs | source left out: median | p90 | bias | goal | met | as shipped: median | bias |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    shipped_errors = grouped(shipped)
    for (source, kind, metric), errors in grouped(runs).items():
        blind, as_shipped = score(errors), score(shipped_errors[source, kind, metric])
        goal = GOALS.get(metric) if kind != "flood" else None
        met = "" if goal is None else "yes" if blind.median <= goal else "no"
        yield (
            f"| {source} | {KINDS[kind]} | {metric} | {blind.rows} | {blind.median:.1%} | {blind.p90:.1%} | {blind.bias:+.1%} | "
            f"{f'{goal:.0%}' if goal else ''} | {met} | {as_shipped.median:.1%} | {as_shipped.bias:+.1%} |"
        )
    for metric, goal in GOALS.items():
        errors = np.concatenate([one for (_, kind, name), one in grouped(runs).items() if name == metric and kind != "flood"])
        blind = score(errors)
        met = "yes" if blind.median <= goal else "no"
        cells = f"{blind.rows} | {blind.median:.1%} | {blind.p90:.1%} | {blind.bias:+.1%} | {goal:.0%} | {met}"
        yield f"| all | stated loads | {metric} | {cells} | | |"
    yield ""


def left_out(truth: Path, held_runs: Sequence[HeldRun]) -> Iterator[str]:
    """Published rows of these sources that are in no run, by reason, and runs that the tool rejects."""
    runs = len(served_rows(truth)) + len(served_rows(truth, flood=True))
    yield "## Rows left out"
    yield ""
    yield f"Of {runs:,} runs {runs - len(held_runs):,} were rejected, as not fitting in memory for example. Published rows with a"
    yield "metric of serving that are in no run:"
    yield ""
    yield "| source | reason | rows |"
    yield "|---|---|---|"
    for (source, reason), count in sorted(left_out_rows(truth).items()):
        yield f"| {source} | {reason} | {count:,} |"
    yield ""


def covered(truth: Path, held_runs: Sequence[HeldRun]) -> Iterator[str]:
    """How often the measured value lies in the product's 90% range around these predictions."""
    run_by_line = {(run.source, run.line): run for run in held_runs}
    inside: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for run in served_rows(truth):
        prediction = run_by_line.get((run.source, run.lines[0]))
        if prediction is None:
            continue
        low, high = _range(run.request)
        for metric in GOALS:
            if metric in prediction.measured and metric in prediction.predicted:
                ratio = prediction.measured[metric] / prediction.predicted[metric]
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
def _lookups() -> LookupCache:
    return lookup_cache(Catalog(), own=False)


def _range(request: Mapping[str, Any]) -> tuple[float, float]:
    """90% range of the step time as factors; (1, 1) if there is no estimate."""
    answer = estimate_workload(from_object({name: value for name, value in request.items() if name != "id"}), _lookups())
    return answer.time.relative_range if answer.time else (1.0, 1.0)


def by(runs: Sequence[HeldRun], title: str, key: Callable[[HeldRun], str]) -> Iterator[str]:
    """Scores of runs that share a key, with a stated load."""
    yield title
    yield ""
    yield "| | metric | runs | median | p90 | bias |"
    yield "|---|---|---|---|---|---|"
    errors_by_key: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        if run.kind != "flood":
            for metric in GOALS:
                if metric in run.measured and metric in run.predicted:
                    errors_by_key[key(run), metric].append(np.log(run.predicted[metric] / run.measured[metric]))
    for (name, metric), errors in sorted(errors_by_key.items()):
        scored = score(np.array(errors))
        yield f"| {name} | {metric} | {scored.rows} | {scored.median:.1%} | {scored.p90:.1%} | {scored.bias:+.1%} |"
    yield ""


def worst(runs: Sequence[HeldRun]) -> Iterator[str]:
    """The largest errors of runs with a stated load."""
    yield "## Worst cases, source left out"
    yield ""
    yield "| source | GPU | GPUs | clients | rate | row | metric | measured | simulated |"
    yield "|---|---|---|---|---|---|---|---|---|"
    cases = [
        (abs(np.log(run.predicted[metric] / run.measured[metric])), run, metric)
        for run in runs
        if run.kind != "flood"
        for metric in GOALS
        if metric in run.measured and metric in run.predicted
    ]
    for _, run, metric in sorted(cases, key=lambda one: -one[0])[:WORST_CASES]:
        clients, rate = run.concurrency or "", run.rate or ""
        yield (
            f"| {run.source} | {run.gpu} | {run.gpus} | {clients} | {rate} | {run.line} | {metric} | "
            f"{run.measured[metric]:.4g} | {run.predicted[metric]:.4g} |"
        )


def grouped(runs: Sequence[HeldRun]) -> dict[tuple[str, str, str], np.ndarray]:
    """Log errors by source, kind and metric."""
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for run in runs:
        for metric, value in run.measured.items():
            if metric in run.predicted:
                groups[run.source, run.kind, metric].append(float(np.log(run.predicted[metric] / value)))
    return {key: np.array(errors) for key, errors in sorted(groups.items())}


if __name__ == "__main__":
    truth, held_out, shipped = map(Path, sys.argv[1:4])
    print("\n".join(lines(truth, load(held_out), load(shipped))))
