"""Predicted times against measured ones, by fits that never saw the model, the GPU, the generation or the source.

The page also has the plain roofline (FLOPs over peak, bytes over bandwidth) and, if the package `aiconfigurator` is installed,
its estimates of the same rows. docs/evidence/accuracy.md is this program's output:

    PYTHONPATH=src:tools python -m benchmarks.accuracy_speed [HELD_OUT] > docs/evidence/accuracy.md

HELD_OUT is the file of `calibration.fit --held-out`; without it the fits are made again, which takes minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
from calibration.examples import examples
from calibration.fit import digest
from calibration.fit_steps import Design, Example
from calibration.scores import HeldOut, Score, all_folds, by, held_out, load, rank_order, source_of

from benchmarks import peer_aiconfigurator
from whichgpu.catalog.evidence import measurements, steps
from whichgpu.catalog.store import Catalog

ROOT = Path(__file__).resolve().parent.parent
# Goals for the H200's own rows, each model left out: mean error, and 2.5 times that for the 90th percentile.
GOALS = {
    "decode": 0.04,
    "prefill": 0.05,
    "training, language": 0.05,
    "training, vision": 0.09,
    "forward, CUDA graphs": 0.10,
    "forward, eager": 0.15,
    "quantised and mixtures": 0.10,
}
H200_TASKS = {
    "h200-decode": "decode",
    "h200-prefill": "prefill",
    "h200-forward-graph": "forward, CUDA graphs",
    "h200-forward-eager": "forward, eager",
    "h200-quant": "quantised and mixtures",
    "h200-moe": "quantised and mixtures",
    "h200-compiled": "training, compiled",
}
TUNED = ("mlperf-inf", "trtllm")


def h200_task(example: Example) -> str:
    """Name of the goal that an H200 example belongs to."""
    return H200_TASKS.get(example.groups["source"]) or f"training, {example.groups['task'].partition('-')[2]}"


def roofline(examples: Sequence[Example]) -> np.ndarray:
    """Log seconds of the roofline: FLOPs over peak or bytes over bandwidth, operator by operator."""
    return np.log([max(sum(float(floors.sum()) for _, floors in example.parts), 1e-9) for example in examples])


def lines(file: Path | None) -> Iterator[str]:
    """Lines of the page."""
    members = examples(steps(measurements()), Catalog())
    design = Design(members)
    theta = design.fit(np.ones(len(members), dtype=bool))
    held = load(file) if file else held_out(design, theta, all_folds(design, theta))
    plain = roofline(members) - design.actual
    launched = design.host_bound(theta)
    yield "# How far predicted times are from measured ones"
    yield ""
    summary = f"Made by `python -m benchmarks.accuracy_speed` on {date.today().isoformat()} from {len(members):,} measured steps"
    yield f"{summary} (digest {digest()[:12]})."
    yield "Errors are shares of the measured time. Every prediction comes from a fit that never saw what it is about; which rows"
    yield "are used, and as what, is in [calibration-rows.md](calibration-rows.md); whether the 90% ranges hold, in"
    yield "[coverage.md](coverage.md)."
    yield ""
    yield from _h200(design, held, plain, launched)
    yield from _public(design, held, plain, launched)
    yield from _worst(design, held)
    predictions = {
        (example.row.source, example.row.row): float(np.exp((held.model if _ours(example) else held.gpu)[place]))
        for place, example in enumerate(members)
    }
    yield from peer_aiconfigurator.lines(predictions)


def _ours(example: Example) -> bool:
    return example.groups["source"].startswith("h200")


def _h200(design: Design, held: HeldOut, plain: np.ndarray, launched: np.ndarray) -> Iterator[str]:
    chosen = np.array([example.groups["source"].startswith("h200") for example in design.examples])
    ours = [example for example, keep in zip(design.examples, chosen, strict=True) if keep]
    yield "## H200, leaving each model out"
    yield ""
    yield "| task | rows | mean | median | p90 | goal (mean) | met | plain roofline, mean |"
    yield "|---|---|---|---|---|---|---|---|"
    marked = {id(example): bound for example, bound in zip(design.examples, launched, strict=True)}

    def task_of(example: Example) -> str:
        return f"{h200_task(example)} (host-bound)" if marked[id(example)] else h200_task(example)

    roofs = by(task_of, ours, plain[chosen])
    for task, scored in by(task_of, ours, design.errors(held.model)[chosen]).items():
        goal = GOALS.get(task)
        met = "–" if goal is None else "yes" if scored.mean <= goal and scored.p90 <= 2.5 * goal else "no"
        goal_text = f"{goal:.0%}" if goal else "–"
        errors = f"{scored.mean:.1%} | {scored.median:.1%} | {scored.p90:.1%}"
        yield f"| {task} | {scored.rows} | {errors} | {goal_text} | {met} | {roofs[task].mean:.0%} |"
    yield ""


def _public(design: Design, held: HeldOut, plain: np.ndarray, launched: np.ndarray) -> Iterator[str]:
    chosen = np.array([not example.groups["source"].startswith("h200") for example in design.examples])
    theirs = [example for example, keep in zip(design.examples, chosen, strict=True) if keep]
    errors = {name: design.errors(getattr(held, name))[chosen] for name in ("gpu", "source", "generation")}
    yield "## Published results, one GPU"
    yield ""
    yield "Median error, leaving out the GPU, the whole source, or all of its generation. Rows whose time is decided by launching"
    yield "operators measure the host more than the GPU: they are a row of their own."
    yield ""
    yield "| source | rows | without the GPU | goal | without the source | goal | without the generation | plain roofline |"
    yield "|---|---|---|---|---|---|---|---|"
    marked = {id(example): bound for example, bound in zip(design.examples, launched, strict=True)}

    def split(example: Example) -> str:
        return f"{source_of(example)} (host-bound)" if marked[id(example)] else source_of(example)

    tables = {name: by(split, theirs, values) for name, values in errors.items()}
    roofs = by(split, theirs, plain[chosen])
    for source, one in tables["gpu"].items():
        goal = 0.20 if source.partition(" ")[0] in TUNED else 0.15
        yield (
            f"| {source} | {one.rows} | {one.median:.1%} | {goal:.0%} | {tables['source'][source].median:.1%} | 25% "
            f"| {tables['generation'][source].median:.1%} | {roofs[source].median:.0%} |"
        )
    yield ""
    yield from _ranks(design, held, chosen, launched)
    for title, key in (("By GPU", "gpu"), ("By architecture", "architecture"), ("By task", "task")):
        yield from _table(f"{title}, without the GPU", by(_group(key), theirs, errors["gpu"]))


def _ranks(design: Design, held: HeldOut, chosen: np.ndarray, launched: np.ndarray) -> Iterator[str]:
    yield "### Which of two GPUs is faster"
    yield ""
    yield "Pairs of GPUs measured on the same request by the same source that differ by more than 10%: the share in which the"
    yield "faster one is named. Both by one fit that never saw one of the two (each in turn: a new GPU against a known one); and"
    yield "each by the fit that never saw itself, so that what both have in common (software, host) does not cancel."
    yield ""
    yield "| rows | pairs | one of the two never seen | goal | each without itself |"
    yield "|---|---|---|---|---|"
    for name, counted in (("decided by the GPU", chosen & ~launched), ("all", chosen)):
        pairs, together, apart = rank_order(design.examples, held, design.actual, counted)
        yield f"| {name} | {pairs:,} | {together:.1%} | 95% | {apart:.1%} |"
    yield ""


def _group(key: str) -> Callable[[Example], str]:
    return lambda example: example.groups[key]


def _table(title: str, scores: Mapping[str, Score]) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    yield "| | rows | mean | median | p90 | bias |"
    yield "|---|---|---|---|---|---|"
    for name, scored in scores.items():
        yield f"| {name} | {scored.rows} | {scored.mean:.1%} | {scored.median:.1%} | {scored.p90:.1%} | {scored.bias:+.1%} |"
    yield ""


def _worst(design: Design, held: HeldOut) -> Iterator[str]:
    logs = design.errors(held.gpu)
    yield "## Worst cases, without the GPU"
    yield ""
    yield "| source | GPU | request | measured | predicted |"
    yield "|---|---|---|---|---|"
    for place in np.argsort(-np.abs(logs))[:25]:
        example = design.examples[place]
        request = ", ".join(f"{name} {value}" for name, value in _brief(example))
        seconds = f"{example.seconds:.4g} s | {np.exp(held.gpu[place]):.4g} s"
        yield f"| {example.groups['source']} | {example.groups['gpu']} | {request} | {seconds} |"
    yield ""


def _brief(example: Example) -> Iterable[tuple[str, object]]:
    request = example.row.request
    fields = ((name, request.get(name)) for name in ("task", "model", "precision", "batch", "seq_in", "seq_out"))
    return ((name, value) for name, value in fields if isinstance(value, str | int | float))


def main() -> int:
    """Print the page."""
    for line in lines(Path(sys.argv[1]) if len(sys.argv) > 1 else None):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
