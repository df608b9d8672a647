"""Properties of training memory over random models: more work never needs less, sharing never costs more than it says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from whichgpu.estimate.memory.training.training_step import training_memory
from whichgpu.workload.shapes import Mlp, Transformer
from whichgpu.workload.workload import Parallel, Workload


@st.composite
def transformers(draw: Any) -> Transformer:
    heads = draw(st.sampled_from([4, 8, 16]))
    kv_heads = draw(st.sampled_from([head for head in (1, 2, 4, 8, 16) if heads % head == 0]))
    head_dim = draw(st.sampled_from([32, 64, 128]))
    return Transformer(
        "random",
        draw(st.sampled_from(["llama", "gpt2", "bert", "phi"])),
        heads * head_dim,
        draw(st.integers(1, 6)),
        heads,
        heads if draw(st.booleans()) else kv_heads,
        head_dim,
        draw(st.sampled_from([512, 1024, 4096])),
        draw(st.sampled_from([1000, 32000])),
        draw(st.booleans()),
        draw(st.sampled_from(["rms", "layer"])),
        draw(st.sampled_from(["silu", "gelu", "gelu_tanh", "relu"])),
        draw(st.booleans()),
        True,
        0,
        4096,
        dropout=draw(st.sampled_from([0.0, 0.1])),
    )


def needed(workload: Workload, shape: Transformer | Mlp) -> float:
    return training_memory(workload, shape, None).allocated.value


def request(**values: Any) -> Workload:
    usual: dict[str, Any] = {"precision": "bf16", "batch": 2, "seq_in": 256, "optimizer": "adamw"}
    return Workload("train", "random", **usual | values)


@settings(max_examples=examples(25))
@given(transformers(), st.integers(1, 8), st.integers(1, 8))
def test_a_larger_batch_or_sequence_never_needs_less(shape: Transformer, one: int, other: int) -> None:
    less, more = sorted((one, other))
    assert needed(request(batch=less), shape) <= needed(request(batch=more), shape)
    assert needed(request(seq_in=64 * less), shape) <= needed(request(seq_in=64 * more), shape)


@settings(max_examples=examples(25))
@given(transformers())
def test_a_wider_type_never_needs_less(shape: Transformer) -> None:
    assert needed(request(precision="bf16"), shape) <= needed(request(precision="fp32"), shape)


@settings(max_examples=examples(25))
@given(transformers(), st.sampled_from([2, 4, 8]))
def test_sharding_never_costs_more_than_its_stated_buffers(shape: Transformer, degree: int) -> None:
    alone = needed(request(batch=2), shape)
    for zero in (1, 2, 3):
        shared = request(batch=2 * degree, parallel=Parallel(dp=degree, zero=zero))
        estimate = training_memory(shared, shape, None)
        buffers = 3 * max(alone / max(1, shape.layers), shape.vocab * shape.hidden * 2)
        assert estimate.allocated.value <= alone + buffers
    assert needed(request(parallel=Parallel(tp=2)), shape) <= alone * 1.01


@settings(max_examples=examples(25))
@given(transformers())
def test_checkpointing_and_adapters_never_need_more(shape: Transformer) -> None:
    plain = needed(request(batch=8), shape)
    assert needed(request(batch=8, checkpointing="full"), shape) <= plain * 1.02
    assert needed(request(batch=8, optimizer="adamw-8bit"), shape) <= plain
    assert needed(request(batch=8, optimizer="sgd"), shape) <= plain


@settings(max_examples=examples(25))
@given(st.lists(st.integers(8, 2048), min_size=2, max_size=6), st.integers(1, 64))
def test_perceptron_memory_covers_weights_gradients_and_optimizer_states(units: list[int], batch: int) -> None:
    shape = Mlp("mlp", tuple(units))
    parameters = sum(a * b + b for a, b in pairwise(units))
    workload = replace(request(precision="fp32", optimizer="sgd-momentum", batch=batch), seq_in=None)
    assert needed(workload, shape) >= 12 * parameters
