"""Measured single operators as operators of ours: what each row ran, on which GPU, and the seconds it took."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from calibration.h200 import lines
from calibration.measured import Reason
from calibration.names import gpu_id
from calibration.published import Published, read_published
from whichgpu.estimate.time.operators import CLASS_BY_KIND, Op, gemm

BYTES = {"fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625}
SOURCES = ("neusight", "vidur", "aiconfigurator", "stas00")
# Products with a scale for every block run kernels that differ from GPU to GPU more than the GPUs do.
APART = {("aiconfigurator", "fp8_block")}
_H200 = "h200-sxm"
# Convolutions in fp32 and tf32 on planes of pixels, of which ops.jsonl has none: its shapes and small images, measured in the
# same way (replayed from CUDA graphs) on an H200 on 2026-11-16, with cuDNN's benchmark on; each gradient by itself.
PLANES = Path(__file__).with_name("planes.csv")
# Batch normalisation over planes of pixels in training, with weights of fp32: measured in the same way.
NORMS = Path(__file__).with_name("norms.csv")
OURS = {"h200-planes": "planes", "h200-norms": "norms"}


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured time of one operator, or of a few that ran one after another."""

    source: str
    gpu: str
    kind: str  # as the source names it
    family: str  # rows of one shape, left out together
    ops: tuple[Op, ...]
    seconds: float

    @property
    def curve(self) -> str:
        """The curve it tells most about; convolutions and normalisations on planes tell of what is theirs alone."""
        if self.source in OURS:
            return OURS[self.source]
        return CLASS_BY_KIND[max(self.ops, key=lambda op: (float(op.flops), float(op.read + op.write))).kind]


def samples(folder: Path) -> list[Sample]:
    """Every single operator of the measured truth that the curves describe."""
    return [
        *h200_operators(folder / "h200" / "ops.jsonl"),
        *h200_micro(folder / "h200" / "micro.jsonl"),
        *h200_planes(PLANES),
        *h200_norms(NORMS),
        *published(folder / "public"),
    ]


def h200_operators(file: Path) -> Iterator[Sample]:
    """ops.jsonl: inputs are reused, so that what fits the L2 is found there."""
    for _, row in lines(file):
        ops = _lowered(row)
        if ops:
            kind = row["op"] + ("." + row["dir"] if "dir" in row else "")
            hot = tuple(replace(op, sizes={**op.sizes, "resident": op.sizes.get("resident", 1.0)}) for op in ops)
            yield Sample("h200", _H200, f"{kind}.{row['dtype']}", _family(row), hot, row["us"] * 1e-6)


def h200_planes(file: Path) -> Iterator[Sample]:
    """Our own measurements of what ops.jsonl lacks."""
    with file.open(encoding="utf-8", newline="") as text:
        for words in csv.DictReader(text):
            row = {name: word if name in ("dtype", "dir") else int(word) for name, word in words.items() if name != "us"}
            ops = _convolution({**row, "op": "conv", "layout": "nchw"})
            hot = tuple(replace(op, sizes={**op.sizes, "resident": 1.0}) for op in ops)
            kind = f"conv.planes.{row['dir']}.{row['dtype']}"
            yield Sample("h200-planes", _H200, kind, _family({**row, "op": "conv"}), hot, float(words["us"]) * 1e-6)


def h200_norms(file: Path) -> Iterator[Sample]:
    """Normalisations of planes: of fp32 and fp16 by cuDNN, of bf16 by PyTorch's own kernels."""
    with file.open(encoding="utf-8", newline="") as text:
        for words in csv.DictReader(text):
            row: dict[str, Any] = {**words, **{name: int(words[name]) for name in ("b", "c", "hw")}}
            role = "channels_first" if row["dtype"] == "bf16" else "cudnn_planes"
            ops = tuple(replace(op, role=role, sizes={**op.sizes, "resident": 1.0}) for op in _moved(row))
            kind = f"{row['op']}.planes.{row['dtype']}"
            yield Sample("h200-norms", _H200, kind, _family(row), ops, float(words["us"]) * 1e-6)


