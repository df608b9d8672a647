"""One pass of the denoising networks of image and video pipelines, measured on one H200, beside today's estimates.

    PYTHONPATH=src python -m benchmarks.diffusion > docs/evidence/diffusion-h200.md

`diffusion_h200.csv` has the median seconds and the peak of allocated memory, measured on 2026-11-17 with diffusers 0.42.
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

ROWS = Path(__file__).with_name("diffusion_h200.csv")
INTRODUCTION = """# Image and video networks, measured and estimated

Made by `python -m benchmarks.diffusion`. One pass of each denoising network (random weights, bf16, eager PyTorch 2.11, diffusers
0.42, default size of its pipeline) was measured on one H200 SXM on 2026-11-17. None of these networks is in the evidence that the
model was fitted on. Memory is the peak that PyTorch's allocator reports.

These rows have shown two causes since: corrections of attention, learnt from classifiers of at most 1,025 tokens, do not apply
above 2,048 (long videos were estimated up to 60% too slow), and a framework call of a UNet in diffusers costs the host 1.5 times
another network's (read from the UNets here and from two published runs). What is known of the errors left: PixArt and Sana are
bound by the host too; HunyuanVideo masks its attention, which takes a slower kernel. Stable Diffusion 3.5 medium keeps a table of
positions that is no parameter and is not counted.
"""


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION
    yield "| model | pictures | measured, ms | estimated, ms | error | inside | memory measured, GiB | estimated | error |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    lookups, times, peaks, held = lookup_cache(Catalog(), own=False), [], [], 0
    for row in csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines()):
        seconds, peak = float(row["seconds"]), float(row["peak_bytes"])
        settings = {"precision": "bf16", "engine": "pytorch", "memory_format": "contiguous"}
        request = {"task": "forward", "gpu": "h200-sxm", "model": row["model"], "batch": int(row["batch"]), **settings}
        answer = estimate_workload(from_object(request), lookups)
        assert answer.time is not None
        time, memory = answer.time, answer.memory.value
        times.append(time.value / seconds - 1)
        peaks.append(memory / peak - 1)
        held += (inside := time.low <= seconds <= time.high)
        speed = f"{_milliseconds(seconds)} | {_milliseconds(time.value)} | {times[-1]:+.0%} | {'yes' if inside else 'no'}"
        yield f"| {row['model']} | {row['batch']} | {speed} | {peak / 2**30:.2f} | {memory / 2**30:.2f} | {peaks[-1]:+.1%} |"
    yield f"\nTime: {_summary(times)}, inside the range {held} of {len(times)}. Memory: {_summary(peaks)}."


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.{0 if seconds >= 1 else 1}f}"


def _summary(errors: list[float]) -> str:
    sizes = [abs(error) for error in errors]
    return f"{mean(sizes):.1%} off on average, median {median(sizes):.1%}"


if __name__ == "__main__":
    print("\n".join(page()))
