"""Layers of hybrid models in training: what a gated DeltaNet layer saves, by hand, and that every hybrid model is answered."""

from __future__ import annotations

import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.training.layers import LayerRun, layer_block
from whichgpu.estimate.memory.training.operators import WIDTHS
from whichgpu.estimate.time.lower.eager.training import trained_parameters
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.layer_pattern import LayerParts
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

GIB = 1 << 30
TOKENS = 64


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog()


def hybrid(name: str, catalog: Catalog) -> Transformer:
    shape = find_model(name, catalog)
    assert isinstance(shape, Transformer)
    return shape


def saved(shape: Transformer, parts: LayerParts) -> float:
    """Bytes a token that one layer saves in bf16."""
    return layer_block(shape, LayerRun(TOKENS, TOKENS, "flash", parts=parts), WIDTHS["bf16"]).saved_bytes / TOKENS


def test_a_gated_delta_net_layer_saves_what_its_kernels_need(catalog: Catalog) -> None:
    # Qwen3.5-0.8B: hidden 1024; 16 heads of 128 for keys and as many for values; 6,144 channels of convolution.
    shape = hybrid("qwen3.5-0.8b", catalog)
    norm = 4 * 1024 + 4 + 4 * 1024  # the fp32 copy, the scale, and the normalised row whose weight is applied in fp32
    projections = 2 * 1024  # their input
    kernels = 2 * (6144 + 6144 + 3 * 2048 + 16 * 64) + 4 * 16  # before and after the convolution, q, k, v, inverse; decay
    gated_norm = (4 * 2048 + 4 + 2 * 2048) + (4 * 2048) + (2 * 2048 + 4 * 2048)  # the norm, the gate in fp32, both factors
    output = 2 * 2048
    assert (
        saved(shape, LayerParts(attention=False, recurrent=True, mlp=False)) == norm + projections + kernels + gated_norm + output
    )


def test_mamba_2_computes_again_what_lies_between_its_input_and_output(catalog: Catalog) -> None:
    shape = hybrid("nemotron-h-8b", catalog)
    mixer = shape.recurrent
    assert mixer is not None
    norm = 4 * shape.hidden + 4 + 2 * shape.hidden
    beside = 2 * shape.hidden + 2 * mixer.inward + 2 * mixer.outward + 2 * mixer.outward
    assert saved(shape, LayerParts(attention=False, recurrent=True, mlp=False)) == norm + beside


@pytest.mark.parametrize(
    "name", ["qwen3.5-27b", "nemotron-nano-9b-v2", "granite-4.0-h-small", "falcon-h1-7b", "kimi-linear-48b-a3b"]
)
def test_weights_gradients_and_optimizer_of_a_hybrid_model_are_its_parameters(name: str, catalog: Catalog) -> None:
    shape = hybrid(name, catalog)
    workload = fill_defaults(Workload("train", name, precision="bf16", micro_batch=1, seq_in=512, optimizer="adamw"), shape)
    parts = estimate_memory(workload, shape).parts
    total = count_parameters(shape).total
    assert parts["weights"].value == pytest.approx(2 * total, rel=0.01)
    assert parts["optimizer"].value == pytest.approx(4 * total, rel=0.01)


def test_adapters_of_attention_alone_leave_recurrent_layers_without_any(catalog: Catalog) -> None:
    shape = hybrid("qwen3.5-4b", catalog)
    whole, attention = (
        trained_parameters(Workload("finetune", "m", lora_rank=8, lora_targets=targets), shape)[0]
        for targets in ("all-linear", "attention")
    )
    layers_with_attention = shape.pattern.count("A")
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    each = 8 * (2 * (shape.hidden + queries) + 2 * (shape.hidden + keys))
    assert attention == layers_with_attention * each
    mixer = shape.recurrent
    assert mixer is not None
    of_mixers = 8 * (shape.hidden + mixer.inward + mixer.outward + shape.hidden)
    of_mlps = 8 * 3 * (shape.hidden + shape.ffn)
    assert whole == attention + (shape.layers - layers_with_attention) * of_mixers + shape.layers * of_mlps
