"""Attention and MLA kernels of serving engines, from aiconfigurator's tables, as operator rows of the evidence table.

PYTHONPATH=src:tools python -m evidence.kernels.attention ../shared/truth

Adds or replaces the rows of these sources in the table as it is, so that it can be run again after a merge. Of the kernels that
were timed at one setting the fastest counts, since engines choose it. Rows served from L2 (`l2`) and rows below bytes over
bandwidth (`bad`) are left out and counted.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from evidence.names import gpu_id
from evidence.reasons import Reason
from whichgpu.catalog.evidence import TABLE, Measurement, evidence_sources, measurements, table_bytes

ATTENTION, MLA = "aiconfigurator-attention", "aiconfigurator-mla"
SOURCES = {ATTENTION: "aiconfigurator_attention_ops.csv.gz", MLA: "aiconfigurator_mla_linear_ops.csv.gz"}
PATH = "ai-dynamo/aiconfigurator@095f58a"
DTYPES = {"bfloat16": "bf16", "fp8": "fp8"}
YEARS = {"trtllm 1.0.0": 2025}  # release year of engine versions older than 2026
# Shapes that are thinned to every second setting (batch, length): others with the same ratio of query to KV heads are complete.
THINNED = ((8, 1), (32, 8))
TRUSTED = "ok"
MLA_OPS = {"mla-prefill": "attention", "mla-decode": "decode_attention"}
ATTENTION_OPS = {"attention-prefill": "attention", "attention-decode": "decode_attention"}

Row = tuple[int, dict[str, str]]


def kernel_rows(truth: Path) -> tuple[list[Measurement], Counter[str]]:
    """Return measured attention kernels of all sources, and the number of lines left out, by reason."""
    left_out: Counter[str] = Counter()
    attention = _fastest(ATTENTION, _attention(lines(truth, ATTENTION), left_out), left_out)
    mla = _fastest(MLA, _mla(lines(truth, MLA), left_out), left_out)
    return attention + mla, left_out


def with_rows(table: Iterable[Measurement], rows: Iterable[Measurement]) -> list[Measurement]:
    """Return the table's rows of other sources, followed by the new rows."""
    added = list(rows)
    sources = {row.source for row in added}
    return [row for row in table if row.source not in sources] + added


def lines(truth: Path, source: str) -> Iterator[Row]:
    """Yield the lines of a source's file with their numbers."""
    with gzip.open(truth / "public2" / SOURCES[source], "rt", encoding="utf-8", newline="") as text:
        yield from enumerate(csv.DictReader(text), start=2)


def _attention(lines: Iterable[Row], left_out: Counter[str]) -> Iterator[tuple[int, str, dict[str, Any], float]]:
    """GPU, sizes and seconds of each trusted line; in decode `seq_in` is the length of the KV cache."""
    for line, cells in lines:
        if cells["trust"] != TRUSTED:
            left_out[f"{ATTENTION} {cells['trust']}"] += 1
            continue
        heads, kv_heads = int(cells["q_heads"]), int(cells["kv_heads"])
        sizes = {"heads": heads, "kv_heads": kv_heads, "dim": int(cells["head_dim"])}
        batch, length = int(cells["batch"]), int(cells["seq"])
        if (heads, kv_heads) in THINNED and (batch.bit_length() // 2 + length.bit_length()) % 2:
            left_out[f"{ATTENTION} thinned"] += 1
            continue
        dtypes = {"dtype": DTYPES[cells["dtype"]], "kv_dtype": DTYPES[cells["kv_dtype"]]}
        op = {"kind": ATTENTION_OPS[cells["op"]], **engine_version(cells), "batch": batch, "seq_in": length, **dtypes, **sizes}
        yield line, cells["gpu"], op, float(cells["ms"]) * 1e-3


def _mla(lines: Iterable[Row], left_out: Counter[str]) -> Iterator[tuple[int, str, dict[str, Any], float]]:
    """The kernel alone: modules with projections inside and linear attention are left out."""
    for line, cells in lines:
        if cells["op"] not in MLA_OPS:
            left_out[f"{MLA} {cells['op']}"] += 1
            continue
        dtype, _, kv_dtype, *_ = cells["dtype"].split()
        dtypes = {"dtype": DTYPES[dtype], "kv_dtype": DTYPES[kv_dtype]}
        sizes = {"batch": int(cells["batch"]), "seq_in": int(cells["seq_in"]), **dtypes, "heads": int(cells["heads"])}
        yield line, cells["gpu"], {"kind": MLA_OPS[cells["op"]], **engine_version(cells), **sizes}, float(cells["ms"]) * 1e-3


def engine_version(cells: dict[str, str]) -> dict[str, Any]:
    """Release year, engine, version and kernel of a line."""
    version = f"{cells['engine']} {cells['version']}"
    return {"year": YEARS.get(version, 2026), "engine": f"{version} {cells['kernel']}"}


def _fastest(source: str, rows: Iterable[tuple[int, str, dict[str, Any], float]], left_out: Counter[str]) -> list[Measurement]:
    """One row per GPU and setting: that of the fastest kernel."""
    best: dict[tuple[Any, ...], Measurement] = {}
    for line, name, op, seconds in rows:
        gpu = gpu_id(name)
        if isinstance(gpu, Reason):
            left_out[f"{source} {gpu}"] += 1
            continue
        setting = gpu, *(value for field, value in op.items() if field not in ("engine", "year"))
        family = " ".join(str(op[field]) for field in ("kind", "heads", "batch", "seq_in"))
        row = Measurement(source, gpu, op, seconds, "op", "medium", family, line, path=f"{PATH}:{SOURCES[source]}", date="2026")
        if setting in best:
            left_out[f"{source} slower kernel"] += 1
        if setting not in best or seconds < best[setting].seconds:
            best[setting] = row
    return list(best.values())


def main(truth: Path) -> None:
    """Write the table with these rows in it and print the counts."""
    rows, left_out = kernel_rows(truth)
    if unknown := set(SOURCES) - set(evidence_sources()):
        raise SystemExit(f"no licence and address in evidence_sources.csv: {sorted(unknown)}")
    TABLE.write_bytes(table_bytes(with_rows(measurements(), rows)))
    for (source, gpu, kind), count in sorted(Counter((row.source, row.gpu, row.request["kind"]) for row in rows).items()):
        print(source, gpu, kind, count, sep="\t")
    print(f"{len(rows)} rows; left out: " + "; ".join(f"{count} {reason}" for reason, count in left_out.most_common()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
