"""Single operators as rows of evidence: each with its name, dtype and the sizes its speed depends on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from evidence.h200 import lines
from evidence.names import gpu_id
from evidence.published import Published
from evidence.reasons import Reason
from evidence.requests import first_year
from whichgpu.catalog.evidence import Measurement

_DTYPES = {"bfloat16": "bf16", "fp32 (TF32 off)": "fp32"}
_PRODUCT = re.compile(r"matmul (?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)")
_GEMM = re.compile(r"(?:gemm|linear|bmm) (?:B=(?P<batch>\d+) )?M=(?P<m>\d+) N=(?P<n>\d+) K=(?P<k>\d+)")
_LAYER = re.compile(r"(attn_qkv_proj|mlp_up_proj|mlp_down_proj) \(n_embd=(\d+), n_expanded=(\d+), tp_shards=(\d+)")
_H200 = "h200-sxm"
_MICRO_ATTENTION = ("b", "h", "s", "d", "causal")
_MIN_BACKWARD_TOKENS = 2048  # tokens; backward passes of shorter sequences are host-bound


def _vidur_sizes(row: Published) -> dict[str, Any] | None:
    """Llama 2's projections on one shard: gate and up are one GEMM, and the 70B has 8 KV heads of 128."""
    match = _LAYER.search(row.model)
    if not match:
        return None
    layer, hidden, wide, shards = match[1], int(match[2]), int(match[3]), int(match[4])
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
    if row.source == "neusight":  # neusight writes M x N times N x K
        batch, m, k, n = re.findall(r"[BMNK]=(\d+)", row.model)
        return {"batch": int(batch), "m": int(m), "n": int(n), "k": int(k)}
    if match := _PRODUCT.search(row.model):
        return {name: int(match[name]) for name in ("m", "n", "k")} | {"batch": 1}
    match = _GEMM.search(row.model)
    return {name: int(match[name] or 1) for name in ("batch", "m", "n", "k")} if match else None


def published_operator(row: Published) -> Measurement | Reason:
    """A GEMM of neusight, vidur, aiconfigurator or stas00; stas00's rates are those of each GPU's best shape."""
    sizes = _sizes(row)
    gpu = gpu_id(row.gpu)
    if sizes is None:
        return Reason.UNKNOWN_NETWORK
    if isinstance(gpu, Reason):
        return gpu
    flops = 2.0 * sizes["batch"] * sizes["m"] * sizes["n"] * sizes["k"]
    seconds = row.value * 1e-3 if row.metric == "ms" else flops / (row.value * 1e12)
    op = {
        "kind": "gemm",
        "dtype": _DTYPES.get(row.precision, row.precision),
        "year": first_year(row.date),
        "engine": row.framework,
        **sizes,
    }
    shape = "x".join(str(sizes[name]) for name in ("batch", "m", "n", "k"))
    return Measurement(row.source, gpu, op, seconds, "op", row.trust, f"gemm {shape}", row.line)


def h200_operators(folder: Path) -> list[Measurement]:
    """Rows of ops.jsonl: device time without host time; sizes are named as in the file."""
    return [
        _h200("h200-ops", number, {"kind": row.pop("op")}, row, row.pop("us") * 1e-6)
        for number, row in lines(folder / "ops.jsonl")
        if row["op"] and row["us"] > 0
    ]


def h200_micro(folder: Path) -> list[Measurement]:
    """FP8 GEMMs and attention of micro.jsonl, which ops.jsonl lacks; each row includes 15 to 20 microseconds of host time.

    The backward pass of attention is the difference of two measurements.
    """
    rows = []
    for number, row in lines(folder / "micro.jsonl"):
        if row["op"] == "gemm" and row["dtype"] == "fp8":
            sizes = {name: row[name] for name in ("dtype", "m", "n", "k")}
            rows.append(_h200("micro", number, {"kind": "gemm"}, sizes, row["ms"] * 1e-3))
        elif row["op"] == "attention":
            sizes = {"dtype": "bf16", **{name: row[name] for name in _MICRO_ATTENTION}}
            rows.append(_h200("micro", number, {"kind": "attention"}, sizes, row["fwd_ms"] * 1e-3))
            if row["s"] >= _MIN_BACKWARD_TOKENS:
                backward = (row["fwdbwd_ms"] - row["fwd_ms"]) * 1e-3
                rows.append(_h200("micro", number, {"kind": "attention_backward"}, sizes, backward))
    return rows


def _h200(source: str, number: int, name: dict[str, str], sizes: dict[str, Any], seconds: float) -> Measurement:
    trust = "medium" if source == "micro" else "high"
    return Measurement(source, _H200, name | sizes, seconds, "op", trust, name["kind"], number)
