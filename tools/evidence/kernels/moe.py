"""Add MoE kernels of aiconfigurator's tables to the evidence table; rows of this source that it already has are replaced.

    PYTHONPATH=src:tools python -m evidence.kernels.moe ../shared/truth

A row is the routed experts of one layer on one rank. Two facts that the source does not state follow from its collector and from
its times: `tokens` are those of all ranks together before routing, and with expert parallelism the busiest rank is timed (at
8,192 tokens a rank of 8 takes 0.28 of the time of all experts, not 0.125). Expert loads are drawn from a power law; `rows` and
`touched` of a measurement are the mean of such draws. Only the fastest kernel of each engine and setting is used, since an
engine would choose it.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from evidence.names import gpu_id
from evidence.reasons import Reason
from whichgpu.catalog.evidence import TABLE, Measurement, measurements, table_bytes
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog

SOURCE, FILE = "aiconfigurator-moe", Path("public2") / "aiconfigurator_moe_ops.csv.gz"
PATH, DATE, YEAR = "ai-dynamo/aiconfigurator@095f58a:systems/data", "2026", 2026
SETTING = ("gpu", "engine", "version", "shape", "dtype", "tokens", "moe_tp", "moe_ep")
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
# Bytes per weight with block scales: fp32 per 128 x 128 block, fp8 per 16 weights, 8 bits per 32 weights, 16 bits per 32 weights.
WEIGHT_BYTES = {
    "bfloat16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4.0 / 128**2,
    "nvfp4": 0.5 + 1.0 / 16,
    "w4a8_mxfp4_mxfp8": 0.5 + 1.0 / 32,
    "w4a16_mxfp4": 0.5 + 1.0 / 32,
    "int4_wo": 0.5 + 2.0 / 32,
}
UNGATED = ("Nemotron-3-Nano",)  # squared ReLU: two matrices per expert instead of three
DEQUANTISED_AT_LOAD = ("w4a16_mxfp4", "sglang_fused_moe_triton")  # SGLang's Triton kernel multiplies mxfp4 weights as bf16
EXPONENT, DRAWS = 1.2, 8  # exponent of the power law, as the file states; draws averaged
FLOOR_TOLERANCE = 1.05  # rows whose bytes over seconds exceed the bandwidth by this factor are left out
STRIDE, SMALL_GROUP_STRIDE, SMALL_GROUP_ROWS = (
    7,
    3,
    110,
)  # one row of 7 is used, of 3 if a GPU, dtype and engine have few

Row = Mapping[str, str]


def draw_loads(tokens: int, topk: int, experts: int, ranks: int, generator: np.random.Generator) -> np.ndarray:
    """Return tokens per expert, [ranks, experts of a rank], drawn as the source's collector draws them."""
    lowest, highest = (1.0, 0.8 * tokens) if tokens * topk > experts else (0.01, 2.0)
    edges = lowest ** (1 - EXPONENT), highest ** (1 - EXPONENT)
    loads = (edges[0] + (edges[1] - edges[0]) * generator.random(experts)) ** (1 / (1 - EXPONENT))
    counts: np.ndarray = np.minimum(np.rint(loads / loads.sum() * tokens * topk), tokens).reshape(ranks, -1)
    step = 1.0 if counts.sum() < tokens * topk else -1.0
    for turn in range(int(abs(tokens * topk - counts.sum()))):  # Correct rounding at the least (most) loaded experts.
        rank = counts[turn % ranks]
        rank[rank.argmin() if step > 0 else rank.argmax()] += step
    return counts


@cache
def gpus() -> Mapping[str, Gpu]:
    """Return the catalog's GPUs by id."""
    return Catalog().gpu_by_id


@cache
def busiest_rank(tokens: int, topk: int, experts: int, ranks: int) -> tuple[float, float]:
    """Return the rows and the distinct experts of the busiest rank, averaged over draws."""
    generator = np.random.default_rng(0)
    drawn = [draw_loads(tokens, topk, experts, ranks, generator) for _ in range(DRAWS)]
    busiest = [counts[counts.sum(axis=1).argmax()] for counts in drawn]
    return float(np.mean([one.sum() for one in busiest])), float(np.mean([np.count_nonzero(one) for one in busiest]))


