"""Measured runs of serving engines: their load (concurrency or request rate) and the metrics measured.

The rows of one run are joined. The simulator queues requests, so runs whose batch does not fit at once are included.

PYTHONPATH=src:tools python -m evidence.serving_rows ../shared/truth
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from evidence.names import doubt, table
from evidence.published import Published, read_published
from evidence.reasons import Reason
from evidence.requests import measured
from whichgpu.catalog.evidence import Measurement
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides
from whichgpu.estimate.serving.simulator import RoutingPolicy

# Our name of each printed metric, and the factor to seconds or tokens per second.
METRICS = {
    "ms TPOT median": ("tpot", 1e-3), "ms TTFT median": ("ttft", 1e-3), "tokens/s (output, total)": ("throughput", 1.0),
    "ms/token (TBT)": ("tpot", 1e-3), "ms prompt (TTFT)": ("ttft", 1e-3), "ms mean ITL": ("tpot", 1e-3),
    "ms mean TTFT": ("ttft", 1e-3), "tokens/s/GPU (output)": ("throughput", 1.0),
}  # fmt: skip
ONLINE_REQUESTS = 512  # of TensorRT-LLM's online runs, which do not print it: inferred from the rates they reached
FLOOD_ROUNDS = 3  # requests of a run at maximum load, as a multiple of those that fit at once
CAPPED = "results/pro6000_l40s_h100_h200/"  # cloudrift's folder of runs with --max-num-seqs 256
_REPLICAS = re.compile(r"(\d+) replica\(s\) x TP(\d+) PP(\d+)")


class Served(msgspec.Struct):
    """One run: `requests` in all, sent by `concurrency` clients or arriving at a `rate` (0: all at once)."""

    source: str
    kind: str  # static, clients, online, flood
    gpu: str
    request: Mapping[str, Any]
    requests: int
    concurrency: int | None
    rate: float | None
    mean: bool  # means were printed, not medians
    limits: LimitOverrides = msgspec.field(default_factory=LimitOverrides)
    routing: RoutingPolicy = "least"
    lines: list[int] = msgspec.field(default_factory=list)
    measured: dict[str, float] = msgspec.field(default_factory=dict)  # tpot, ttft: seconds; throughput: output tokens/s


def served_rows(truth: Path, flood: bool = False) -> list[Served]:
    """Every run that states how it was loaded; with `flood` those at maximum load instead."""
    runs: dict[str, Served] = {}
    for row, run in _read(truth):
        if isinstance(run, Reason) or (run.kind == "flood") != flood:
            continue
        name, unit = METRICS[row.metric]
        run = runs.setdefault(repr((run.source, run.kind, run.request, run.concurrency, run.rate)), run)
        run.lines.append(row.line)
        run.measured.setdefault(name, row.value * unit * (row.gpus if row.metric.startswith("tokens/s/GPU") else 1))
    return list(runs.values())


def left_out_rows(truth: Path) -> Counter[tuple[str, Reason]]:
    """Published rows with a metric of serving that are in no run, counted by source and reason."""
    return Counter((row.source, run) for row, run in _read(truth) if isinstance(run, Reason))


def _read(truth: Path) -> Iterator[tuple[Published, Served | Reason]]:
    """Published rows with a metric of serving, each with its run or the reason why it is left out."""
    layouts = _layouts(truth)
    for row in read_published(truth / "public" / "calibration.csv"):
        if row.source in READERS and row.metric in METRICS:
            yield row, doubt(row) or READERS[row.source](row, layouts[row.line])


def _cloudrift(row: Published, layout: str) -> Served | Reason:
    """vLLM under a fixed concurrency behind nginx, whose workers each do their own round robin: in effect random routing.

    Its result files print the flags: --gpu-memory-utilization=0.9 always, --max-num-seqs 256 in the runs of `CAPPED`.
    """
    match, count = _REPLICAS.search(layout), row.noted(r"(\d+) requests")
    if not match:
        return Reason.NO_LAYOUT
    if not count or not row.batch:
        return Reason.NO_BATCH
    replicas, tensor, stages = map(int, match.groups())
    more: dict[str, Any] = {"parallel": {"dp": replicas, "tp": tensor, "pp": stages}}
    if "kv fp8" in row.notes:
        more["kv_precision"] = "fp8"
    capped = CAPPED in row.path and "/tensor-parallel/" not in row.path
    run = _served(row, "clients", more, int(count), row.batch, None, False)
    if isinstance(run, Reason):
        return run
    return replace(run, limits=LimitOverrides(max_sequences=256 if capped else None, memory_share=0.9), routing="random")


def _splitwise(row: Published, _: str) -> Served | Reason:
    """One batch: all prompts at once, then all answers."""
    if not row.batch:
        return Reason.NO_BATCH
    return _served(row, "static", {"parallel": {"tp": row.gpus}}, row.batch, row.batch, None, False)


def _tensorrt_llm(row: Published, _: str) -> Served | Reason:
    """Static batches, a given request rate, or maximum load."""
    more: dict[str, Any] = {"parallel": {"tp": row.gpus}}
    if row.precision == "FP8":
        more["kv_precision"] = "fp8"
    if row.notes.startswith("static batching") and row.batch:
        return _served(row, "static", more, row.batch, row.batch, None, True)
    if row.notes.startswith("online serving"):
        rate = row.noted(r"QPS=(\w+)")
        return _served(row, "online", more, ONLINE_REQUESTS, None, 0.0 if rate == "INF" else float(rate), True)
    if row.notes.startswith("in-flight batching"):
        return _served(row, "flood", more, 0, None, 0.0, True)
    return Reason.NO_BATCH


READERS: Mapping[str, Callable[[Published, str], Served | Reason]] = {
    "cloudrift": _cloudrift,
    "splitwise": _splitwise,
    "trtllm": _tensorrt_llm,
}


def _served(
    row: Published, kind: str, more: dict[str, Any], requests: int, concurrency: int | None, rate: float | None, mean: bool
) -> Served | Reason:
    lengths = {"seq_in": row.seq_in, "seq_out": row.seq_out, "batch": row.batch or 1}
    measurement = measured(row, "decode", row.value, more={**lengths, **more})
    if isinstance(measurement, Reason):
        return measurement
    request = {**measurement.request, "task": "serve", **_host(measurement)}
    return Served(row.source, kind, measurement.gpu, request, requests, concurrency, rate, mean)


def _host(measurement: Measurement) -> dict[str, Any]:
    rows = [row for row in table("group_hosts") if (row["source"], row["gpu"]) == (measurement.source, measurement.gpu)]
    return {"host_speed": float(rows[0]["host_speed"])} if rows else {}


def _layouts(truth: Path) -> dict[int, str]:
    """Parallelism of each line's run, as the source writes it."""
    with (truth / "public" / "calibration.csv").open(newline="") as stream:
        return {line: row["parallelism"] for line, row in enumerate(csv.DictReader(stream), start=2)}


def main(truth: Path) -> None:
    """Print the number of runs by source, kind of load and GPU."""
    rows = served_rows(truth) + served_rows(truth, flood=True)
    for (source, kind, gpu), count in sorted(Counter((row.source, row.kind, row.gpu) for row in rows).items()):
        print(source, kind, gpu, count, sep="\t")
    for (source, reason), count in sorted(left_out_rows(truth).items()):
        print(source, "left out", reason, count, sep="\t")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/truth"))
