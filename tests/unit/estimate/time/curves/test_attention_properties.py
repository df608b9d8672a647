"""Properties of attention times on real GPUs: growth with context and batch, narrower caches, floors."""

from __future__ import annotations

import numpy as np
import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.curves.evaluate import operator_seconds
from whichgpu.estimate.time.curves.gpus import build_gpu_columns
from whichgpu.estimate.time.lower.eager.attention import AttentionSizes, mla_decode_op
from whichgpu.estimate.time.operators import Number, Op

IDS = (
    "a100-sxm-80gb",
    "l40s",
    "h100-sxm",
    "h200-sxm",
    "b200",
    "gb200",
    "rtx-pro-6000-server",
    "rtx-4090",
    "mi300x",
    "v100-pcie-32gb",
)
GPUS = [Catalog().gpu_by_id[name] for name in IDS]
ASYNCHRONOUS = [gpu for gpu in GPUS if gpu.architecture == "Hopper" or gpu.target == "sm_100"]
COLUMNS = build_gpu_columns(GPUS)
CONTEXTS = np.unique(np.geomspace(1, 131072, 120).round())
BATCHES = np.arange(1.0, 400.0)
SHAPES = [(64.0, 8.0, 128.0), (32.0, 32.0, 128.0), (8.0, 1.0, 128.0), (64.0, 8.0, 64.0)]


def decode(batch: Number, context: Number, shape: tuple[float, float, float], cache_width: float = 2.0, window: int = 0) -> Op:
    """One token per sequence against the cache."""
    heads, kv_heads, dim = shape
    over = AttentionSizes(batch, heads, kv_heads, 1.0, context, dim, dim, causal=True, window=window)
    return over.op("bf16", 2.0, "decode_attention", cache_width, "split")


def prefill(batch: Number, length: Number, shape: tuple[float, float, float]) -> Op:
    """Whole prompts in a serving engine."""
    heads, kv_heads, dim = shape
    return AttentionSizes(batch, heads, kv_heads, length, length, dim, dim, causal=True).op("bf16", 2.0, role="paged")


def mla(batch: Number, context: Number, heads: float, cache_width: float = 2.0) -> Op:
    """MLA decode of DeepSeek's dimensions."""
    return mla_decode_op(batch, heads, context, 576.0, 512.0, "bf16", 2.0, cache_width)


def all_kinds(batch: Number, length: Number) -> list[Op]:
    """Every serving kernel at these sizes."""
    plain = [make(batch, length, shape) for make in (decode, prefill) for shape in SHAPES]
    return plain + [mla(batch, length, heads, width) for heads in (16.0, 128.0) for width in (2.0, 1.0)]


@pytest.mark.parametrize("kind", range(12))
def test_time_never_falls_as_context_or_batch_grow(kind: int) -> None:
    for batch, length in ((1.0, CONTEXTS), (37.0, CONTEXTS), (BATCHES, 1.0), (BATCHES, 1000.0), (BATCHES, 8192.0)):
        seconds = operator_seconds([all_kinds(batch, length)[kind]], COLUMNS).seconds
        assert (np.diff(seconds, axis=-1) >= -1e-9 * seconds[..., 1:]).all()


def test_no_kernel_is_below_its_floor() -> None:
    for batch in (1.0, 64.0):
        timed = operator_seconds(all_kinds(batch, CONTEXTS), COLUMNS)
        assert (timed.seconds >= timed.floors).all()


def test_a_narrower_cache_is_never_slower() -> None:
    for shape in SHAPES:
        wide, narrow = operator_seconds([decode(8.0, CONTEXTS, shape, width) for width in (2.0, 1.0)], COLUMNS).seconds.swapaxes(
            0, 1
        )
        assert (narrow <= wide * (1 + 1e-9)).all()


def test_lower_precision_mla_cache_is_never_slower_with_split_kv() -> None:
    columns = build_gpu_columns(ASYNCHRONOUS)
    for heads in (16.0, 128.0):
        wide, narrow = (operator_seconds([mla(64.0, CONTEXTS, heads, width)], columns).seconds for width in (2.0, 1.0))
        assert (narrow <= wide * (1 + 1e-9)).all()


def test_decode_nears_full_bandwidth_at_large_batch_and_long_context() -> None:
    """Grouped heads share a tile and all SMs work, whatever the number of query heads."""
    for shape in SHAPES:
        op = decode(64.0, 16384.0, shape)
        seconds = operator_seconds([op], build_gpu_columns([Catalog().gpu_by_id["h200-sxm"]])).seconds[0, 0, 0]
        assert 0.75 < (op.read + op.write) / 4.8e12 / seconds < 0.95
