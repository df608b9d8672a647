"""Measured attention and MLA kernels of serving engines as operators of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from whichgpu.estimate.time.lower.eager.attention import AttentionSizes, mla_decode_op, narrow_mla_prefill
from whichgpu.estimate.time.operators import Op

WIDTHS = {"bf16": 2.0, "fp8": 1.0}  # bytes of an element
WIDE = WIDTHS["bf16"]  # bytes of an element of queries and results
# DeepSeek-V3's MLA: rank of the latents, and dimensions of a head with and without position.
KV_RANK, ROPE_DIM, NOPE_DIM, VALUE_DIM = 512.0, 64.0, 128.0, 128.0
KERNEL_ALONE = "sglang"  # its rows time the kernel alone; those of other engines include the write to the KV cache

WITHOUT_FP8_MLA = "vllm"  # it expands the latents to 16 bits; other engines quantise the expanded operands

NamedOps = tuple[str, str, tuple[Op, ...]]


def attention_kernel(row: Mapping[str, Any]) -> NamedOps:
    """One layer's attention over whole prompts, or of one token per sequence against the KV cache."""
    is_decode = row["op"] == "decode_attention"
    batch, length = float(row["batch"]), float(row["seq_in"])
    heads, kv_heads, dim = (float(row[name]) for name in ("heads", "kv_heads", "dim"))
    queries = 1.0 if is_decode else length
    over = AttentionSizes(batch, heads, kv_heads, queries, length, dim, dim, causal=not is_decode)
    kind, role = ("decode_attention", "split") if is_decode else ("attention", "paged")
    kv_width = WIDTHS[row["kv_dtype"]]
    op = over.op("bf16" if is_decode else row["dtype"], WIDE, kind, kv_width, role)
    if row["dtype"] == "fp8":  # Queries come in fp8.
        op = replace(op, read=op.read - batch * heads * queries * dim)
    elif kv_width < WIDE:
        op = replace(op, sizes={**op.sizes, "narrow_kv": 1.0})
    name = f"{kind}.{row['dtype']}.kv_{row['kv_dtype']}"
    if row["engine"].startswith(KERNEL_ALONE):
        return name, "", (op,)
    return name, "", (op, _cache_write(batch * queries, heads * dim, 2.0 * kv_heads * dim, kv_width))


def _cache_write(tokens: float, query: float, keys_and_values: float, kv_width: float) -> Op:
    """The kernel that writes new keys and values to the cache, and quantises queries if the cache is below 16 bits."""
    cached, quantised = tokens * keys_and_values, tokens * query if kv_width < WIDE else 0.0
    sizes = {"elements": cached + quantised}
    return Op("elementwise", "bf16", 0.0, WIDE * (cached + quantised), cached * kv_width + quantised, sizes)


def mla_kernel(row: Mapping[str, Any]) -> NamedOps:
    """One layer's MLA of DeepSeek's dimensions: expanded keys and values in prefill, latents in decode."""
    batch, length, heads = (float(row[name]) for name in ("batch", "seq_in", "heads"))
    kv_dtype = row["kv_dtype"]
    name = f"mla.{row['op']}.kv_{kv_dtype}"
    if row["op"] == "decode_attention":
        return name, "", (mla_decode_op(batch, heads, length, KV_RANK + ROPE_DIM, KV_RANK, "bf16", WIDE, WIDTHS[kv_dtype]),)
    over = AttentionSizes(batch, heads, heads, length, length, NOPE_DIM + ROPE_DIM, VALUE_DIM, causal=True)
    op = over.op(row["dtype"], WIDE, role="mla")
    if kv_dtype == "bf16" or row["engine"].startswith(WITHOUT_FP8_MLA):
        return name, "", (op,)
    return name, "", narrow_mla_prefill(op, WIDE)
