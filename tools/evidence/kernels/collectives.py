"""Collectives and expert dispatch of serving engines, from aiconfigurator's tables, as operator rows of the evidence table.

PYTHONPATH=src:tools python -m evidence.kernels.collectives ../shared/truth

Adds or replaces the rows of this source in the table as it is, so that it can be run again after a merge. Collectives launched
one by one show the host's time, not the kernel's: only those replayed from a CUDA graph, NCCL's and TensorRT-LLM's are taken, and
of the Arc Pro B60, which has no others, large ones. The L40S of the source sits in a host of 1 to 3 GB/s and is left out.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from evidence.names import gpu_id
from whichgpu.catalog.evidence import TABLE, Measurement, measurements, table_bytes

SOURCE, FILE = "aiconfigurator-collectives", "aiconfigurator_comm_ops.csv"
PATH = "ai-dynamo/aiconfigurator@095f58a"
KERNEL_ENGINES = {
    "NCCL": "nccl",
    "TRTLLM": "tensorrt-llm",
    "vLLM_custom_graph": "vllm",
    "SGLang_CustomAllReduce_graph": "sglang",
    "DeepEP low-latency": "deepep",
}
EAGER, EAGER_ENGINE, EAGER_GPU = "vLLM_custom_eager", "oneccl", "Arc Pro B60 24GB"
MIN_EAGER_BYTES = 1 << 22  # bytes from which the Arc's times are far above the host's launch overhead
BAD_HOSTS = ("L40S 48GB",)
DTYPE_BYTES = {"half": 2, "bfloat16": 2}  # int8 rows repeat those of half at the same bytes
KINDS = {"alltoall": "all_to_all"}
MIN_BYTES, MAX_BYTES = 1 << 10, 1 << 30
DEEPEP_TOKENS = (1, 8, 32, 128, 512, 1024)  # tokens a rank sends, of 1, 2, 4, … 1024
DEEPEP_SHAPES = ((2048, 8, 128), (4096, 2, 8), (4096, 10, 512), (5120, 1, 16), (6144, 4, 128), (7168, 8, 256), (7168, 8, 384))

Line = tuple[int, dict[str, str]]


def collective_rows(truth: Path) -> tuple[list[Measurement], Counter[str]]:
    """Rows of the source, and how many lines were left out, by reason."""
    left_out: Counter[str] = Counter()
    with (truth / "public2" / FILE).open(newline="", encoding="utf-8") as text:
        lines = list(enumerate(csv.DictReader(text), start=2))
    return _medians(list(_measurements(lines, left_out)), left_out), left_out


def _medians(rows: list[Measurement], left_out: Counter[str]) -> list[Measurement]:
    """The median row of each setting that was measured several times."""
    groups: dict[str, list[Measurement]] = {}
    for row in rows:
        groups.setdefault(f"{row.gpu} {sorted(row.request.items())}", []).append(row)
    left_out["another run of the same setting"] = len(rows) - len(groups)
    return [sorted(group, key=lambda row: row.seconds)[len(group) // 2] for group in groups.values()]


def with_rows(table: Iterable[Measurement], rows: Iterable[Measurement]) -> list[Measurement]:
    """The table's rows of other sources, followed by the new rows."""
    return [row for row in table if row.source != SOURCE] + list(rows)


def _measurements(lines: Iterable[Line], left_out: Counter[str]) -> Iterator[Measurement]:
    for line, cells in lines:
        reason = _reason(cells)
        gpu = gpu_id(cells["gpu"])
        if reason or not isinstance(gpu, str):
            left_out[reason or "unknown GPU"] += 1
            continue
        request, seconds = _expert_exchange(cells) if cells["kernel"].startswith("DeepEP") else _collective(cells)
        version = f"{cells['engine']} {cells['version']}"
        request |= {"gpus": int(cells["n_gpus"]), "version": version}
        yield Measurement(
            SOURCE, gpu, request, seconds, "op", "high", request["kind"], line, path=f"{PATH}:{version}", date="2026-11"
        )


def _reason(cells: dict[str, str]) -> str:
    """Reason why a line is left out, or None."""
    eager = cells["kernel"].endswith("_eager")
    if cells["gpu"] in BAD_HOSTS:
        return "bad host"
    if eager and cells["gpu"] != EAGER_GPU:
        return "launched one by one"
    if cells["kernel"].startswith("DeepEP"):
        shape = int(cells["hidden"]), int(cells["topk"]), int(cells["experts"])
        return "" if shape in DEEPEP_SHAPES and int(cells["tokens"]) in DEEPEP_TOKENS else "another of its kind is taken"
    if cells["dtype"] not in DTYPE_BYTES:
        return "as half of the same bytes"
    size = _bytes(cells)
    if eager and size < MIN_EAGER_BYTES:
        return "launched one by one"
    power_of_four = size.bit_count() == 1 and size.bit_length() % 2 == 1
    return "" if power_of_four and MIN_BYTES <= size <= MAX_BYTES else "another of its kind is taken"


def _bytes(cells: dict[str, str]) -> int:
    """Bytes of the message: the source counts elements of the dtype."""
    return int(cells["elements"]) * DTYPE_BYTES[cells["dtype"]]


def _collective(cells: dict[str, str]) -> tuple[dict[str, Any], float]:
    engine = EAGER_ENGINE if cells["kernel"] == EAGER else KERNEL_ENGINES[cells["kernel"]]
    kind = KINDS.get(cells["collective"], cells["collective"])
    return {"kind": kind, "engine": engine, "bytes": _bytes(cells)}, float(cells["ms"]) * 1e-3


def _expert_exchange(cells: dict[str, str]) -> tuple[dict[str, Any], float]:
    """A dispatch or combine. The source's column named milliseconds holds microseconds here (128 tokens of DeepSeek-V3: 35)."""
    sizes = {name: int(cells[name]) for name in ("tokens", "hidden", "topk", "experts")}
    return {"kind": cells["collective"], "engine": KERNEL_ENGINES[cells["kernel"]], **sizes}, float(cells["ms"]) * 1e-6


def main(truth: Path) -> None:
    """Write the table with these rows and print how many lines were taken and left out."""
    rows, left_out = collective_rows(truth)
    TABLE.write_bytes(table_bytes(with_rows(measurements(), rows)))
    for (gpu, engine, kind), count in sorted(
        Counter((row.gpu, row.request["engine"], row.request["kind"]) for row in rows).items()
    ):
        print(gpu, engine, kind, count, sep="\t")
    print(f"{len(rows)} rows; left out: {dict(left_out)}; {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