def fastest_rows(lines: Iterable[Row]) -> Iterator[tuple[int, Row]]:
    """Yield line number and cells of the fastest kernel of each engine and setting; rows whose experts lie in L2 are left out."""
    best: dict[tuple[str, ...], tuple[int, Row]] = {}
    for number, row in enumerate(lines, start=2):
        key = tuple(row[name] for name in SETTING)
        if row["l2"] != "1" and (key not in best or float(row["ms"]) < float(best[key][1]["ms"])):
            best[key] = number, row
    yield from best.values()


def measurement(number: int, row: Row) -> Measurement | Reason:
    """Return a row as a measurement, or the reason why it is left out."""
    gpu = gpu_id(row["gpu"])
    if isinstance(gpu, Reason):
        return gpu
    tokens, topk, experts, tp, ep = (int(row[name]) for name in ("tokens", "topk", "experts", "moe_tp", "moe_ep"))
    hidden, ffn, ups = int(row["hidden"]), int(row["inter"]) // tp, 1 if row["shape"] in UNGATED else 2
    rows, touched = busiest_rank(tokens, topk, experts, ep)
    dtype = "bfloat16" if (row["dtype"], row["kernel"]) == DEQUANTISED_AT_LOAD else row["dtype"]
    weight, seconds = touched * (ups + 1) * hidden * ffn * WEIGHT_BYTES[dtype], float(row["ms"]) * 1e-3
    if weight / gpus()[gpu].memory_bandwidth > FLOOR_TOLERANCE * seconds:
        return Reason.SUSPICIOUS
    request = {
        "kind": "moe",
        "dtype": dtype,
        "engine": f"{ENGINES[row['engine']]} {row['version']}",
        "year": YEAR,
        "kernel": row["kernel"],
        "hidden": hidden,
        "ffn": ffn,
        "ups": ups,
        "topk": topk,
        "experts": experts,
        "tokens": tokens,
        "tp": tp,
        "ep": ep,
        "rows": round(rows, 2),
        "touched": round(touched, 2),
        "weight": round(weight),
    }
    return Measurement(SOURCE, gpu, request, seconds, "op", "medium", row["shape"], number, path=PATH, date=DATE)


def read_moe_kernels(truth: Path) -> list[Measurement | Reason]:
    """Return every row that an engine would choose, or the reason why it is left out."""
    with gzip.open(truth / FILE, "rt", newline="", encoding="utf-8") as text:
        return [measurement(number, row) for number, row in fastest_rows(csv.DictReader(text))]


def representative(rows: Iterable[Measurement]) -> list[Measurement]:
    """Return a sample of the rows with all GPUs, formats, engines, sizes and shapes in proportion."""
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for row in rows:
        groups.setdefault((row.gpu, row.request["dtype"], row.request["engine"]), []).append(row)
    order = ("tokens", "hidden", "experts", "ffn", "ep")
    chosen: list[Measurement] = []
    for _, group in sorted(groups.items()):
        group.sort(key=lambda row: tuple(row.request[name] for name in order))
        chosen += group[:: SMALL_GROUP_STRIDE if len(group) < SMALL_GROUP_ROWS else STRIDE]
    return chosen


def main(truth: Path) -> None:
    """Write the evidence table with this source's rows replaced and print how many rows are used and left out."""
    read = read_moe_kernels(truth)
    rows = [row for row in read if isinstance(row, Measurement)]
    chosen = representative(rows)
    TABLE.write_bytes(table_bytes([*(row for row in measurements() if row.source != SOURCE), *chosen]))
    print(f"{len(read)} fastest rows outside L2; left out {dict(Counter(row for row in read if isinstance(row, Reason)))}")
    print(f"{len(chosen)} of {len(rows)} rows kept; {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
