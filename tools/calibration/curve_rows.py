"""Measured single operators as operators of the model, with their GPU and their seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import Any

import msgspec
from msgspec.structs import replace

from calibration.attention_rows import attention_kernel, mla_kernel
from calibration.linear_rows import linear_kernel
from whichgpu.catalog.evidence import Measurement, operators
from whichgpu.estimate.time.operators import CURVE_BY_KIND, Op, gemm

BYTES = {"fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625}
# FlashInfer's fp8 MoE kernel in vLLM on Hopper takes 4 to 6 times the seconds of TensorRT-LLM's, so it was presumably not tuned.
UNTUNED_MOE = "moe.fp8.untuned"
_UNTUNED = {(gpu, "vllm_modeloptfp8moe_flashinfer_cutlass_flashinferexperts") for gpu in ("h100-sxm", "h200-sxm")}
# Curves fitted after the others, on rows of their own: NCHW convolutions and batch normalisation measured on an H200.
OWN_CURVES = {"h200-planes": "planes", "h200-norms": "norms"}


class Sample(msgspec.Struct, frozen=True):
    """A measured time of one operator, or of a few that ran one after another."""

    source: str
    gpu: str
    kind: str  # as the source names it
    family: str  # rows of one shape, left out together
    ops: tuple[Op, ...]
    seconds: float

    @property
    def curve(self) -> str:
        """Name of the curve that this sample is fitted to: that of its operator with the most FLOPs."""
        if self.source in OWN_CURVES:
            return OWN_CURVES[self.source]
        return CURVE_BY_KIND[max(self.ops, key=lambda op: (float(op.flops), float(op.read + op.write))).kind]


def samples(rows: Iterable[Measurement]) -> list[Sample]:
    """Every single operator of the evidence that the curves describe."""
    return [sample for row in operators(rows) if (sample := operator_sample(row)) is not None]


def operator_sample(row: Measurement) -> Sample | None:
    """One row as operators of the model; none where the curves do not describe it."""
    sizes = {**row.request, "op": row.request["kind"], "gpu": row.gpu}
    named_ops = _READERS[row.source](sizes)
    if named_ops is None:
        return None
    kind, family, ops = named_ops
    source = "h200" if row.source == "h200-ops" else row.source
    return Sample(source, row.gpu, kind, family or row.family, ops, row.seconds)


NamedOps = tuple[str, str, tuple[Op, ...]] | None


def _h200_operator(row: Mapping[str, Any]) -> NamedOps:
    """A row of operators timed on the H200: inputs are reused, so those that fit are read from the L2 cache."""
    ops = _lowered(row)
    if not ops:
        return None
    kind = row["op"] + ("." + row["dir"] if "dir" in row else "")
    hot = tuple(replace(op, sizes={**op.sizes, "resident": op.sizes.get("resident", 1.0)}) for op in ops)
    return f"{kind}.{row['dtype']}", _family(row), hot


def _nchw_convolution(row: Mapping[str, Any]) -> NamedOps:
    """Convolutions in fp32 and tf32 on NCHW tensors."""
    hot = tuple(replace(op, sizes={**op.sizes, "resident": 1.0}) for op in _convolution({**row, "layout": "nchw"}))
    return f"conv.planes.{row['dir']}.{row['dtype']}", _family(row), hot


def _nchw_norm(row: Mapping[str, Any]) -> NamedOps:
    """Batch normalisation of NCHW tensors: fp32 and fp16 by cuDNN, bf16 by PyTorch's own kernels."""
    role = "torch_nchw" if row["dtype"] == "bf16" else "cudnn_nchw"
    ops = tuple(replace(op, role=role, sizes={**op.sizes, "resident": 1.0}) for op in _memory_bound(row))
    return f"{row['op']}.planes.{row['dtype']}", _family(row), ops


def _micro(row: Mapping[str, Any]) -> NamedOps:
    """FP8 GEMMs and attention, timed by events around one launch."""
    if row["op"] == "gemm":
        op = replace(_gemm(row, "fp8"), write=2.0 * row["m"] * row["n"])
        return "gemm.fp8", f"{row['k']}x{row['n']}", (op,)
    sizes = (row["b"], row["h"], row["s"], row["d"], row["causal"])
    return row["op"], str(sizes), (_attention(*sizes, backward=row["op"] == "attention_backward"),)


def _published_gemm(row: Mapping[str, Any]) -> NamedOps:
    return f"gemm.{row['dtype']}", "", (_gemm(row, row["dtype"]),)


