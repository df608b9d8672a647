"""Memory of compiled training steps: against peaks measured on an H200 (PyTorch 2.11), and a layer by hand."""

from __future__ import annotations

from typing import Any

import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.training.compiled import compiled_block, compiled_head
from whichgpu.estimate.memory.training.embedding_and_head import head_block
from whichgpu.estimate.memory.training.layers import LayerRun, layer_block
from whichgpu.estimate.memory.training.operators import WIDTHS
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import as_transformer
from whichgpu.workload.workload import Workload

CATALOG = Catalog()
# Largest torch.cuda.max_memory_allocated of steps after the fourth, random weights, AdamW (fused) or SGD with momentum.
MEASURED: tuple[tuple[dict[str, Any], int], ...] = (
    ({"model": "gpt2", "precision": "amp-bf16", "batch": 16, "seq_in": 1024}, 12_590_723_584),
    ({"model": "opt-1.3b", "precision": "bf16", "batch": 8, "seq_in": 1024}, 21_159_414_784),
    ({"model": "qwen1.5-0.5b", "precision": "bf16", "batch": 8, "seq_in": 2048}, 21_174_814_720),
    ({"model": "llama-3.2-1b", "precision": "bf16", "batch": 4, "seq_in": 4096}, 32_099_772_416),
    ({"model": "bert-large", "precision": "amp-bf16", "batch": 32, "seq_in": 512}, 22_293_246_464),
    ({"model": "roberta-base", "precision": "fp32", "batch": 32, "seq_in": 256}, 8_415_555_584),
    ({"model": "resnet50", "precision": "amp-bf16", "batch": 128, "optimizer": "sgd-momentum"}, 5_863_570_944),
    ({"model": "vit_b_16", "precision": "amp-bf16", "batch": 128}, 10_000_876_032),
    ({"model": "convnext_tiny", "precision": "amp-bf16", "batch": 64}, 4_153_086_464),
)


@pytest.mark.parametrize(("fields", "measured"), MEASURED, ids=lambda one: one["model"] if isinstance(one, dict) else "")
def test_compiled_steps_are_within_8_percent_of_measured_peaks(fields: dict[str, Any], measured: int) -> None:
    shape = find_model(fields["model"], CATALOG)
    workload = fill_defaults(Workload("train", gpu="h200-sxm", engine="pytorch-compile", **fields), shape)
    assert estimate_memory(workload, shape).allocated.value == pytest.approx(measured, rel=0.08)


def test_a_compiled_llama_layer_saves_what_its_kernels_read() -> None:
    """Widths of Llama 3.2 1B in 16 bit: two norm outputs, two residual sums, q, k, v, attention, gate, up and their product."""
    tokens = 64
    shape = as_transformer(find_model("llama-3.2-1b", CATALOG))
    block = compiled_block(layer_block(shape, LayerRun(tokens, tokens, "flash"), WIDTHS["bf16"]))
    rows = 2 * 2048 + 2 * 2048 + 2048 + 512 + 512 + 2048 + 3 * 8192
    statistics = 4 * 32 * tokens  # fp32 log-sum-exp of each of 32 heads
    assert block.saved_bytes == 2 * rows * tokens + statistics


def test_the_gradient_of_logits_overwrites_them_unless_a_gemm_needs_padding() -> None:
    shape = as_transformer(find_model("llama-3.2-1b", CATALOG))
    block = head_block(shape, 64, WIDTHS["bf16"])
    aligned, padded = compiled_head(block, 128256).nodes[-1], compiled_head(block, 128257).nodes[-1]
    assert aligned.in_place
    assert not aligned.backward_temporary
    assert not padded.in_place
    assert padded.backward_temporary == 2 * 64 * shape.vocab