def h200_micro(file: Path) -> Iterator[Sample]:
    """micro.jsonl where ops.jsonl has none: fp8 products, attention. Backward is the difference of two measurements."""
    for _, row in lines(file):
        if row["op"] == "gemm" and row["dtype"] == "fp8":
            op = replace(gemm(float(row["m"]), float(row["n"]), float(row["k"]), "fp8", 1.0), write=2.0 * row["m"] * row["n"])
            yield Sample("micro", _H200, "gemm.fp8", f"{row['k']}x{row['n']}", (op,), row["ms"] * 1e-3)
        elif row["op"] == "attention":
            sizes = (row["b"], row["h"], row["s"], row["d"], row["causal"])
            yield Sample("micro", _H200, "attention", str(sizes), (_attention(*sizes),), row["fwd_ms"] * 1e-3)
            if row["s"] >= 2048:  # shorter ones wait for the host
                backward = (row["fwdbwd_ms"] - row["fwd_ms"]) * 1e-3
                yield Sample("micro", _H200, "attention_backward", str(sizes), (_attention(*sizes, backward=True),), backward)


def published(folder: Path) -> Iterator[Sample]:
    """Products that others measured."""
    for row in read_published(folder / "calibration.csv"):
        gpu = gpu_id(row.gpu) if row.source in SOURCES else Reason.UNKNOWN_GPU
        if not isinstance(gpu, Reason) and (row.source, row.precision) not in APART:
            ops, seconds = _READERS[row.source](row)
            yield Sample(row.source, gpu, f"gemm.{row.precision}", row.model, ops, seconds)


def _neusight(row: Published) -> tuple[tuple[Op, ...], float]:
    """M x N times N x K, in true fp32."""
    batch, m, k, n = _numbers(r"B=(\d+) M=(\d+) N=(\d+) K=(\d+)", row.model)
    return (gemm(m, n, k, "fp32", 4.0, batch=batch),), row.value * 1e-3


def _vidur(row: Published) -> tuple[tuple[Op, ...], float]:
    """Llama-2's projections on one shard: gate and up are one product, and the 70B has 8 KV heads of 128."""
    hidden, wide, shards = _numbers(r"n_embd=(\d+), n_expanded=(\d+), tp_shards=(\d+)", row.model)
    attended = hidden + 2 * (1024 if "70b" in row.model else hidden)
    shapes = {
        "attn_qkv_proj": (attended / shards, hidden),
        "mlp_up_proj": (2 * wide / shards, hidden),
        "mlp_down_proj": (hidden, wide / shards),
    }
    n, k = next(shape for name, shape in shapes.items() if name in row.model)
    return (gemm(float(row.batch or 1), n, k, "fp16", 2.0),), row.value * 1e-3


def _aiconfigurator(row: Published) -> tuple[tuple[Op, ...], float]:
    """vLLM's linear layers; narrow ones quantise their input first: in one kernel, before 0.19 with PyTorch's own operators."""
    m, n, k = _numbers(r"M=(\d+) N=(\d+) K=(\d+)", row.model)
    unit = {"bfloat16": "bf16", "nvfp4": "fp4"}.get(row.precision, "fp8")
    if unit == "bf16":
        return (gemm(m, n, k, unit, 2.0),), row.value * 1e-3
    width = BYTES[unit]
    product = replace(gemm(m, n, k, unit, width), write=2.0 * m * n)
    role = "quantise_vllm" if unit == "fp4" or "0.19" in row.framework else "quantise_apart"
    quantise = Op("reduce", "bf16", read=2.0 * m * k, write=width * m * k, sizes={"rows": m, "width": k}, role=role)
    return (quantise, product), row.value * 1e-3


def _best_shape(row: Published) -> tuple[tuple[Op, ...], float]:
    """TFLOP/s of the best of many shapes."""
    m, n, k = _numbers(r"(\d+)x(\d+)x(\d+)", row.model)
    return (gemm(m, n, k, row.precision, BYTES[row.precision]),), 2.0 * m * n * k / (row.value * 1e12)


