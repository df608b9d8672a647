"""Kernels of linear attention over prompts, from aiconfigurator's tables, as operator rows of the evidence table.

PYTHONPATH=src:tools python -m evidence.kernels.linear ../shared/truth

Adds or replaces the rows of this source in the table as it is. Models whose layers have the same heads on a GPU are one setting,
which is kept once for each kernel. Decode kernels and those that verify drafts are left out and counted, as are convolutions of
Mamba-2, whose scan was not timed.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from evidence.kernels.attention import MLA, PATH, SOURCES, engine_version, lines, with_rows
from evidence.names import gpu_id
from evidence.reasons import Reason
from whichgpu.catalog.evidence import TABLE, Measurement, measurements, table_bytes

LINEAR = "aiconfigurator-linear"
RULES = {"gdn-context": "gated_delta", "kda-context": "kda"}
CONVOLUTIONS_OF = "vllm"  # SGLang's rows say the same; TensorRT-LLM's kernel is another
OTHER_CONVOLUTION = "causal_conv1d_fn_qkv3"  # three convolutions where others run one
SIZES = ("k_heads", "k_dim", "v_heads", "v_dim", "batch", "seq_in")


def kernel_rows(truth: Path) -> tuple[list[Measurement], Counter[str]]:
    """Return one row per GPU, kernel and setting, and the number of lines left out, by reason."""
    left_out: Counter[str] = Counter()
    rows: dict[tuple[Any, ...], Measurement] = {}
    for line, cells in lines(truth, MLA):
        if cells["op"] not in RULES or cells["kernel"] == OTHER_CONVOLUTION:
            left_out[cells["op"] if cells["op"] not in RULES else cells["kernel"]] += 1
            continue
        gpu = gpu_id(cells["gpu"])
        if isinstance(gpu, Reason):
            left_out[str(gpu)] += 1
            continue
        kind = "short_conv" if "conv" in cells["kernel"] else "scan"
        if kind == "short_conv" and cells["engine"] != CONVOLUTIONS_OF:
            left_out["the convolution of another engine"] += 1
            continue
        sizes = {name: int(float(cells[name])) for name in SIZES}
        op = {"kind": kind, **engine_version(cells), "rule": RULES[cells["op"]], **sizes}
        setting = gpu, *op.values()
        if setting in rows:
            left_out["the same setting of another model"] += 1
            continue
        family = " ".join(str(op[field]) for field in ("kind", "v_heads", "batch", "seq_in"))
        path = f"{PATH}:{SOURCES[MLA]}"
        seconds = float(cells["ms"]) * 1e-3
        rows[setting] = Measurement(LINEAR, gpu, op, seconds, "op", "medium", family, line, path=path, date="2026")
    return list(rows.values()), left_out


def main(truth: Path) -> None:
    """Write the table with these rows in it and print the counts."""
    rows, left_out = kernel_rows(truth)
    TABLE.write_bytes(table_bytes(with_rows(measurements(), rows)))
    for (gpu, kind), count in sorted(Counter((row.gpu, row.request["kind"]) for row in rows).items()):
        print(gpu, kind, count, sep="\t")
    print(f"{len(rows)} rows; left out: " + "; ".join(f"{count} {reason}" for reason, count in left_out.most_common()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
