"""Every text-generation type that transformers registers, at its default config: an answer, or what is missing.

`registered_types.json.xz` has the default configs of the 188 types of transformers 5.23.0 that have one (read off the package on
2026-11-17, without keys that do not concern the architecture), and the parameters of some classes, counted on the meta device.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.kv import admission_bytes, kv_bytes, kv_bytes_per_token
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.hf.families import UNSUPPORTED
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import as_transformer

REGISTERED: dict[str, dict[str, Any]] = json.loads(
    lzma.decompress(Path(__file__).with_name("registered_types.json.xz").read_bytes())
)
COUNTED = [name for name, row in REGISTERED.items() if "parameters" in row and name not in UNSUPPORTED]


def test_all_but_a_named_few_answer_and_these_say_what_is_missing() -> None:
    refused = {}
    for name, row in REGISTERED.items():
        try:
            assert count_parameters(shape_from_config(row["config"], name)).total > 0
        except UsageError as problem:
            refused[name] = str(problem)
    incomplete = "lfm2_moe"  # Its default config lists no layers.
    assert set(refused) == {*(name for name in UNSUPPORTED if name in REGISTERED), incomplete}
    assert len(refused) <= 15
    assert not [name for name, text in refused.items() if "not all their layers" in text]


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_those_of_the_class(name: str) -> None:
    assert count_parameters(shape_from_config(REGISTERED[name]["config"], name)).total == REGISTERED[name]["parameters"]


def test_layers_that_share_keys_and_values_store_none() -> None:
    shape = as_transformer(shape_from_config(REGISTERED["gemma3n_text"]["config"], "gemma3n"))
    # 35 layers, the last 15 without a cache; of the first 20 every fifth has full attention, the others a window of 512 tokens.
    token = 2 * 2 * 256 * 2  # keys and values, 2 heads of 256 elements, 2 bytes
    assert kv_bytes_per_token(shape) == 20 * token
    assert kv_bytes(shape, 1, 8192, block=1) == (4 * 8192 + 16 * 512) * token


def test_full_layers_of_gemma_4_have_heads_of_their_own() -> None:
    shape = as_transformer(find_model("gemma-4-31b", Catalog()))
    local, full = 2 * 16 * 256 * 2, 2 * 4 * 512 * 2  # keys and values in bf16: 16 heads of 256, or 4 of 512 with full attention
    assert kv_bytes_per_token(shape) == 50 * local + 10 * full
    assert kv_bytes(shape, 1, 131072, block=1) == 50 * 1024 * local + 10 * 131072 * full
    # vLLM 0.29 with 16,384 tokens in flight: pages of 16 tokens with a window, of 32 with full attention, in six groups of ten.
    pages = 5 * (-(-(1023 + 16384) // 16) + 1) + 262144 // 32
    assert pages == 13_637
    assert admission_bytes(shape, 262144, "bf16", 16, 16384) == pages * 10 * 16 * local


# Parameters of `Gemma4ForCausalLM` of transformers 5.23 on the meta device.
@pytest.mark.parametrize(("name", "total"), [("gemma-4-31b", 30_697_345_280), ("gemma-4-26b-a4b", 25_233_141_760)])
def test_gemma_4_has_the_parameters_of_its_class(name: str, total: int) -> None:
    assert count_parameters(find_model(name, Catalog())).total == total


def test_recurrent_types_have_a_state_instead_of_a_cache() -> None:
    for name, state in (("xlstm", 32 * 8 * 256 * 512 * 4), ("rwkv", 32 * (3 * 4096 * 4 + 2 * 4096 * 2))):
        shape = as_transformer(shape_from_config(REGISTERED[name]["config"], name))
        assert kv_bytes(shape, 1, 100) == kv_bytes(shape, 1, 100_000) == state
