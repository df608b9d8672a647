"""Single operators, with the sizes their speed depends on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from calibration.h200 import lines
from calibration.measured import Measured, Reason
from calibration.names import gpu_id
from calibration.published import Published
from calibration.requests import first_year

_DTYPES = {"bfloat16": "bf16", "fp32 (TF32 off)": "fp32"}
_PRODUCT = re.compile(r"matmul (?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)")
_GEMM = re.compile(r"(?:gemm|linear|bmm) (?:B=(?P<batch>\d+) )?M=(?P<m>\d+) N=(?P<n>\d+) K=(?P<k>\d+)")
_MICRO_SIZES = frozenset(("dtype", "m", "k", "n", "b", "h", "s", "d", "causal", "bytes"))
_LAYER = re.compile(r"(attn_qkv_proj|mlp_up_proj|mlp_down_proj) \(n_embd=(\d+), n_expanded=(\d+), tp_shards=(\d+)")


def _vidur_sizes(row: Published) -> dict[str, Any] | None:
    """Llama 2's projections on one shard: gate and up are one product, and the 70B has 8 KV heads of 128."""
    found = _LAYER.search(row.model)
    if not found:
        return None
    layer, hidden, wide, shards = found[1], int(found[2]), int(found[3]), int(found[4])
    qkv = hidden + 2 * (1024 if hidden == 8192 else hidden)
    n, k = {
        "attn_qkv_proj": (qkv // shards, hidden),
        "mlp_up_proj": (2 * wide // shards, hidden),
        "mlp_down_proj": (hidden, wide // shards),
    }[layer]
    return {"m": row.batch, "n": n, "k": k, "batch": 1}


def _sizes(row: Published) -> dict[str, Any] | None:
    if row.source == "vidur":
        return _vidur_sizes(row)
    if found := _PRODUCT.search(row.model):
        return {name: int(found[name]) for name in ("m", "n", "k")} | {"batch": 1}
    found = _GEMM.search(row.model)
    return {name: int(found[name] or 1) for name in ("batch", "m", "n", "k")} if found else None


def published_operator(row: Published) -> Measured | Reason:
    """A GEMM of neusight, vidur, aiconfigurator or stas00, whose rates are of each GPU's best shape."""
    sizes = _sizes(row)
    gpu = gpu_id(row.gpu)
    if sizes is None:
        return Reason.UNKNOWN_NETWORK
    if isinstance(gpu, Reason):
        return gpu
    flops = 2.0 * sizes["batch"] * sizes["m"] * sizes["n"] * sizes["k"]
    seconds = row.value / 1e3 if row.metric == "ms" else flops / (row.value * 1e12)
    op = {
        "kind": "gemm",
        "dtype": _DTYPES.get(row.precision, row.precision),
        "year": first_year(row.date),
        "engine": row.framework,
        **sizes,
    }
    return Measured(row.source, gpu, op, seconds, "op", row.trust, "gemm", row.line)


def h200_operators(folder: Path) -> list[Measured]:
    """ops.jsonl as it stands: device time without the host's, sizes by their names there."""
    found = []
    for number, row in lines(folder / "ops.jsonl"):
        sizes = {key: value for key, value in row.items() if key not in ("op", "us")}
        found.append(
            Measured("h200-ops", "h200-sxm", {"kind": row["op"], **sizes}, row["us"] / 1e6, "op", "high", row["op"], number)
        )
    return found


def h200_micro(folder: Path) -> list[Measured]:
    """GEMM and attention of micro.jsonl: each carries 15 to 20 microseconds of host time."""
    found = []
    for number, row in lines(folder / "micro.jsonl"):
        milliseconds = row.get("ms", row.get("fwd_ms"))
        if row["op"] in ("gemm", "attention", "copy") and milliseconds:
            op = {"kind": row["op"]} | {key: value for key, value in row.items() if key in _MICRO_SIZES}
            found.append(Measured("h200-micro", "h200-sxm", op, milliseconds / 1e3, "op", "medium", row["op"], number))
    return found