_READERS: dict[str, Callable[[Published], tuple[tuple[Op, ...], float]]] = {
    "neusight": _neusight,
    "vidur": _vidur,
    "aiconfigurator": _aiconfigurator,
    "stas00": _best_shape,
}


def _numbers(pattern: str, text: str) -> list[float]:
    found = re.search(pattern, text)
    assert found, text
    return [float(number) for number in found.groups()]


def _family(row: Mapping[str, Any]) -> str:
    if row["op"] == "conv":
        return "conv " + " ".join(str(row[name]) for name in ("cin", "cout", "k", "stride", "groups", "hw"))
    if row["op"].startswith("linear"):
        return f"linear {row['k']} {row['n']}"
    return "memory " + " ".join(str(row[name]) for name in ("rows", "d", "b", "c", "hw", "params") if name in row)


def _attention(batch: int, heads: int, length: int, dim: int, causal: bool, backward: bool = False) -> Op:
    pairs = float(batch * heads) * length * (length / 2 if causal else length)
    side = 2.0 * batch * heads * length * dim
    named = {"batch": batch, "heads": heads, "kv_heads": heads, "queries": length, "keys": length, "dim": dim, "causal": causal}
    sizes = {name: float(size) for name, size in named.items()}
    if backward:
        return Op("attention_backward", "bf16", 10.0 * pairs * dim, 5 * side, 3 * side, sizes)
    return Op("attention", "bf16", 4.0 * pairs * dim, 3 * side, side, sizes)


def _lowered(row: Mapping[str, Any]) -> tuple[Op, ...]:
    """The operators of a row of ops.jsonl; none where it is not a single operator, or nothing runs."""
    name, dtype = row["op"], row["dtype"]
    if name == "conv":
        return _convolution(row)
    if name == "sdpa":
        return (_attention(row["b"], row["h"], row["s"], row["d"], row["causal"]),)
    if name.startswith("linear"):
        m, n, k = float(row["m"]), float(row["n"]), float(row["k"])
        role = {"linear": "forward", "linear_dgrad": "dgrad", "linear_wgrad": "wgrad"}[name]
        shape = {"forward": (m, n, k), "dgrad": (m, k, n), "wgrad": (n, k, m)}[role]
        return (gemm(*shape, dtype, BYTES[dtype], role=role),)
    return _moved(row)


_GRADIENTS = {"fwd": ("conv",), "dgrad": ("conv_dgrad",), "wgrad": ("conv_wgrad",)}


def _convolution(row: Mapping[str, Any]) -> tuple[Op, ...]:
    """Forward, or both gradients: the input's is made unless the input is an image."""
    width, groups, taps = BYTES[row["dtype"]], row["groups"], row["k"] ** 2
    out = ceil(row["hw"] / row["stride"])
    sides = {
        "conv": row["b"] * out**2 * row["cout"] * width,
        "conv_dgrad": row["b"] * row["hw"] ** 2 * row["cin"] * width,
        "conv_wgrad": row["cout"] * row["cin"] // groups * taps * width,
    }
    sizes = {
        "batch": float(row["b"]),
        "height": float(out),
        "width": float(out),
        "cin": float(row["cin"]),
        "cout": float(row["cout"]),
        "kernel": float(taps),
        "stride": float(row["stride"]),
        "groups": float(groups),
        "nhwc": float(row["layout"] == "nhwc"),
    }
    kinds: tuple[str, ...] = _GRADIENTS.get(row["dir"], ("conv_wgrad",) if row["cin"] == 3 else ("conv_dgrad", "conv_wgrad"))
    flops = 2.0 * row["b"] * out**2 * row["cout"] * row["cin"] / groups * taps
    total = float(sum(sides.values()))
    return tuple(Op(kind, row["dtype"], flops, total - sides[kind], float(sides[kind]), sizes) for kind in kinds)


