"""Properties of time: no estimate beats physics, more work never takes less, a better GPU is never slower.

The floors here are computed independently, from sizes alone, so that a fault in the lowering cannot hide in them.
"""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from tests.unit import shapes
from whichgpu.catalog.architecture import architecture_of
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.time_estimate import TimeEstimate, estimate_time
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Experts, Mlp, Shape, Transformer
from whichgpu.workload.spelling import fill_defaults
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Workload

CATALOG = Catalog()
H200 = "h200-sxm"
ALIGNMENT = 0.97  # a larger batch may meet a better-suited kernel: the slack the issue allows
WIDTH = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "nvfp4": 0.5}
SIXTEEN = ("fp32", "tf32", "fp16", "bf16", "fp16_plain", "bf16_plain")
# GMAC of one image, as torchvision's documentation lists them
VISION = {
    "alexnet": 0.71, "vgg16": 15.47, "resnet18": 1.81, "resnet50": 4.09, "resnet152": 11.51, "densenet121": 2.83,
    "mobilenet_v3_large": 0.22, "efficientnet_b0": 0.39, "convnext_tiny": 4.46, "swin_t": 4.49, "vit_b_16": 17.56,
}  # fmt: skip
SERVING = ("vllm", "sglang", "tensorrt-llm")
few = settings(max_examples=examples(25))
RATED = [gpu for gpu in CATALOG.gpus if "fp32" in gpu.peaks or "bf16" in gpu.peaks or "fp16" in gpu.peaks]
BY_ID = CATALOG.gpu_by_id
gpus = st.sampled_from([gpu.id for gpu in RATED])  # by id: examples that fail stay readable
batches = st.integers(1, 256)


