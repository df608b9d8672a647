"""Memory of fine-tuning as LitGPT and torchtune run it: published peaks, and the causes one by one."""

from __future__ import annotations

from typing import Any

import pytest

from whichgpu.catalog.engines.record import TrainingTraits
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.training.embedding_and_head import chunked_head_block, chunked_loss_block
from whichgpu.estimate.memory.training.layers import LayerRun, layer_block
from whichgpu.estimate.memory.training.operators import WIDTHS, QuantisedWeights
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import as_transformer
from whichgpu.workload.spelling import from_object

CATALOG = Catalog()
COMMON = {"task": "finetune", "gpus": 1, "precision": "bf16", "optimizer": "adamw", "checkpointing": "none"}
LITGPT = {**COMMON, "engine": "litgpt", "year": 2024, "seq_in": 512, "lora_dropout": 0.05}
# Bytes that LitGPT's config_hub/finetune/README.md publishes (GB peak memory, 2024): batch, rank, QLoRA, peak.
PEAKS = (
    ("gemma-2b", 2, 8, False, 12.62e9),
    ("gemma-2b", 2, 16, True, 11.58e9),
    ("gemma-7b", 1, 16, True, 17.18e9),
    ("gemma-2-9b", 1, 16, True, 20.92e9),
    ("phi-3-mini", 4, 8, True, 19.13e9),
    ("tinyllama-1.1b", 8, 32, True, 16.24e9),
)


def allocated(fields: dict[str, Any], gpu: str = "a10g") -> float:
    shape = find_model(fields["model"], CATALOG)
    workload = fill_defaults(from_object({**fields, "gpu": gpu}).workload, shape)
    return estimate_memory(workload, shape, CATALOG.gpu_by_id[gpu]).allocated.value


@pytest.mark.parametrize(("model", "batch", "rank", "qlora", "peak"), PEAKS)
def test_litgpt_peaks_are_within_6_percent(model: str, batch: int, rank: int, qlora: bool, peak: float) -> None:
    fields = {**LITGPT, "model": model, "batch": batch, "lora_rank": rank, "qlora": qlora}
    assert allocated(fields) == pytest.approx(peak, rel=0.06)


def test_torchtune_peaks() -> None:
    """Llama 3.2 3B, two packed sequences of 4096 tokens on an A100: 60.0 GiB, and 51.0 compiled (torchtune's README, 2025)."""
    fields = {**COMMON, "model": "llama-3.2-3b", "batch": 2, "seq_in": 4096}
    plain, compiled = (
        allocated({**fields, "engine": engine}, "a100-sxm-80gb") / 2**30 for engine in ("torchtune", "torchtune-compile")
    )
    assert plain == pytest.approx(60.0, rel=0.06)
    assert compiled == pytest.approx(51.0, rel=0.08)
    # An H200 allocates 7.83 GiB for such a head and its compiled loss: 8,192 rows of 128,256 logits and gradients in fp32.
    assert compiled > allocated({**fields, "engine": "pytorch-compile"}, "a100-sxm-80gb") / 2**30 + 3.5


def test_causes_in_the_engines_records() -> None:
    old, new = engine_record("litgpt", 2024).training, engine_record("litgpt").training
    assert (old.dequantised_copies, old.nf4_bytes, old.quantises_head, old.ties_head) == (2, 0.5 + 4 / 64, True, False)
    assert (old.keeps_quantised_inputs, new.keeps_quantised_inputs) == (True, False)
    assert engine_record("pytorch").training == engine_record("vllm").training == TrainingTraits()
    assert engine_record("torchtune-compile").training.expands_heads


def test_inputs_of_quantised_gemms_are_kept_and_weights_dequantised() -> None:
    """A Llama layer with adapters on q and v: inputs of all seven GEMMs, of which q, k, v and gate, up share one each."""
    shape, tokens = as_transformer(find_model("llama-3.2-1b", CATALOG)), 64
    run = LayerRun(tokens, tokens, "flash", 8, frozenset({"q", "v"}), quantised=QuantisedWeights(2, True))
    block = layer_block(shape, run, WIDTHS["bf16"])
    assert block.dequantised_inputs == 2 * tokens * (2048 + 2048 + 2048 + 8192)
    assert max(node.forward_temporary for node in block.nodes) == 2 * 2 * 2048 * 8192
    keeps_none = layer_block(shape, LayerRun(tokens, tokens, "flash", 8, quantised=QuantisedWeights()), WIDTHS["bf16"])
    assert keeps_none.dequantised_inputs == 0
    assert max(node.backward_temporary for node in keeps_none.nodes) == 2 * 2048 * 8192


def test_one_projection_for_queries_keys_and_values_saves_one_adapter_input() -> None:
    """Dropout makes each adapter a copy of its input (2 bytes) with a mask (1 byte); q, k and v share them if joint."""
    shape, tokens = as_transformer(find_model("llama-3.2-1b", CATALOG)), 64
    apart, joint = (
        layer_block(shape, LayerRun(tokens, tokens, "flash", 8, lora_dropout=0.1, joint_projections=one), WIDTHS["bf16"])
        for one in (False, True)
    )
    ranks = 2 * 2 * 8 * tokens  # A's outputs of two adapters
    assert apart.saved_bytes - joint.saved_bytes == 2 * 3 * 2048 * tokens + ranks


def test_keys_and_values_of_each_query_head_are_saved() -> None:
    """Llama 3.2 3B, measured on an H200: 64 MiB more a layer of 8,192 tokens, 2 x (24 - 8) heads of 128 elements."""
    shape, tokens = as_transformer(find_model("llama-3.2-3b", CATALOG)), 8192
    plain, expanded = (
        layer_block(shape, LayerRun(tokens, 4096, "flash", expands_heads=every), WIDTHS["bf16"]).saved_bytes
        for every in (False, True)
    )
    assert expanded - plain == 64 * 2**20


def test_a_head_in_chunks_writes_fp32_logits_and_its_loss_as_much_again() -> None:
    shape = as_transformer(find_model("gemma-2b", CATALOG))
    head = chunked_head_block(shape, 512, WIDTHS["bf16"], 8, 4, QuantisedWeights(2, True))
    assert head.exit.size == 4 * 512 * 256_000
    assert [node.forward_temporary for node in head.nodes if node.forward_temporary] == [2 * 2 * 2048 * 256_000] * 4
    loss = chunked_loss_block(shape, 512, 4)
    assert loss.saved_bytes == 2 * head.exit.size
