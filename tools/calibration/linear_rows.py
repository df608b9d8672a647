"""Measured kernels of linear attention as operators of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from whichgpu.estimate.time.lower.recurrent import mixer_ops
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import RecurrentMixer

WIDTH = 2.0  # bytes of an element
FUSED_KERNELS = ("flashinfer", "flashkda")  # in the names of kernels that run all chunks at once


def linear_kernel(row: Mapping[str, Any]) -> tuple[str, str, tuple[Op, ...]]:
    """The recurrence of one layer over whole prompts, or the short convolution before it."""
    batch, length = float(row["batch"]), float(row["seq_in"])
    kernels = "fused" if any(name in row["engine"] for name in FUSED_KERNELS) else "chunked"
    convolution, scan, *_ = mixer_ops(_mixer(row), batch, batch * length, False, "bf16", WIDTH, kernels=kernels)
    op = convolution if row["op"] == "short_conv" else scan
    op = replace(op, sizes={**op.sizes, "resident": 1.0})  # The loop reads the same tensors again.
    return f"{row['op']}.{row['rule']}.{kernels}", "", (op,)


def _mixer(row: Mapping[str, Any]) -> RecurrentMixer:
    keys, values = row["k_heads"] * row["k_dim"], row["v_heads"] * row["v_dim"]
    channels = 2 * keys + values
    inward = channels + values + 2 * row["v_heads"]
    return RecurrentMixer(row["rule"], inward, values, row["v_heads"], row["k_dim"], row["v_dim"], channels, 4)
