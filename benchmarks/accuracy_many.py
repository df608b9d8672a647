"""Predicted times of groups of GPUs against measured ones, by fits that never saw the GPU.

docs/evidence/accuracy-many.md is this program's output:

    PYTHONPATH=src:tools python -m calibration.group_scores --held-out groups.json
    PYTHONPATH=src:tools python -m benchmarks.accuracy_many ../shared/truth groups.json > docs/evidence/accuracy-many.md
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import numpy as np
from calibration.fit import digest
from calibration.group_examples import group_examples
from calibration.group_scores import HeldOutRows, HeldRow, load
from calibration.scores import Score, score
from evidence.group_rows import loaded_rows

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.breakdown import combine_parts
from whichgpu.estimate.group.group_calibration import load_group_calibration

GOAL = 0.18  # median error of a source, each GPU left out
NEAR, CASES = 0.08, 0.80  # goal for the scaling efficiency: largest error, and share of the cases within it


def lines(truth: Path, held: HeldOutRows) -> Iterator[str]:
    """Lines of the page."""
    yield "# How far predicted times of groups of GPUs are from measured ones"
    yield ""
    yield f"Made by `python -m benchmarks.accuracy_many` on {date.today().isoformat()} from {len(held.rows):,} measured steps on"
    yield f"several GPUs (digest {digest()[:12]}). Errors are shares of the measured time. The corrections of the work and"
    yield "those of the links were both fitted without the GPU that is predicted; layouts are those the sources ran."
    yield "(While the links are fitted without a GPU, the work of the other GPUs' rows is corrected by the fit on all of them."
    yield "If one GPU alone was measured on the same work, links are fitted with that time given, so that they do not compensate"
    yield "errors in the estimate of the work.)"
    yield ""
    yield from sources(held)
    yield from scaling(held)
    yield from table("## By number of GPUs", held, lambda row: f"{row.gpus:>3}")
    yield from table("## By GPU", held, lambda row: row.gpu)
    yield from table("## By kind of step", held, lambda row: f"{row.source} {row.kind}")
    yield from loaded(truth)
    yield from worst(held)


def sources(held: HeldOutRows) -> Iterator[str]:
    """Medians by source against the goal."""
    yield "## By source"
    yield ""
    yield "| source | layout | rows | mean | median | p90 | bias | goal (median) | met |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, rows in grouped(held.rows, lambda row: row.source).items():
        scored = score(logs(rows))
        met = "yes" if scored.median <= GOAL else "no"
        yield f"| {name} | {LAYOUTS[name]} | {cells(scored)} | {GOAL:.0%} | {met} |"
    yield ""


LAYOUTS = {
    "argonne": "tensor parallel, 2 to 8",
    "cloudrift": "replicas, tensor and pipeline parallel, served",
    "llm-foundry": "FSDP, 8 to 128",
    "mlperf-inf": "replicas that do not communicate",
    "nv-dle": "data parallel, 2 to 64",
    "ryujaehun": "torch.nn.DataParallel, 2 to 4",
    "splitwise": "tensor parallel, 2 to 8",
    "trtllm": "tensor parallel, 2 to 8",
}


def scaling(held: HeldOutRows) -> Iterator[str]:
    """Scaling efficiencies of rows for which one GPU alone was measured as well."""
    yield "## Scaling efficiency"
    yield ""
    yield "Throughput per GPU relative to one GPU alone, if one alone was measured on the same work: share of cases in which it"
    yield f"is predicted within {NEAR * 100:.0f} points (goal: {CASES:.0%}), and the median distance in points. The time of one"
    yield "GPU is given; in the last column it is predicted as well."
    yield ""
    yield "| source | cases | within | median distance | measured, median | predicted, median | within, nothing given |"
    yield "|---|---|---|---|---|---|---|"
    both = [row for row in held.rows if row.alone_measured > 0]
    groups = {**grouped(both, lambda row: f"{row.source}, {row.kind}"), "all": both}
    for name, rows in groups.items():
        pairs = np.array([row.efficiency for row in rows])
        apart = np.abs(pairs[:, 0] - pairs[:, 1])
        blind = np.array([abs(row.blind[0] - row.blind[1]) for row in rows])
        yield (
            f"| {name} | {len(rows)} | {np.mean(apart <= NEAR):.0%} | {100 * np.median(apart):.1f} | "
            f"{np.median(pairs[:, 0]):.0%} | {np.median(pairs[:, 1]):.0%} | {np.mean(blind <= NEAR):.0%} |"
        )
    yield ""


def table(title: str, held: HeldOutRows, key: Callable[[HeldRow], str]) -> Iterator[str]:
    """Scores of rows that share a key."""
    yield title
    yield ""
    yield "| | rows | mean | median | p90 | bias |"
    yield "|---|---|---|---|---|---|"
    for name, rows in grouped(held.rows, key).items():
        yield f"| {name} | {cells(score(logs(rows)))} |"
    yield ""


def loaded(truth: Path) -> Iterator[str]:
    """TensorRT-LLM at maximum load, never fitted on."""
    examples = group_examples(loaded_rows(truth), Catalog())
    groups = load_group_calibration()
    errors = []
    for example in examples:
        factors = groups.factors([example.setting])
        predicted = sum(times * float(combine_parts(parts, factors).wall[0, 0]) for times, parts in example.passes)
        errors.append(np.log(predicted / example.seconds))
    result = score(np.array(errors))
    yield "## TensorRT-LLM at maximum load"
    yield ""
    yield "Tables whose batch is not printed, assumed to be the largest that fits. Nothing was fitted on these rows; refilling"
    yield "of batches by the scheduler is not in this estimate."
    yield ""
    yield "| rows | mean | median | p90 | bias |"
    yield "|---|---|---|---|---|"
    yield f"| {cells(result)} |"
    yield ""


def worst(held: HeldOutRows) -> Iterator[str]:
    """The largest errors."""
    yield "## Worst cases"
    yield ""
    yield "| source | GPU | GPUs | kind | row | measured | predicted |"
    yield "|---|---|---|---|---|---|---|"
    order = np.argsort(-np.abs(held.predicted - held.actual))[:20]
    for row in (held.rows[place] for place in order):
        yield f"| {row.source} | {row.gpu} | {row.gpus} | {row.kind} | {row.row} | {row.measured:.4g} s | {row.predicted:.4g} s |"


def grouped(rows: Sequence[HeldRow], key: Callable[[HeldRow], str]) -> dict[str, list[HeldRow]]:
    groups: dict[str, list[HeldRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(sorted(groups.items()))


def logs(rows: Sequence[HeldRow]) -> np.ndarray:
    return np.log([row.predicted / row.measured for row in rows])


def cells(scored: Score) -> str:
    return f"{scored.rows} | {scored.mean:.1%} | {scored.median:.1%} | {scored.p90:.1%} | {scored.bias:+.1%}"


if __name__ == "__main__":
    print("\n".join(lines(Path(sys.argv[1]), load(Path(sys.argv[2])))))
