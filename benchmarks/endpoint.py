"""A real vLLM server measured with `whichgpu measure --endpoint` on one H200, beside today's estimates.

    PYTHONPATH=src python -m benchmarks.endpoint > docs/evidence/endpoint-h200.md

`endpoint_h200.csv` has the medians that the command measured on 2026-11-17 (tools/endpoint_check.py runs it again).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.catalog.store import Catalog
from whichgpu.workload.spelling import from_object

ROWS = Path(__file__).with_name("endpoint_h200.csv")
METRICS = ("TTFT", "TPOT", "output tokens/s")
INTRODUCTION = """# A running server, measured and estimated

Made by `python -m benchmarks.endpoint`. `whichgpu measure --endpoint` sent requests to vLLM 0.26 on one H200 SXM (random weights,
bf16, no prefix cache, FlashAttention 3; flashinfer and DeepGEMM were not installed): two models, three lengths, three levels of
concurrency, on 2026-11-17. None of these runs is in the evidence that the model was fitted on; other runs of both models are.
Measured is the median; the error is of today's estimate, and "inside" says whether the 90% range holds the median.

Requests of one length that start together also end together, so that their successors arrive in waves: the first token of a wave
waits for the prompts of all, which the estimate (arrivals spread over time) does not have. It explains most of the errors of TTFT
at 32 requests.
"""


def main() -> None:
    """Print the page."""
    print("\n".join(page()))


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION
    yield "| model | tokens in, out | requests at once | TTFT, ms | error | TPOT, ms | error | output tokens/s | error |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    errors: dict[str, list[float]] = {name: [] for name in METRICS}
    inside: dict[str, int] = dict.fromkeys(METRICS, 0)
    catalog = Catalog()
    for row in csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines()):
        request = {"task": "serve", "gpu": "h200-sxm", "engine": "vllm", "model": row["model"], "batch": int(row["concurrency"])}
        lengths = {"seq_in": int(row["seq_in"]), "seq_out": int(row["seq_out"])}
        estimate = estimate_workload(from_object({**request, **lengths}), lookup_cache(catalog, own=False))
        measured = (float(row["ttft_ms"]) / 1e3, float(row["tpot_ms"]) / 1e3, float(row["tokens_per_second"]))
        cells = []
        for name, figure, value in zip(METRICS, (estimate.ttft, estimate.tpot, estimate.throughput), measured, strict=True):
            assert figure is not None
            errors[name].append(figure.value / value - 1)
            inside[name] += figure.low <= value <= figure.high
            shown = value if name == METRICS[2] else value * 1e3
            cells += [f"{shown:,.0f}" if shown >= 100 else f"{shown:.3g}", f"{errors[name][-1]:+.0%}"]
        yield f"| {row['model']} | {row['seq_in']}, {row['seq_out']} | {row['concurrency']} | {' | '.join(cells)} |"
    yield ""
    for name in METRICS:
        sizes = [abs(one) for one in errors[name]]
        yield f"- {name}: {mean(sizes):.1%} off on average, median {median(sizes):.1%}, inside {inside[name]} of {len(sizes)}."


if __name__ == "__main__":
    main()
