"""Properties of inference memory: it never falls as work or width grows, and splitting never costs but its stated buffers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit import shapes
from whichgpu.catalog.engines.registry import engine_ids, engine_record
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.engine_memory import COLLECTIVES
from whichgpu.estimate.memory.inference import inference_memory
from whichgpu.estimate.memory.kv import KV_TYPES, kv_bytes
from whichgpu.estimate.memory.parts import MemoryEstimate
from whichgpu.estimate.memory.quantisation import weight_bytes
from whichgpu.workload.shapes import Experts, LatentAttention, Transformer
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Parallel, Workload

CATALOG = Catalog()
NARROW_TO_WIDE = ("int4", "nvfp4", "fp8", "int8", "bf16", "fp32")
NARROW_TO_WIDE_CACHE = ("int4", "nvfp4", "fp8", "bf16", "fp32")
TASKS: tuple[Task, ...] = ("serve", "batch", "prefill", "decode", "forward")


@st.composite
def transformers(draw: st.DrawFn) -> Transformer:
    heads = draw(st.sampled_from([1, 2, 8, 12, 32, 71]))
    head_dim = draw(st.sampled_from([64, 80, 128]))
    window = draw(st.sampled_from([0, 0, 128, 4096]))
    hidden = heads * head_dim
    experts = st.builds(
        Experts,
        count=st.integers(2, 64),
        active=st.integers(1, 2),
        ffn=st.integers(1, 4 * hidden),
        shared_ffn=st.sampled_from([0, 512]),
        dense_layers=st.integers(0, 2),
        every=st.integers(1, 2),
    )
    mla = st.builds(
        LatentAttention,
        kv_rank=st.just(512),
        q_rank=st.sampled_from([0, 1536]),
        nope_dim=st.just(128),
        rope_dim=st.just(64),
        value_dim=st.just(128),
    )
    return replace(
        shapes.LLAMA_3_8B,
        hidden=hidden,
        layers=draw(st.integers(1, 40)),
        heads=heads,
        kv_heads=draw(st.sampled_from([1, heads])),
        head_dim=head_dim,
        ffn=draw(st.integers(1, 8 * hidden)),
        vocab=draw(st.integers(2, 300_000)),
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        causal=draw(st.sampled_from([True, True, False])),
        window=window,
        global_every=draw(st.integers(0, 6)) if window else 0,
        experts=draw(st.none() | experts),
        mla=draw(st.none() | mla),
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    return Workload(
        draw(st.sampled_from(TASKS)),
        "drawn",
        precision=draw(st.sampled_from([*NARROW_TO_WIDE, "q4_k_m", "amp-bf16"])),
        batch=draw(st.integers(1, 300)),
        seq_in=draw(st.integers(1, 40_000)),
        seq_out=draw(st.integers(1, 5_000)),
        attention=draw(st.sampled_from([None, "flash", "eager"])),
        engine=draw(st.sampled_from(engine_ids())),
        year=draw(st.sampled_from([None, 2019, 2024, 2025, 2026])),
    )


def bytes_of(estimate: MemoryEstimate) -> tuple[float, float]:
    return estimate.allocated.value, estimate.device.value


@given(workloads(), transformers(), st.sampled_from([None, *CATALOG.gpus]), st.integers(1, 500), st.integers(1, 10_000))
def test_more_work_never_takes_less(workload: Workload, shape: Transformer, gpu: object, batch: int, tokens: int) -> None:
    small = bytes_of(inference_memory(workload, shape, gpu))  # type: ignore[arg-type]
    for more in (
        replace(workload, batch=(workload.batch or 1) + batch),
        replace(workload, seq_in=(workload.seq_in or 1) + tokens),
        replace(workload, seq_out=(workload.seq_out or 1) + tokens),
    ):
        large = bytes_of(inference_memory(more, shape, gpu))  # type: ignore[arg-type]
        assert large[0] >= small[0]
        assert large[1] >= small[1]


@given(workloads(), transformers())
def test_a_wider_precision_never_takes_less(workload: Workload, shape: Transformer) -> None:
    sizes = [bytes_of(inference_memory(replace(workload, precision=name), shape, None)) for name in NARROW_TO_WIDE]
    assert sizes == sorted(sizes)
    assert [weight_bytes(shape, name) for name in NARROW_TO_WIDE] == sorted(weight_bytes(shape, name) for name in NARROW_TO_WIDE)


@given(transformers(), st.integers(1, 100), st.integers(1, 100_000))
def test_a_wider_cache_never_takes_less(shape: Transformer, sequences: int, context: int) -> None:
    sizes = [kv_bytes(shape, sequences, context, name) for name in NARROW_TO_WIDE_CACHE]
    assert sizes == sorted(sizes)
    assert all(kv_bytes(shape, sequences, context, name) <= sizes[-1] for name in KV_TYPES)


@given(transformers(), st.integers(1, 100), st.integers(1, 100_000), st.sampled_from([1, 16, 64, 256]))
def test_a_window_and_smaller_pages_only_ever_save(shape: Transformer, sequences: int, context: int, block: int) -> None:
    paged = kv_bytes(shape, sequences, context, "bf16", block)
    assert kv_bytes(shape, sequences, context, "bf16", 1) <= paged
    unwindowed = kv_bytes(replace(shape, window=0), sequences, context, "bf16", block)
    assert paged <= unwindowed + sequences * block * shape.layers * 4 * max(shape.kv_heads * shape.head_dim, 576)


layouts = st.builds(
    Parallel,
    dp=st.sampled_from([1, 2, 8]),
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    pp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2, 8]),
    cp=st.sampled_from([1, 2]),
)


@given(workloads(), transformers(), layouts)
def test_splitting_never_costs_more_than_its_stated_buffers(workload: Workload, shape: Transformer, layout: Parallel) -> None:
    alone = inference_memory(workload, shape, None)
    split = inference_memory(replace(workload, parallel=layout), shape, None)
    for name in ("weights", "kv_cache", "activations", "temporary"):
        of_one = alone.parts[name].value if name in alone.parts else 0
        of_many = split.parts[name].value if name in split.parts else 0
        assert of_many <= of_one + 64, name  # rounding of a share up to a byte
    stated = COLLECTIVES + 512 * engine_record("sglang").memory.graph_per_sequence
    assert split.device.value <= alone.device.value + stated + 256


@given(workloads(), transformers(), layouts, st.sampled_from([None, *CATALOG.gpus]))
def test_figures_lie_in_their_ranges_and_parts_add_up(
    workload: Workload, shape: Transformer, layout: Parallel, gpu: object
) -> None:
    estimate = inference_memory(replace(workload, parallel=layout), shape, gpu)  # type: ignore[arg-type]
    assert estimate.allocated.value <= estimate.device.value
    assert all(figure.low <= figure.value <= figure.high for figure in estimate.parts.values())
    assert sum(figure.value for figure in estimate.parts.values()) <= estimate.device.value
