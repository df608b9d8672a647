"""Hybrid decoders: exact parameters from their configs, memory and time of inference, and a refusal of training."""

from __future__ import annotations

from typing import Any

import pytest

import whichgpu as wg
from whichgpu.catalog.store import Catalog
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import as_transformer

CATALOG = Catalog()
HYBRIDS = ("qwen3-next-80b-a3b", "qwen3.5-9b", "qwen3.5-35b-a3b", "kimi-linear-48b-a3b", "jamba-v0.1", "nemotron-h-8b")
COMMON = {"hidden_size": 4096, "vocab_size": 128000, "num_hidden_layers": 32, "num_attention_heads": 32,
          "num_key_value_heads": 8, "intermediate_size": 14336}  # fmt: skip
MAMBA2 = {"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_d_conv": 4}


# Parameters of the classes of transformers 5.22.2 at their default configs.
@pytest.mark.parametrize(
    ("config", "parameters", "pattern"),
    [
        ({**COMMON, **MAMBA2, "model_type": "bamba"}, 9992765440, "R" * 32),
        ({**COMMON, **MAMBA2, "model_type": "falcon_h1", "mamba_d_head": 8, "mamba_d_ssm": 1024}, 8514961408, "B" * 32),
        ({"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 32, "vocab_size": 50280}, 159308544, "r" * 32),
        ({"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 32768, "num_heads": 128,
          "head_dim": 64, "state_size": 128, "n_groups": 8}, 7285403648, "r" * 64),
        ({**COMMON, "model_type": "minimax", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
          "attn_type_list": [1, 0] * 16}, 47373946880, "AR" * 16),
    ],
)  # fmt: skip
def test_parameters_are_those_of_the_reference_classes(config: dict[str, Any], parameters: int, pattern: str) -> None:
    shape = as_transformer(shape_from_config(config, "model"))
    assert (count_parameters(shape).total, shape.pattern) == (parameters, pattern)


@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrid_models_are_timed_and_their_state_does_not_grow_with_the_context(name: str) -> None:
    assert count_parameters(find_model(name, CATALOG)).total == next(one for one in CATALOG.models if one.id == name).parameters
    short, long = (wg.estimate("decode", name, gpu="B200 SXM", seq_in=tokens, engine="vllm") for tokens in (1024, 65536))
    assert short.time is not None
    assert long.time is not None
    assert short.time.value < long.time.value < 3 * short.time.value
    assert long.memory_parts["kv_cache"].value < 16 * 2**30
    trained = wg.estimate("train", name, gpu="B200 SXM", gpus=8, batch=8, seq_in=2048)
    assert trained.time is not None
    assert trained.time.value > 3 * 2 * count_parameters(find_model(name, CATALOG)).active * 8 * 2048 / (
        8 * 2.5e15
    )  # FLOPs at peak


def test_sparse_attention_reads_a_fixed_number_of_tokens() -> None:
    dense, sparse = (
        [
            wg.estimate("decode", name, gpu="B200 SXM", gpus=8, seq_in=tokens, batch=32, engine="vllm").time
            for tokens in (4096, 131072)
        ]
        for name in ("deepseek-v3", "deepseek-v3.2")
    )
    growth = [times[1].value / times[0].value for times in (dense, sparse) if times[0] and times[1]]
    assert growth[1] < growth[0]
