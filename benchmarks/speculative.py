"""Speculative decoding measured in PyTorch on one H200, beside today's estimates.

    PYTHONPATH=src python -m benchmarks.speculative > docs/evidence/speculative-h200.md

`speculative_h200.csv` has the seconds of single passes, measured on 2026-11-17 (tools/speculative_check.py measures them again).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

import msgspec

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.base.figure import Figure
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.spelling import from_object

ROWS = Path(__file__).with_name("speculative_h200.csv")
DRAFTS = {"llama-3.1-8b": "llama-3.2-1b", "qwen2.5-14b": "qwen2.5-0.5b"}  # draft of each model
BATCHES, DRAFTED = (1, 8, 32, 128), (2, 4, 8)
CONTEXT, ACCEPTANCE = 1024, 0.7
INTRODUCTION = """# Speculative decoding, measured and estimated

Made by `python -m benchmarks.speculative`. Passes of two models and their drafts were measured in PyTorch 2.11 on one H200 SXM on
2026-11-17 (random weights, bf16, compiled layers, CUDA graphs, 1,024 tokens in the cache). A step drafts a few tokens one by one
and verifies them in one pass. Times are per output token if 70% of the drafted ones are accepted; "gain" is plain decode over
that, below 1 where drafting does not pay. None of these rows is in the evidence that the model was fitted on.

PyTorch's decode kernel takes one token of each sequence. The drafted ones run in its prefill kernel, in which every head works on
a nearly empty tile of queries: this is why drafting stops paying at fewer sequences than in engines whose kernels pack the heads.
That cause was found with these rows; before, estimates were up to 41% too fast at 128 sequences.
"""


class Comparison(msgspec.Struct, frozen=True):
    """Measured and estimated seconds per output token of one way of speculative decoding, and of plain decode."""

    model: str
    batch: int
    drafted: int
    measured: float
    measured_plain: float
    estimated: Figure
    estimated_plain: Figure

    @property
    def error(self) -> float:
        """Relative error of the estimate."""
        return self.estimated.value / self.measured - 1

    @property
    def inside(self) -> bool:
        """Whether the estimate's range holds the measured time."""
        return self.estimated.low <= self.measured <= self.estimated.high

    @property
    def gains(self) -> tuple[float, float]:
        """Gain over plain decode: measured and estimated."""
        return self.measured_plain / self.measured, self.estimated_plain.value / self.estimated.value


def comparisons() -> Iterator[Comparison]:
    """Yield each measured way of speculative decoding beside its estimate."""
    rows = csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines())
    seconds = {(row["model"], int(row["batch"]), int(row["tokens"])): float(row["seconds"]) for row in rows}
    lookups = lookup_cache(Catalog(), own=False)
    for model, draft in DRAFTS.items():
        for batch in BATCHES:
            plain = _estimate(model, batch, lookups)
            for drafted in DRAFTED:
                step = drafted * seconds[draft, batch, 1] + seconds[model, batch, drafted + 1]
                accepted = sum(ACCEPTANCE**place for place in range(drafted + 1))
                spelled = f"draft={draft},tokens={drafted},acceptance={ACCEPTANCE}"
                estimated = _estimate(model, batch, lookups, speculative=spelled)
                yield Comparison(model, batch, drafted, step / accepted, seconds[model, batch, 1], estimated, plain)


def _estimate(model: str, batch: int, lookups: LookupCache, **fields: str) -> Figure:
    """Return the time of one decode step per output token."""
    request = {"task": "decode", "gpu": "h200-sxm", "engine": "cuda-graphs", "model": model, "batch": batch}
    time = estimate_workload(from_object({**request, "seq_in": CONTEXT - 1, **fields}), lookups).time
    assert time is not None
    return time


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION
    yield "| model | sequences | tokens drafted | measured, ms | estimated, ms | error | gain measured | gain estimated |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    found = list(comparisons())
    for one in found:
        times = f"{one.measured * 1e3:.2f} | {one.estimated.value * 1e3:.2f} | {one.error:+.0%}"
        gains = " | ".join(f"{gain:.2f}" for gain in one.gains)
        yield f"| {one.model} | {one.batch} | {one.drafted} | {times} | {gains} |"
    errors, inside = [abs(one.error) for one in found], sum(one.inside for one in found)
    yield f"\n{mean(errors):.1%} off on average, median {median(errors):.1%}, inside the range {inside} of {len(found)}."


if __name__ == "__main__":
    print("\n".join(page()))