# Operators that move every element so often, in and out, in elements of their width: kind, role, read, written.
_SIMPLE: dict[str, tuple[str, str, float, float]] = {
    "add": ("pointwise", "add", 2, 1),
    "mul": ("pointwise", "mul", 2, 1),
    "add_nhwc": ("pointwise", "add", 2, 1),
    "relu": ("pointwise", "relu", 1, 1),
    "relu_inplace": ("pointwise", "relu", 1, 1),
    "relu_bwd": ("pointwise", "threshold_backward", 2, 1),
    "gelu": ("pointwise", "gelu", 1, 1),
    "gelu_bwd": ("pointwise", "gelu_backward", 2, 1),
    "silu": ("pointwise", "silu", 1, 1),
    "silu_nhwc": ("pointwise", "silu_channels_last", 1, 1),
    "silu_bwd": ("pointwise", "silu_backward", 2, 1),
    "copy": ("copy", "", 1, 1),
    "transpose_copy": ("transpose", "matrix", 1, 1),
    "softmax": ("softmax", "", 1, 1),
    "log_softmax": ("softmax", "", 1, 1),
    "softmax_bwd": ("softmax_backward", "", 2, 1),
    "log_softmax_bwd": ("softmax_backward", "", 2, 1),
    "layer_norm": ("norm", "", 1, 1),
    "layer_norm_bwd": ("norm_backward", "", 2, 1),
    "sum_rows": ("reduce_columns", "", 1, 0),  # over the rows
    "sum_cols": ("reduce", "", 1, 0),
    "avg_pool": ("pool", "_adaptive_avg_pool2d", 1, 0),
    "batch_norm": ("batch_norm", "", 2, 1),
    "batch_norm_cudnn": ("batch_norm", "cudnn", 2, 1),
    "batch_norm_bwd": ("batch_norm_backward", "", 4, 1),
    "embedding": ("embedding", "", 1, 1),
    "adamw_fused": ("optimizer", "adamw", 4, 3),
    "sgdm_foreach": ("optimizer", "sgd-momentum", 5, 3),
}


def _moved(row: Mapping[str, Any]) -> tuple[Op, ...]:
    """Kernels bound by bandwidth."""
    name, width = row["op"], BYTES[row["dtype"]]
    rows, columns = _rows(row)
    size = float(rows * columns)

    def move(kind: str, read: float, write: float, role: str = "") -> Op:
        sizes = {"elements": size, "rows": float(rows), "width": float(columns)}
        return Op(kind, row["dtype"], read=read * size, write=write * size, sizes=sizes, role=role)

    if name in _SIMPLE:
        kind, role, read, write = _SIMPLE[name]
        role = "" if role == "cudnn" and width == 2 else role  # in bf16 PyTorch's own runs after all
        return (move(kind, read * width, write * width, role),)
    if name in ("cast", "upcast"):  # to fp32, or from it
        return (move("copy", 2.0, 4.0, "widen"),) if width == 2 else (move("copy", 4.0, 2.0),) if name == "cast" else ()
    if name == "pow_mean":
        squares = (move("pointwise", 4.0, 4.0, "pow"), move("reduce", 4.0, 0.0))
        return squares if width == 4 else (move("copy", 2.0, 4.0, "widen"), *squares)
    if name == "squeeze_excite":  # a mean of each channel, a gate, and the product of both
        return (move("pool", width, 0.0, "_adaptive_avg_pool2d"), move("pointwise", width, width, "strided"))
    if name == "dropout":
        return (move("dropout", width, width + 1.0),)
    if name == "max_pool":  # 3x3 windows at stride 2; the places of the largest are kept
        return (move("pool", width, (width + 8.0) / 4.0, "max_pool2d_with_indices"),)
    if name == "embedding_bwd":
        op = move("embedding_backward", width, width)
        return (replace(op, write=op.write + row["v"] * row["d"] * width),)
    return ()


def _rows(row: Mapping[str, Any]) -> tuple[int, int]:
    if "rows" in row:
        return row["rows"], row["d"]
    if "c" in row:
        return row["b"] * row["hw"] ** 2, row["c"]
    return 1, row["params"]