def _vllm_linear(row: Mapping[str, Any]) -> NamedOps:
    """A linear layer of vLLM; narrower ones quantise their input first: in one kernel, before 0.19 with PyTorch's operators.

    GEMMs with a scale for every block run kernels that differ from GPU to GPU more than the GPUs do, and are left out.
    """
    if row["dtype"] == "fp8_block":
        return None
    unit = {"bf16": "bf16", "nvfp4": "fp4"}.get(row["dtype"], "fp8")
    if unit == "bf16":
        return f"gemm.{row['dtype']}", "", (_gemm(row, unit),)
    m, n, k, width = float(row["m"]), float(row["n"]), float(row["k"]), BYTES[unit]
    product = replace(_gemm(row, unit), write=2.0 * m * n)
    role = "quantise_vllm" if unit == "fp4" or "0.19" in row["engine"] else "quantise_separate"
    quantise = Op("reduce", "bf16", read=2.0 * m * k, write=width * m * k, sizes={"rows": m, "width": k}, role=role)
    return f"gemm.{row['dtype']}", "", (quantise, product)


# Arithmetic unit and role of MoE kernels by the source's name of the weights' format.
_MOE_FORMATS = {
    "bfloat16": ("bf16", "16bit"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8", "fp8_block"),
    "nvfp4": ("fp4", "nvfp4"),
    "w4a8_mxfp4_mxfp8": ("fp4", "mxfp4"),
    "w4a16_mxfp4": ("bf16", "dequantised"),
    "int4_wo": ("bf16", "dequantised"),
}


_WITHOUT_FP4 = ("a100-sxm-80gb", "l40s", "h100-sxm", "h200-sxm")  # mxfp4 experts are dequantised there, as the tool lowers them


def _moe(row: Mapping[str, Any]) -> NamedOps:
    """The routed experts of one MoE layer."""
    emulated = row["dtype"] == "w4a16_mxfp4" and row["gpu"] in _WITHOUT_FP4
    unit, role = ("fp4", "mxfp4") if emulated else _MOE_FORMATS[row["dtype"]]
    names = ("tokens", "rows", "touched", "hidden", "ffn", "ups", "weight")
    sizes = {name: float(row[name]) for name in names}
    rows, hidden, ffn, ups = (sizes[name] for name in ("rows", "hidden", "ffn", "ups"))
    moved = 2.0 * sizes["tokens"] * hidden / row["ep"]
    op = Op(
        "moe",
        unit,
        2.0 * rows * hidden * ffn * (ups + 1.0),
        sizes["weight"] + moved,
        moved,
        sizes,
        role=f"{role}.{row['engine'].split()[0]}",
    )
    return UNTUNED_MOE if (row["gpu"], row["kernel"]) in _UNTUNED else f"moe.{row['dtype']}", "", (op,)


def _gemm(row: Mapping[str, Any], unit: str) -> Op:
    m, n, k = (float(row[name]) for name in ("m", "n", "k"))
    return gemm(m, n, k, unit, BYTES[unit], batch=float(row.get("batch", 1)))


_READERS: dict[str, Callable[[Mapping[str, Any]], NamedOps]] = {
    "h200-ops": _h200_operator,
    "h200-planes": _nchw_convolution,
    "h200-norms": _nchw_norm,
    "micro": _micro,
    "neusight": _published_gemm,
    "vidur": _published_gemm,
    "aiconfigurator": _vllm_linear,
    "aiconfigurator-attention": attention_kernel,
    "aiconfigurator-linear": linear_kernel,
    "aiconfigurator-mla": mla_kernel,
    "stas00": _published_gemm,
    "aiconfigurator-collectives": lambda _: None,  # fitted by `fit_collectives`
    "aiconfigurator-moe": _moe,
}


def _family(row: Mapping[str, Any]) -> str:
    if row["op"] == "conv":
        return "conv " + " ".join(str(row[name]) for name in ("cin", "cout", "k", "stride", "groups", "hw"))
    if row["op"].startswith("linear"):
        return f"linear {row['k']} {row['n']}"
    return "memory " + " ".join(str(row[name]) for name in ("rows", "d", "b", "c", "hw", "params") if name in row)


def _attention(batch: int, heads: int, length: int, dim: int, causal: bool, backward: bool = False) -> Op:
    pairs = float(batch * heads) * length * (length / 2 if causal else length)
    side = 2.0 * batch * heads * length * dim
    counts = {"batch": batch, "heads": heads, "kv_heads": heads, "queries": length, "keys": length, "dim": dim, "causal": causal}
    sizes = {name: float(size) for name, size in counts.items()}
    if backward:
        return Op("attention_backward", "bf16", 10.0 * pairs * dim, 5 * side, 3 * side, sizes)
    return Op("attention", "bf16", 4.0 * pairs * dim, 3 * side, side, sizes)


def _lowered(row: Mapping[str, Any]) -> tuple[Op, ...]:
    """The operators of a row of ops.jsonl; empty if it is not a single operator or nothing runs."""
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
    return _memory_bound(row)


_GRADIENTS = {"fwd": ("conv",), "dgrad": ("conv_dgrad",), "wgrad": ("conv_wgrad",)}


def _convolution(row: Mapping[str, Any]) -> tuple[Op, ...]:
    """Forward, or both gradients; no gradient of the input if that is an image (three channels)."""
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


# Memory-bound operators: kind, role, and how often each element is read and written.
_SIMPLE: dict[str, tuple[str, str, float, float]] = {
    "add": ("elementwise", "add", 2, 1),
    "mul": ("elementwise", "mul", 2, 1),
    "add_nhwc": ("elementwise", "add", 2, 1),
    "relu": ("elementwise", "relu", 1, 1),
    "relu_inplace": ("elementwise", "relu", 1, 1),
    "relu_bwd": ("elementwise", "threshold_backward", 2, 1),
    "gelu": ("elementwise", "gelu", 1, 1),
    "gelu_bwd": ("elementwise", "gelu_backward", 2, 1),
    "silu": ("elementwise", "silu", 1, 1),
    "silu_nhwc": ("elementwise", "silu_nhwc", 1, 1),
    "silu_bwd": ("elementwise", "silu_backward", 2, 1),
    "copy": ("copy", "", 1, 1),
    "transpose_copy": ("transpose", "matrix", 1, 1),
    "softmax": ("softmax", "", 1, 1),
    "log_softmax": ("softmax", "", 1, 1),
    "softmax_bwd": ("softmax_backward", "", 2, 1),
    "log_softmax_bwd": ("softmax_backward", "", 2, 1),
    "layer_norm": ("norm", "", 1, 1),
    "layer_norm_bwd": ("norm_backward", "", 2, 1),
    "sum_rows": ("reduce_columns", "", 1, 0),  # sum over the rows
    "sum_cols": ("reduce", "", 1, 0),
    "avg_pool": ("pool", "_adaptive_avg_pool2d", 1, 0),
    "batch_norm": ("batch_norm", "", 2, 1),
    "batch_norm_cudnn": ("batch_norm", "cudnn", 2, 1),
    "batch_norm_bwd": ("batch_norm_backward", "", 4, 1),
    "embedding": ("embedding", "", 1, 1),
    "adamw_fused": ("optimizer", "adamw", 4, 3),
    "sgdm_foreach": ("optimizer", "sgd-momentum", 5, 3),
}


def _memory_bound(row: Mapping[str, Any]) -> tuple[Op, ...]:
    """Memory-bound kernels."""
    name, width = row["op"], BYTES[row["dtype"]]
    rows, columns = _rows(row)
    size = float(rows * columns)

    def move(kind: str, read: float, write: float, role: str = "") -> Op:
        sizes = {"elements": size, "rows": float(rows), "width": float(columns)}
        return Op(kind, row["dtype"], read=read * size, write=write * size, sizes=sizes, role=role)

    if name in _SIMPLE:
        kind, role, read, write = _SIMPLE[name]
        role = "" if role == "cudnn" and width == 2 else role  # in bf16 PyTorch runs its own kernel, not cuDNN's
        return (move(kind, read * width, write * width, role),)
    if name in ("cast", "upcast"):  # to fp32, or from it
        return (move("copy", 2.0, 4.0, "upcast"),) if width == 2 else (move("copy", 4.0, 2.0),) if name == "cast" else ()
    if name == "pow_mean":
        squares = (move("elementwise", 4.0, 4.0, "pow"), move("reduce", 4.0, 0.0))
        return squares if width == 4 else (move("copy", 2.0, 4.0, "upcast"), *squares)
    if name == "squeeze_excite":  # mean of each channel, then multiplication by a gate
        return (move("pool", width, 0.0, "_adaptive_avg_pool2d"), move("elementwise", width, width, "strided"))
    if name == "dropout":
        return (move("dropout", width, width + 1.0),)
    if name == "max_pool":  # 3x3 windows at stride 2; the indices of the maxima (8 bytes each) are written too
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
