"""Seconds of single operators: what physics demands of them on every GPU, and what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace

from tests.toy_gpu import elementwise
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.curves.evaluate import TIME_CLASSES, merge_equal, operator_seconds, operator_totals
from whichgpu.estimate.time.curves.gpus import build_gpu_columns
from whichgpu.estimate.time.curves.parameters import parameters
from whichgpu.estimate.time.operators import CLASS_BY_KIND, Op, gemm

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

CATALOG = Catalog()
GPUS = [gpu for gpu in CATALOG.gpus if gpu.peaks]
HELD = dict(zip((gpu.id for gpu in GPUS), build_gpu_columns(GPUS).clock.ravel().tolist(), strict=True))
BATCHES = np.unique(np.concatenate([np.arange(1.0, 70.0), np.round(np.geomspace(70, 20000, 60))]))
WIDTHS = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
SLACK = 1e-9


def convolution(
    kind: str,
    batch: Number,
    hw: float,
    cin: float,
    cout: float,
    side: float,
    unit: str,
    stride: float = 1.0,
    groups: float = 1.0,
    nhwc: float = 1.0,
) -> Op:
    width, out = WIDTHS[unit], np.ceil(hw / stride)
    sides = {
        "conv": batch * out**2 * cout * width,
        "conv_dgrad": batch * hw**2 * cin * width,
        "conv_wgrad": cout * cin / groups * side**2 * width,
    }
    sizes = {"batch": batch, "height": out, "width": out, "cin": cin, "cout": cout, "kernel": side**2}
    sizes |= {"stride": stride, "groups": groups, "nhwc": nhwc}
    flops = 2.0 * batch * out**2 * cout * cin / groups * side**2
    return Op(kind, unit, flops, sum(sides.values()) - sides[kind], sides[kind], sizes)


def attention(
    kind: str,
    batch: Number,
    heads: float,
    kv_heads: float,
    queries: float,
    keys: float,
    dim: float,
    causal: float = 1.0,
    role: str = "",
) -> Op:
    pairs = batch * heads * queries * (keys / 2 if causal else keys)
    products = {"attention_backward": 10.0}.get(kind, 4.0)
    moved = 2.0 * batch * dim * (2 * heads * queries + 2 * kv_heads * keys)
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "queries": queries, "keys": keys, "dim": dim, "causal": causal}
    return Op(kind, "bf16", products * pairs * dim, moved * 0.75, moved * 0.25, sizes, role=role)


def every_kind(batch: Number) -> list[Op]:
    """Operators of every kind and many units, over batches."""
    products = [
        gemm(batch * tokens, n, k, unit, WIDTHS[unit], role=role)
        for tokens, n, k in ((1.0, 4096.0, 4096.0), (128.0, 768.0, 3072.0), (1.0, 50257.0, 768.0), (7.0, 100.0, 33.0))
        for unit in WIDTHS
        for role in ("forward", "dgrad")
    ]
    products += [gemm(4096.0, 1024.0, batch * 512.0, unit, WIDTHS[unit], role="wgrad") for unit in WIDTHS]
    products += [gemm(128.0, 128.0, 64.0, unit, WIDTHS[unit], batch=batch * 12.0) for unit in ("fp32", "bf16")]
    visited = 8.0 * (1.0 - 0.75**batch)
    for role in ("fused", "eager"):
        op = Op("grouped_gemm", "bf16", 2.0 * 2 * batch * 4096 * 1024, visited * 8.4e6, batch * 4096.0, role=role)
        products.append(replace(op, sizes={"m": 2.0 * batch, "n": 4096.0, "k": 1024.0, "batch": visited}))
    for role in ("marlin", "tinygemm", "gguf"):
        op = Op("weight_only_gemm", "fp16", 2.0 * batch * 4096 * 4096, 8.4e6 + batch * 8192, batch * 8192.0, role=role)
        products.append(replace(op, sizes={"m": batch, "n": 4096.0, "k": 4096.0, "batch": 1.0}))
    attended = [attention(kind, batch, 32.0, 8.0, 512.0, 512.0, 128.0) for kind in ("attention", "attention_backward")]
    attended += [attention("decode_attention", batch, 32.0, 8.0, 1.0, 4096.0, 128.0, 0.0, role) for role in ("whole", "split")]
    filters = [
        convolution(kind, batch, hw, cin, cout, side, unit, stride, groups, nhwc)
        for kind in ("conv", "conv_dgrad", "conv_wgrad")
        for hw, cin, cout, side, stride, groups in (
            (56.0, 64.0, 64.0, 3.0, 1.0, 1.0),
            (56.0, 256.0, 512.0, 1.0, 2.0, 1.0),
            (224.0, 3.0, 64.0, 7.0, 2.0, 1.0),
            (28.0, 192.0, 192.0, 7.0, 1.0, 192.0),
            (28.0, 256.0, 256.0, 3.0, 1.0, 32.0),
            (14.0, 512.0, 512.0, 3.0, 1.0, 1.0),
        )
        for unit in ("fp32", "tf32", "bf16", "int8")
        for nhwc in (0.0, 1.0)
    ]
    moved = [
        Op(
            kind,
            dtype,
            read=batch * 3e5,
            write=batch * 3e5,
            sizes={"rows": batch * 100.0, "width": 750.0, "elements": batch * 75e3},
            role=role,
        )
        for kind in CLASS_BY_KIND
        if CLASS_BY_KIND[kind] == "memory"
        for dtype in ("fp32", "bf16")
        for role in ("", "gelu", "matrix", "adamw")
    ]
    return [*products, *attended, *filters, *moved]


def test_no_operator_beats_the_floor() -> None:
    seconds = operator_seconds(every_kind(BATCHES[::6]), build_gpu_columns(GPUS))
    assert np.isfinite(seconds.seconds).all()
    assert (seconds.floors > 0).any(axis=1).all()
    assert (seconds.seconds >= seconds.floors).all()


def test_a_gpu_without_rates_has_no_time_rather_than_an_endless_one() -> None:
    unknown = [replace(gpu, peaks={}) for gpu in GPUS[:40] if gpu.vendor == "nvidia"]
    columns = build_gpu_columns([*unknown, *GPUS])
    assert unknown
    for unit, rates in columns.peaks.items():
        assert np.isnan(rates[: len(unknown)]).all(), unit
        assert (rates[len(unknown) :] > 0).all(), unit
    with np.errstate(all="raise"):
        times = operator_seconds([gemm(16.0, 4096.0, 4096.0, unit, WIDTHS[unit]) for unit in WIDTHS], columns).seconds
    assert np.isnan(times[: len(unknown)]).all()
    assert np.isfinite(times[len(unknown) :]).all()


def test_time_does_not_fall_as_the_batch_grows() -> None:
    ops = every_kind(BATCHES)
    seconds = operator_seconds(ops, build_gpu_columns(GPUS[::7])).seconds
    fallen = seconds[..., 1:] < seconds[..., :-1] * (1 - SLACK)
    assert not fallen.any(), {ops[place].kind for place in np.unique(np.nonzero(fallen)[1])}


def changed(gpu: Gpu, peaks: float = 1.0, bandwidth: float = 1.0, sms: float = 1.0, l2: float = 1.0, clock: float = 1.0) -> Gpu:
    return replace(
        gpu,
        peaks={unit: int(rate * peaks) for unit, rate in gpu.peaks.items()},
        memory_bandwidth=int(gpu.memory_bandwidth * bandwidth),
        sms=gpu.sms and round(gpu.sms * sms),
        l2_bytes=gpu.l2_bytes and int(gpu.l2_bytes * l2),
        boost_clock_hz=gpu.boost_clock_hz and int(gpu.boost_clock_hz * clock),
        tensor_clock_hz=gpu.tensor_clock_hz and int(gpu.tensor_clock_hz * clock),
    )


@pytest.mark.parametrize(
    "better",
    [
        {"bandwidth": 2.0},
        {"peaks": 1.7},
        {"l2": 3.0},
        {"peaks": 1.5, "sms": 1.5},
        {"peaks": 1.3, "clock": 1.3},
        {"peaks": 1.2, "bandwidth": 1.1, "sms": 1.4, "l2": 1.2, "clock": 1.05},
    ],
    ids=str,
)
@pytest.mark.sweep(2)
def test_a_gpu_better_in_every_respect_is_never_slower(better: dict[str, float]) -> None:
    ops = every_kind(BATCHES[::9])
    seconds = operator_seconds(ops, build_gpu_columns(GPUS)).seconds
    faster = operator_seconds(ops, build_gpu_columns([changed(gpu, **better) for gpu in GPUS])).seconds
    slower = faster > seconds * (1 + 1e-6)
    assert not slower.any(), {(GPUS[gpu].id, ops[op].kind) for gpu, op, _ in np.argwhere(slower)}


def dominates(one: Gpu, other: Gpu) -> bool:
    facts: list[tuple[float | None, float | None]] = [
        (one.memory_bandwidth, other.memory_bandwidth),
        (one.sms, other.sms),
        (one.l2_bytes, other.l2_bytes),
    ]
    facts += [(one.tdp_watts, other.tdp_watts), (one.boost_clock_hz, other.boost_clock_hz)]
    facts += [(one.tensor_clock_hz or one.boost_clock_hz, other.tensor_clock_hz or other.boost_clock_hz)]
    facts += [(HELD[one.id], HELD[other.id])]  # a server's card may have more of all else and a lower clock than a desk's
    facts += [(one.peaks.get(unit, 0), rate) for unit, rate in other.peaks.items()]
    same = one.target == other.target and set(one.peaks) == set(other.peaks)
    return same and one != other and all(a and b and a >= b for a, b in facts)


def test_catalog_gpus_keep_their_order() -> None:
    ops = every_kind(np.array([1.0, 8.0, 64.0]))
    seconds = operator_seconds(ops, build_gpu_columns(GPUS)).seconds
    pairs = [(i, j) for i, one in enumerate(GPUS) for j, other in enumerate(GPUS) if dominates(one, other)]
    assert len(pairs) > 50
    wrong = {(GPUS[i].id, GPUS[j].id) for i, j in pairs if (seconds[i] > seconds[j] * 1.005).any()}
    assert not wrong


def test_totals_are_sums_by_class() -> None:
    ops = [op.times(place + 1.0) for place, op in enumerate(every_kind(np.array([1.0, 32.0])))]
    gpus = build_gpu_columns(GPUS[:5])
    each, totals = operator_seconds(ops, gpus), operator_totals(ops, gpus)
    for place, name in enumerate(TIME_CLASSES):
        products = name in ("gemm", "stream")
        chosen = [index for index, op in enumerate(ops) if CLASS_BY_KIND[op.kind] == ("gemm" if products else name)]
        counts = np.array([ops[index].count for index in chosen])[:, None]
        read = each.streamed[:, chosen]
        counted = counts * (read if name == "stream" else 1.0 - read)
        assert products or not read.any()
        assert totals.seconds[place] == pytest.approx((each.seconds[:, chosen] * counted).sum(axis=1))
        assert totals.floors[place] == pytest.approx((each.floors[:, chosen] * counted).sum(axis=1))


def test_identical_operators_are_timed_once_and_counted() -> None:
    batches = np.array([1.0, 32.0])
    ops = [*every_kind(batches), *(op.times(batches) for op in every_kind(batches)), *every_kind(1.0)]
    once = merge_equal(ops)
    assert len(once) == len(ops) * 2 / 3
    assert sum(op.count for op in once) == pytest.approx(sum(op.count for op in ops))
    gpus = build_gpu_columns(GPUS[:3])
    parts = [operator_totals([op], gpus).seconds * np.ones((1, 1, 2)) for op in ops]
    assert operator_totals(ops, gpus).seconds == pytest.approx(sum(parts))


def test_gemm_of_few_rows_is_memory_bound_and_of_many_compute_bound() -> None:
    ops = [gemm(rows, 4096.0, 4096.0, "fp16", 2.0) for rows in (1.0, 64.0, 8192.0)]
    token, some, prompt = operator_seconds(ops, build_gpu_columns([CATALOG.gpu_by_id["h100-sxm"]])).streamed[0, :, 0]
    assert token > 0.99
    assert token > some > prompt
    assert prompt < 0.01


def test_units_a_chip_lacks() -> None:
    columns_ = {name: build_gpu_columns([CATALOG.gpu_by_id[name]]) for name in ("v100-sxm-32gb", "p4", "a100-sxm-80gb", "t4")}
    fp32, bf16 = (gemm(4096.0, 4096.0, 4096.0, unit, WIDTHS[unit]) for unit in ("fp32", "bf16"))

    def time(gpu: str, op: Op) -> float:
        return float(operator_seconds([op], columns_[gpu]).seconds[0, 0, 0])

    assert time("v100-sxm-32gb", bf16) >= time("v100-sxm-32gb", fp32)  # emulated: no faster than fp32
    assert time("a100-sxm-80gb", bf16) < 0.15 * time("a100-sxm-80gb", fp32)
    fp16 = gemm(4096.0, 4096.0, 4096.0, "fp16", 2.0)
    assert time("p4", fp16) == pytest.approx(time("p4", fp32), rel=0.5)  # its own fp16 unit has a 64th of the rate
    assert time("t4", fp16) < 0.3 * time("t4", fp32)


@pytest.mark.parametrize("gpu", ["t4", "rtx-2060-super", "v100-sxm-32gb", "a100-sxm-80gb", "h20-96gb"])
@pytest.mark.parametrize("unit", ["fp8", "fp4"])
@pytest.mark.parametrize("rows", [1.0, 8.0, 16.0, 32.0])
def test_low_precision_weights_without_hardware_units_are_no_slower_than_16_bit(gpu: str, unit: str, rows: float) -> None:
    column = build_gpu_columns([CATALOG.gpu_by_id[gpu]])
    assert column.native[unit] == (unit == "fp8" and gpu == "h20-96gb")
    narrow, wide = (gemm(rows, 8192.0, 8192.0, one, WIDTHS[one]) for one in (unit, "fp16"))
    assert operator_seconds([narrow], column).seconds[0, 0, 0] <= operator_seconds([wide], column).seconds[0, 0, 0]


def experts(unpacked: bool, rows: float) -> Op:
    k, n, count = 4096.0, 2816.0, 128.0
    width = 0.53 if unpacked else 2.0
    sizes = {"m": rows, "n": n, "k": k, "batch": count, "unpacked": float(unpacked)}
    return Op("grouped_gemm", "fp16", 2.0 * rows * n * k, rows * k * 2 + count * k * n * width, rows * n * 2, sizes, role="fused")


def test_experts_that_are_unpacked_are_multiplied_by_instructions_older_than_the_chip() -> None:
    """648 of 989 TFLOP/s is all that mma.sync does on an H200 (measured there, from registers alone)."""
    many = {unpacked: experts(unpacked, 2e6) for unpacked in (False, True)}
    column = {gpu: build_gpu_columns([CATALOG.gpu_by_id[gpu]]) for gpu in ("h200-sxm", "a100-sxm-80gb")}
    reached = {
        gpu: {one: op.flops / operator_seconds([op], column[gpu]).seconds.item() for one, op in many.items()} for gpu in column
    }
    assert reached["h200-sxm"][True] < 648e12 < reached["h200-sxm"][False]
    assert reached["h200-sxm"][True] < 0.6 * reached["h200-sxm"][False]
    assert 0.7 < reached["a100-sxm-80gb"][True] / reached["a100-sxm-80gb"][False] < 0.9
    few = {one: operator_seconds([experts(one, 2048.0)], column["h200-sxm"]).seconds.item() for one in many}
    assert few[True] < few[False]  # a token each: what is read decides


# What was measured: microseconds, and the most the curve may be off. Inputs were reused, and lay in the L2 where they fit.
# H200: this project's own measurements, PyTorch 2.11 in CUDA graphs; the others: NeuSight (sitar-lab/NeuSight, linear.csv), Vidur
# (microsoft/vidur, profiling/compute), aiconfigurator (ai-dynamo/aiconfigurator, gemm_perf), ml-engineering (stas00, MAMF table).
HOT = 1.0


def hot(op: Op) -> Op:
    return replace(op, sizes={**op.sizes, "resident": HOT})


def moved(kind: str, rows: float, columns_: float, read: float, write: float, dtype: str = "bf16", role: str = "") -> Op:
    size = rows * columns_
    return hot(Op(kind, dtype, 0.0, read * size, write * size, {"rows": rows, "width": columns_, "elements": size}, role=role))


def product(m: float, n: float, k: float, unit: str, role: str = "forward", batch: float = 1.0) -> Op:
    return hot(gemm(m, n, k, unit, WIDTHS[unit], role=role, batch=batch))


MEASURED = [
    ("h200-sxm", product(1.0, 28672.0, 4096.0, "bf16"), 57.9, 0.15),
    ("h200-sxm", product(64.0, 4096.0, 14336.0, "bf16"), 37.3, 0.2),
    ("h200-sxm", product(512.0, 8192.0, 8192.0, "bf16"), 89.5, 0.15),
    ("h200-sxm", product(4096.0, 4096.0, 4096.0, "bf16"), 174.8, 0.15),
    ("h200-sxm", product(16384.0, 768.0, 3072.0, "bf16"), 102.6, 0.2),
    ("h200-sxm", product(4096.0, 50257.0, 768.0, "bf16"), 3503.3, 0.3),  # rows that are not aligned
    ("h200-sxm", product(14336.0, 4096.0, 8192.0, "bf16", "wgrad"), 1315.2, 0.2),
    ("h200-sxm", product(2048.0, 4096.0, 14336.0, "tf32"), 567.0, 0.2),
    ("h200-sxm", product(4096.0, 4096.0, 4096.0, "tf32", "wgrad"), 609.5, 0.2),
    ("h200-sxm", product(1.0, 8192.0, 8192.0, "fp32"), 93.7, 0.35),
    ("h200-sxm", product(4096.0, 4096.0, 4096.0, "fp32"), 2749.4, 0.1),
    ("h200-sxm", convolution("conv", 128.0, 56.0, 64.0, 64.0, 3.0, "bf16"), 68.1, 0.2),
    ("h200-sxm", convolution("conv", 32.0, 112.0, 128.0, 128.0, 3.0, "bf16"), 169.6, 0.2),
    ("h200-sxm", convolution("conv", 128.0, 56.0, 256.0, 64.0, 1.0, "bf16"), 65.2, 0.2),
    ("h200-sxm", convolution("conv", 1.0, 14.0, 1024.0, 256.0, 1.0, "bf16"), 4.1, 0.25),
    ("h200-sxm", convolution("conv", 128.0, 56.0, 96.0, 96.0, 7.0, "bf16", groups=96.0), 279.7, 0.3),
    ("h200-sxm", convolution("conv", 128.0, 28.0, 128.0, 128.0, 3.0, "bf16", nhwc=0.0), 100.0, 0.2),
    ("h200-sxm", convolution("conv", 128.0, 28.0, 128.0, 128.0, 3.0, "tf32"), 89.2, 0.25),
    ("h200-sxm", convolution("conv", 128.0, 112.0, 64.0, 128.0, 3.0, "fp32"), 6294.9, 0.3),
    ("h200-sxm", moved("elementwise", 16384.0, 4096.0, 4.0, 2.0), 94.0, 0.05),
    ("h200-sxm", moved("elementwise", 128.0, 768.0, 4.0, 2.0), 2.0, 0.15),
    ("h200-sxm", moved("elementwise", 16384.0, 4096.0, 2.0, 2.0, role="gelu"), 87.1, 0.1),
    ("h200-sxm", moved("copy", 8192.0, 1024.0, 2.0, 2.0), 6.2, 0.2),  # within the L2
    ("h200-sxm", moved("copy", 32768.0, 2048.0, 4.0, 4.0, "fp32"), 128.4, 0.1),
    ("h200-sxm", moved("norm", 65536.0, 768.0, 2.0, 2.0), 133.8, 0.15),
    ("h200-sxm", moved("norm_backward", 16384.0, 4096.0, 4.0, 2.0), 228.1, 0.25),
    ("h200-sxm", moved("softmax", 65536.0, 768.0, 2.0, 2.0), 88.8, 0.2),
    ("h200-sxm", moved("softmax_backward", 16384.0, 4096.0, 4.0, 2.0), 189.3, 0.15),
    ("h200-sxm", moved("transpose", 16384.0, 4096.0, 2.0, 2.0, role="matrix"), 441.6, 0.1),
    ("h200-sxm", moved("optimizer", 1.0, 402653184.0, 16.0, 12.0, "fp32", "adamw"), 3234.5, 0.1),
    ("h200-sxm", attention("attention", 8.0, 32.0, 32.0, 2048.0, 2048.0, 128.0, 0.0), 830.0, 0.2),
    ("a100-pcie-80gb", product(4096.0, 1024.0, 3072.0, "fp32"), 1651.6, 0.2),
    ("l4", product(1024.0, 50272.0, 4096.0, "fp32"), 49374.0, 0.2),  # a third of what its clock promises: 72 W
    ("t4", product(1280.0, 50272.0, 4096.0, "fp32"), 126006.6, 0.2),  # half: 70 W
    ("v100-pcie-32gb", product(8192.0, 4096.0, 50272.0, "fp32"), 301873.9, 0.25),
    ("h100-sxm", product(4096.0, 30522.0, 1024.0, "fp32"), 5064.7, 0.15),
    ("a100-sxm-80gb", product(4096.0, 57344.0, 8192.0, "fp16"), 15940.5, 0.2),
    ("a40", product(8.0, 10240.0, 8192.0, "fp16"), 311.0, 0.15),
    ("h100-sxm", product(128.0, 8192.0, 28672.0, "fp16"), 166.0, 0.25),
    ("a100-sxm-80gb", product(256.0, 7168.0, 7168.0, "bf16"), 139.8, 0.25),
    ("l40s", product(4096.0, 4096.0, 4096.0, "bf16"), 545.1, 0.2),
    ("rtx-pro-6000-server", product(256.0, 16384.0, 8192.0, "bf16"), 242.6, 0.3),
    ("b200", product(1792.0, 16128.0, 3072.0, "bf16"), 101.8, 0.2),
    ("mi300x", product(10240.0, 15360.0, 8192.0, "bf16"), 3855.4, 0.25),
]


@pytest.mark.parametrize(("gpu", "op", "microseconds", "tolerance"), MEASURED)
def test_measured_operators(gpu: str, op: Op, microseconds: float, tolerance: float) -> None:
    predicted = float(operator_seconds([op], build_gpu_columns([CATALOG.gpu_by_id[gpu]])).seconds[0, 0, 0])
    assert predicted * 1e6 == pytest.approx(microseconds, rel=tolerance)


def test_parameters_are_numbers_by_name() -> None:
    values = parameters()
    assert all(np.isfinite(value) and value >= 0 for value in values.values())
    assert all(
        value <= 1.0
        for name, value in values.items()
        if name.startswith(("memory.bandwidth_share", "gemm.bandwidth_share", "conv.bandwidth_share"))
    )


def test_one_batch_and_many_agree() -> None:
    gpus = build_gpu_columns(GPUS[:3])
    many = operator_seconds([elementwise(BATCHES * 1e4, 2.0, 2.0), gemm(BATCHES, 4096.0, 4096.0, "bf16", 2.0)], gpus).seconds
    for place in (0, 17, 60):
        batch = float(BATCHES[place])
        one = operator_seconds([elementwise(batch * 1e4, 2.0, 2.0), gemm(batch, 4096.0, 4096.0, "bf16", 2.0)], gpus).seconds
        assert one[..., 0] == pytest.approx(many[..., place])