@st.composite
def transformers(draw: st.DrawFn, mixtures: bool = True) -> Transformer:
    """Decoders of a plain kind: no windows, no latents, so that their floors can be counted in a line."""
    heads = draw(st.sampled_from([4, 8, 12, 16, 32, 40]))
    head_dim = draw(st.sampled_from([64, 96, 128]))
    hidden = heads * head_dim
    ffn = draw(st.integers(1, 5)) * hidden // 2 + draw(st.sampled_from([0, 1, 8, 64]))
    experts = st.builds(Experts, count=st.sampled_from([4, 8, 64]), active=st.integers(1, 4), ffn=st.just(max(64, ffn // 4)))
    return replace(
        shapes.LLAMA_3_8B,
        name="drawn",
        hidden=hidden,
        layers=draw(st.integers(1, 48)),
        heads=heads,
        kv_heads=draw(st.sampled_from([1, 4, heads])),
        head_dim=head_dim,
        ffn=ffn,
        vocab=draw(st.integers(100, 200_000)),
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        experts=draw(st.none() | experts) if mixtures else None,
    )


mlps = st.lists(st.integers(1, 8192), min_size=2, max_size=6).map(lambda units: Mlp("drawn", tuple(units)))


def timed(task: Task, shape: Shape, gpu: Gpu, **fields: Any) -> TimeEstimate:
    return estimate_time(fill_defaults(Workload(task, "drawn", **fields), shape), shape, gpu)


def seconds(task: Task, shape: Shape, gpu: Gpu, **fields: Any) -> float:
    return timed(task, shape, gpu, **fields).time.value


def layer_weights(shape: Transformer, touched: float) -> float:
    """Weights of one layer's matrices; of an MoE the distinct experts touched."""
    query, key_value = shape.heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
    attention = shape.hidden * (2 * query + key_value)
    matrices = 3 if shape.gated else 2
    if shape.experts is None:
        return attention + matrices * shape.hidden * shape.ffn
    return attention + touched * matrices * shape.hidden * shape.experts.ffn


def active_weights(shape: Transformer) -> float:
    return shape.layers * layer_weights(shape, shape.experts.active if shape.experts else 0)


def read_weights(shape: Transformer, tokens: float) -> float:
    """Weights that a number of tokens touch: 1-(1-k/E)^tokens of an MoE's experts."""
    if shape.experts is None:
        return shape.layers * layer_weights(shape, 0)
    touched = shape.experts.count * (1 - (1 - shape.experts.active / shape.experts.count) ** tokens)
    return shape.layers * layer_weights(shape, touched)


def best_peak(gpu: Gpu, precision: str) -> float:
    """The highest rate that could possibly apply: a floor must hold whatever unit the estimate takes."""
    names = ("fp32", "tf32") if precision == "fp32" else SIXTEEN if WIDTH[precision] == 2 else tuple(gpu.peaks)
    peaks = [gpu.peaks[name] for name in names if name in gpu.peaks]
    assume(bool(peaks))
    return float(max(peaks))


@few
@given(
    transformers(),
    gpus,
    batches,
    st.integers(1, 32_768),
    st.sampled_from(list(WIDTH)),
    st.sampled_from(["cuda-graphs", *SERVING]),
)
@example(shapes.LLAMA_3_8B, H200, 1, 1024, "bf16", "cuda-graphs")
@example(shapes.MIXTRAL, H200, 64, 4096, "bf16", "vllm")
def test_decoding_never_beats_the_floor(
    shape: Transformer, card: str, batch: int, context: int, precision: str, engine: str
) -> None:
    gpu = BY_ID[card]
    measured = seconds("decode", shape, gpu, batch=batch, seq_in=context, precision=precision, kv_precision="bf16", engine=engine)
    cache = 2.0 * batch * context * shape.kv_heads * shape.head_dim * shape.layers * 2
    moved = read_weights(shape, batch) * WIDTH[precision] + cache
    computed = 2.0 * active_weights(shape) * batch
    assert measured >= 0.999 * max(moved / gpu.memory_bandwidth, computed / best_peak(gpu, precision))


@few
@given(transformers(), gpus, st.integers(1, 16), st.integers(1, 16_384), st.sampled_from(list(WIDTH)), st.sampled_from(SERVING))
@example(shapes.LLAMA_3_8B, H200, 1, 8192, "bf16", "vllm")
def test_prefill_never_beats_the_floor(
    shape: Transformer, card: str, batch: int, length: int, precision: str, engine: str
) -> None:
    gpu = BY_ID[card]
    measured = seconds("prefill", shape, gpu, batch=batch, seq_in=length, precision=precision, engine=engine)
    moved = read_weights(shape, batch * length) * WIDTH[precision]
    # two products over the lower triangle of queries x keys
    attention = 0.5 * 4.0 * batch * length**2 * shape.heads * shape.head_dim * shape.layers
    computed = 2.0 * active_weights(shape) * batch * length + attention
    assert measured >= 0.999 * max(moved / gpu.memory_bandwidth, computed / best_peak(gpu, precision))


@few
@given(transformers(), gpus, st.integers(1, 16), st.integers(16, 8192), st.sampled_from(["bf16", "fp32", "fp16"]))
@example(shapes.LLAMA_3_8B, H200, 8, 2048, "bf16")
def test_a_training_step_never_beats_the_floor(shape: Transformer, card: str, batch: int, length: int, precision: str) -> None:
    gpu = BY_ID[card]
    measured = seconds("train", shape, gpu, batch=batch, seq_in=length, precision=precision)
    computed = 6.0 * active_weights(shape) * batch * length + 6.0 * shape.hidden * shape.vocab * batch * length
    states = read_weights(shape, 1e9) * WIDTH[precision] * 3  # each weight read, its gradient read, the weight written
    assert measured >= 0.999 * max(computed / best_peak(gpu, precision), states / gpu.memory_bandwidth)


@few
@given(st.sampled_from(list(VISION)), gpus, st.integers(1, 512), st.sampled_from(["fp32", "fp16"]), st.booleans())
@example("resnet50", H200, 256, "fp16", True)
def test_vision_never_beats_the_floor(name: str, card: str, batch: int, precision: str, training: bool) -> None:
    gpu = BY_ID[card]
    shape = find_model(name, CATALOG)
    measured = seconds("train" if training else "forward", shape, gpu, batch=batch, precision=precision)
    passes = 2.7 if training else 1.0  # the first layer has no gradient of its input
    computed = 0.97 * 2e9 * VISION[name] * batch * passes
    assert measured >= computed / best_peak(gpu, precision)


@few
@given(mlps, gpus, st.integers(1, 4096), st.booleans())
def test_a_perceptron_never_beats_the_floor(shape: Mlp, card: str, batch: int, training: bool) -> None:
    gpu = BY_ID[card]
    weights = float(sum(prod(pair) for pair in zip(shape.units, shape.units[1:], strict=False)))
    first = shape.units[0] * shape.units[1]
    measured = seconds("train" if training else "forward", shape, gpu, batch=batch, precision="fp32")
    computed = 2.0 * batch * (3 * weights - first if training else weights)
    moved = 4.0 * weights * (3 if training else 1)
    assert measured >= 0.999 * max(computed / best_peak(gpu, "fp32"), moved / gpu.memory_bandwidth)


TASKS: tuple[Task, ...] = ("decode", "prefill", "train", "forward", "serve", "batch")


@few
@given(transformers(), gpus, st.sampled_from(TASKS), st.integers(1, 128), st.integers(1, 128), st.integers(1, 4096))
def test_time_does_not_fall_as_the_batch_grows(
    shape: Transformer, card: str, task: Task, batch: int, more: int, length: int
) -> None:
    small, large = (seconds(task, shape, BY_ID[card], batch=size, seq_in=length) for size in (batch, batch + more))
    assert large >= ALIGNMENT * small


@few
@given(st.sampled_from(list(VISION)), gpus, st.integers(1, 256), st.integers(1, 256), st.booleans())
def test_time_of_vision_does_not_fall_as_the_batch_grows(name: str, card: str, batch: int, more: int, training: bool) -> None:
    shape, task = find_model(name, CATALOG), "train" if training else "forward"
    small, large = (seconds(task, shape, BY_ID[card], batch=size) for size in (batch, batch + more))  # type: ignore[arg-type]
    assert large >= ALIGNMENT * small


@few
@given(
    transformers(),
    gpus,
    st.sampled_from(["decode", "prefill", "train"]),
    st.integers(1, 64),
    st.integers(1, 8192),
    st.integers(1, 8192),
)
def test_time_does_not_fall_as_sequences_grow(
    shape: Transformer, card: str, task: Task, batch: int, length: int, more: int
) -> None:
    short, long = (seconds(task, shape, BY_ID[card], batch=batch, seq_in=size) for size in (length, length + more))
    assert long >= ALIGNMENT * short


def better(gpu: Gpu, bandwidth: float, rates: float, rest: float) -> Gpu:
    """A GPU that has more of everything and is otherwise the same."""
    return replace(
        gpu,
        memory_bandwidth=int(gpu.memory_bandwidth * bandwidth),
        peaks={name: int(rate * rates) for name, rate in gpu.peaks.items()},
        memory_bytes=int(gpu.memory_bytes * rest),
        l2_bytes=None if gpu.l2_bytes is None else int(gpu.l2_bytes * rest),
        boost_clock_hz=None if gpu.boost_clock_hz is None else int(gpu.boost_clock_hz * rates),
    )


factors = st.floats(1.0, 4.0)


@few
@given(transformers(), gpus, st.sampled_from(TASKS), st.integers(1, 128), st.integers(1, 8192), factors, factors, factors)
def test_a_gpu_better_in_every_respect_is_never_slower(
    shape: Transformer, card: str, task: Task, batch: int, length: int, bandwidth: float, rates: float, rest: float
) -> None:
    gpu = BY_ID[card]
    own = seconds(task, shape, gpu, batch=batch, seq_in=length)
    assert seconds(task, shape, better(gpu, bandwidth, rates, rest), batch=batch, seq_in=length) <= own * 1.0001


@few
@given(st.sampled_from(list(VISION)), gpus, st.integers(1, 512), st.booleans(), factors, factors, factors)
def test_better_gpu_is_never_slower_for_vision(
    name: str, card: str, batch: int, training: bool, bandwidth: float, rates: float, rest: float
) -> None:
    gpu = BY_ID[card]
    shape, task = find_model(name, CATALOG), "train" if training else "forward"
    own = seconds(task, shape, gpu, batch=batch)  # type: ignore[arg-type]
    assert seconds(task, shape, better(gpu, bandwidth, rates, rest), batch=batch) <= own * 1.0001  # type: ignore[arg-type]


@few
@given(transformers(), gpus, st.integers(1, 128), st.integers(1, 16_384), st.integers(1, 3))
def test_more_multiprocessors_at_the_same_rate_each_are_never_slower(
    shape: Transformer, card: str, batch: int, length: int, times: int
) -> None:
    gpu = BY_ID[card]
    assume(gpu.sms is not None)
    wider = replace(better(gpu, times, times, times), sms=(gpu.sms or 1) * times, boost_clock_hz=gpu.boost_clock_hz)
    for task in ("decode", "prefill"):
        own = seconds(task, shape, gpu, batch=batch, seq_in=length)
        assert seconds(task, shape, wider, batch=batch, seq_in=length) <= own * 1.0001


@few
@given(transformers(), gpus, batches, st.integers(1, 32_768), st.sampled_from(["pytorch", "cuda-graphs", *SERVING]))
def test_doubling_bandwidth_never_slows_decoding(shape: Transformer, card: str, batch: int, context: int, engine: str) -> None:
    gpu = BY_ID[card]
    fields = {"batch": batch, "seq_in": context, "engine": engine}
    twice = replace(gpu, memory_bandwidth=2 * gpu.memory_bandwidth)
    own, faster = (seconds("decode", shape, card, **fields) for card in (gpu, twice))
    assert faster <= own * 1.0001
    assert faster >= 0.499 * own


@few
@given(transformers(), gpus, gpus, st.sampled_from(TASKS), st.integers(1, 64), st.sampled_from(["pytorch", "pytorch-compile"]))
def test_the_host_does_not_know_which_gpu_it_drives(
    shape: Transformer, first: str, second: str, task: Task, batch: int, engine: str
) -> None:
    assume(not any(architecture_of(BY_ID[gpu]).roofline for gpu in (first, second)))  # their host starts one compiled graph
    one, other = (
        timed(task, shape, gpu, batch=batch, seq_in=512, engine=engine, precision="bf16") for gpu in (BY_ID[first], BY_ID[second])
    )
    assert one.time_host.value == pytest.approx(other.time_host.value, rel=1e-6)


@pytest.mark.parametrize("family", ["gaudi", "tpu", "neuron"])
def test_the_host_starts_one_compiled_graph_on_other_accelerators(family: str) -> None:
    """Its time depends on the runtime alone: equal on all chips of a family, and less than that of launching every kernel."""
    shape = find_model("llama-2-7b", CATALOG)
    chips = [gpu for gpu in CATALOG.gpus if architecture_of(gpu).roofline == family]
    steps: list[tuple[Task, int]] = [("decode", 1), ("decode", 16), ("train", 4)]
    hosts = {timed(task, shape, chip, batch=batch, seq_in=512).time_host.value for chip in chips for task, batch in steps}
    (host,) = hosts
    launched = timed("decode", shape, BY_ID["h100-sxm"], batch=1, seq_in=512, engine="pytorch").time_host.value
    assert 0 < host < launched


UNIT = {"fp8": "fp8", "int8": "int8", "nvfp4": "fp4"}
UNPACKING = 1.5  # at most, where arithmetic bounds: 1.3 of it for widening, and rows of scales


@settings(few, suppress_health_check=[HealthCheck.filter_too_much])  # few GPUs have low-precision units
@given(
    transformers(mixtures=False),
    gpus,
    st.integers(1, 32),
    st.sampled_from(["fp8", "int8", "nvfp4", "int4"]),
    st.sampled_from(SERVING),
)
def test_low_precision_weights_never_slow_decoding_with_hardware_support(
    shape: Transformer, card: str, batch: int, precision: str, engine: str
) -> None:
    """Casting activations costs a kernel for each product; beyond that, half the bytes are never more work."""
    gpu = BY_ID[card]
    assume("tensor-cores" in gpu.supports)
    assume(UNIT.get(precision, "fp16") in gpu.peaks)
    assume(active_weights(shape) >= 1e9)
    wide, narrow = (
        seconds("decode", shape, gpu, batch=batch, seq_in=512, precision=name, kv_precision="bf16", engine=engine)
        for name in ("bf16" if "bf16" in gpu.peaks else "fp16", precision)
    )
    assert narrow <= 1.05 * wide + shape.layers * 20e-6


@settings(few, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    transformers(mixtures=False),
    gpus,
    st.integers(1, 32),
    st.sampled_from(["fp8", "int8", "nvfp4", "int4", "q8_0", "q4_k_m"]),
    st.sampled_from([*SERVING, "llama.cpp"]),
)
@example(shapes.LLAMA_3_8B, "v100-pcie-16gb", 6, "int8", "vllm")
@example(shapes.LLAMA_3_8B, "h20-96gb", 16, "nvfp4", "sglang")
@example(shapes.LLAMA_3_8B, "rtx-2060-super", 8, "fp8", "llama.cpp")
def test_weight_only_quantisation_slows_decoding_by_dequantisation_at_most(
    shape: Transformer, card: str, batch: int, precision: str, engine: str
) -> None:
    """Where the GPU lacks the unit, weights are widened in the product's kernel: what that costs shows at large batches only."""
    gpu = BY_ID[card]
    assume("tensor-cores" in gpu.supports)
    assume(active_weights(shape) >= 1e9)
    wide, narrow = (
        seconds("decode", shape, gpu, batch=batch, seq_in=512, precision=name, kv_precision="bf16", engine=engine)
        for name in ("bf16" if "bf16" in gpu.peaks else "fp16", precision)
    )
    assert narrow <= UNPACKING * wide + shape.layers * 20e-6


@pytest.mark.parametrize(
    ("model", "card", "batch", "precision", "engine", "gain"),
    [
        ("llama-3.2-1b", "v100-pcie-16gb", 6, "int8", "vllm", 1.0),
        ("llama-3.2-3b", "rtx-2060-super", 13, "int4", "sglang", 1.0),
        ("llama-2-7b", "quadro-rtx-6000", 32, "int4", "sglang", 1.0),
        # one sequence is bound by bytes, of which four-bit weights have about a third with scales and 16-bit ends
        ("llama-2-7b", "v100-sxm-32gb", 1, "int8", "vllm", 1.4),
        ("llama-2-7b", "v100-sxm-32gb", 1, "int4", "vllm", 2.0),
        ("llama-2-7b", "quadro-rtx-8000", 1, "int4", "vllm", 2.0),
        ("llama-2-7b", "quadro-rtx-8000", 1, "q4_k_m", "llama.cpp", 2.0),
        ("llama-2-7b", "v100-sxm-32gb", 1, "q4_k_m", "llama.cpp", 2.0),
        ("llama-2-7b", "jetson-agx-orin-64gb", 1, "int8", "vllm", 1.4),
        ("llama-2-7b", "jetson-agx-orin-64gb", 1, "int4", "vllm", 2.0),
    ],
)
def test_low_precision_weights_speed_up_decoding_on_gpus_without_bf16_too(
    model: str, card: str, batch: int, precision: str, engine: str, gain: float
) -> None:
    """Engines compute in fp16 there, whatever holds the weights: nothing of the step is to fall back to fp32."""
    shape, gpu = find_model(model, CATALOG), BY_ID[card]
    assert isinstance(shape, Transformer)
    wide, narrow = (
        seconds("decode", shape, gpu, batch=batch, seq_in=512, precision=name, kv_precision="bf16", engine=engine)
        for name in ("fp16", precision)
    )
    assert gain * narrow <= wide


@few
@given(transformers(), gpus, st.sampled_from(TASKS), st.integers(1, 64))
def test_figures_are_figures(shape: Transformer, card: str, task: Task, batch: int) -> None:
    answer = timed(task, shape, BY_ID[card], batch=batch, seq_in=512)
    for figure in (answer.time, answer.time_device, answer.time_host, answer.throughput):
        assert 0 <= figure.low <= figure.value <= figure.high < float("inf")
        assert figure.sources
    assert answer.time.low > 0
    assert answer.time_device.value <= answer.time.value * 1.001


@few
@given(transformers(), gpus, st.integers(1, 64), st.sampled_from(TASKS))
def test_a_layer_more_is_never_less_time(shape: Transformer, card: str, batch: int, task: Task) -> None:
    deeper = replace(shape, layers=shape.layers + 1)
    own, more = (seconds(task, one, BY_ID[card], batch=batch, seq_in=512) for one in (shape, deeper))
    assert more >= own
