"""Time to simulate an hour of a conversation trace at 20 requests per second on eight GPUs.

The published trace is used if it is next to the checkout, else lengths are drawn from a similar distribution.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.start import ROOT, Result, timed
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.server import server_of
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.traces.reader import read_trace

RATE, SECONDS, GOAL = 20.0, 3600.0, 10.0
SHARED = Path(os.environ.get("WHICHGPU_SHARED", ROOT.parent / "shared"))
TRACE = SHARED / "traces" / "AzureLLMInferenceTrace_conv.csv"
CASES = [
    ("llama-3.1-8b", "h100-sxm", {"dp": 8}),
    ("llama-3.1-8b", "a100-sxm-80gb", {"dp": 8}),
    ("llama-3.1-70b", "h200-sxm", {"tp": 8}),
]


def results() -> Iterator[Result]:
    """Seconds of each case in turn: reading the trace, tabulating the steps, serving."""
    for model, gpu, parallel in CASES:
        words = ",".join(f"{name}={size}" for name, size in parallel.items())
        yield timed(f"an hour at {RATE:g}/s of {model} on 8 x {gpu}, {words}", GOAL, _hour(model, gpu, parallel), 3)


def _hour(model: str, gpu: str, parallel: dict[str, int]) -> Callable[[], object]:
    catalog = Catalog()
    shape = find_model(model, catalog)
    assert isinstance(shape, Transformer)
    request = {"task": "serve", "model": model, "gpus": 8, "parallel": parallel}
    workload = fill_defaults(from_object(request).workload, shape)

    def run() -> object:
        trace = read_trace(TRACE) if TRACE.is_file() else None
        load = Load(RATE, Lengths(1155, 1.0), Lengths(211, 0.8), int(RATE * SECONDS), trace=trace)
        return server_of(workload, shape, catalog.gpu_by_id[gpu], longest=16384).run(load.arrivals())

    return run
