"""Served runs against the simulator, with fits that never saw their source.

docs/accuracy-serving.md is this program's output:

    PYTHONPATH=src:tools python -m calibration.serving_scores --truth ../shared/truth --held held.json
    PYTHONPATH=src:tools python -m calibration.serving_scores --truth ../shared/truth --held seen.json --seen
    PYTHONPATH=src:tools python -m benchmarks.accuracy_serving ../shared/truth held.json seen.json > docs/accuracy-serving.md
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import numpy as np
from calibration.fit import digest
from calibration.scores import score
from calibration.serving_scores import HeldRun, load

GOALS = {"tpot": 0.15, "throughput": 0.20}
KINDS = {
    "clients": "a fixed number of clients",
    "static": "one batch, all at once",
    "online": "an offered rate",
    "flood": "as much as it takes",
}
WORST = 15


def lines(truth: Path, held: Sequence[HeldRun], seen: Sequence[HeldRun]) -> Iterator[str]:
    """The page."""
    yield "# How far simulated serving is from measured serving"
    yield ""
    yield f"Made by `python -m benchmarks.accuracy_serving` on {date.today().isoformat()} from {len(held):,} published"
    yield f"runs (digest {digest(truth)[:12]}). The simulator itself has nothing fitted: its steps come from the time model, its"
    yield "limits from the engines' defaults or the flags a run prints. Errors are shares of the measured value. *Source left"
    yield "out*: the corrections of the work and of the links were fitted without any row of that source. *As shipped*: the"
    yield "product's own fit, which knows static batches, single steps and times between tokens of some of cloudrift's runs, but"
    yield "no throughput, no first token under load, and no run at a rate."
    yield ""
    yield from table(held, seen)
    yield "Loads held at a maximum print no concurrency: as many requests wait as fit three times over. TensorRT-LLM's online"
    yield "runs print a rate but not how many requests: 512 are taken, guessed from the rates and first tokens those same rows"
    yield "print (single rows point to anything from 130 to 820), so their errors are not wholly blind. cloudrift's limits and"
    yield "the random routing over its copies were put in from its result files after a first look at the errors (throughput"
    yield "26.9% before)."
    yield ""
    yield "vLLM of 2023 captured no graphs, and Splitwise alone measured it: without that source nothing tells what its host"
    yield "took to start a step (about 10 ms of 30), so those predictions are too short by that."
    yield ""
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
    print("\n".join(lines(Path(sys.argv[1]), load(Path(sys.argv[2])), load(Path(sys.argv[3])))))
