"""Published checkpoints in a lower precision are named only if the catalog lists them, and are started as they are."""

from __future__ import annotations

import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.engine_lines.quantised_checkpoint import quantised_checkpoint


@pytest.mark.parametrize(
    ("model", "precision", "engine", "repository"),
    [
        ("llama-3.1-405b", "fp8", "vllm", "RedHatAI/Meta-Llama-3.1-405B-Instruct-FP8-dynamic"),
        ("llama-3.1-8b", "int8", "vllm", "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8"),
        ("llama-3.1-70b", "int4", "sglang", "RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16"),
        ("hf:meta-llama/Meta-Llama-3.1-8B", "fp8", "vllm", "RedHatAI/Meta-Llama-3.1-8B-FP8"),
        ("mixtral-8x7b", "fp8", "vllm", None),  # No such repository is listed.
        ("llama-3.1-70b", "fp8", "llama.cpp", None),
        ("llama-3.1-70b", "bf16", "vllm", None),
    ],
)
def test_only_listed_checkpoints_of_the_model_itself_are_named(
    catalog: Catalog, model: str, precision: str, engine: str, repository: str | None
) -> None:
    repository_named = quantised_checkpoint(model, precision, engine, catalog)
    assert repository_named == repository
    assert repository_named is None or any(repository_named in row.repositories for row in catalog.repositories)
