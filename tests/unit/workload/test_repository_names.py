"""Names of repositories: tuned and quantised versions of built-in models, and copies under another owner."""

from __future__ import annotations

import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import built_in, find_model


@pytest.mark.parametrize(
    ("typed", "model", "precision"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b-int4", "int4"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b-fp8", "fp8"),
        ("nvidia/Qwen3-32B-NVFP4", "qwen3-32b-nvfp4", "nvfp4"),
        ("TheBloke/Mistral-7B-Instruct-v0.2-GPTQ", "mistral-7b-int4", "int4"),
        ("unsloth/Qwen3-8B-GGUF", "qwen3-8b-q4_k_m", "q4_k_m"),
        ("llama3.1:8b-instruct-q8_0", "llama-3.1-8b-q8_0", "q8_0"),
        ("unsloth/Qwen2.5-7B-Instruct", "qwen2.5-7b", ""),
        ("Hermes-3-Llama-3.1-8B", "llama-3.1-8b", ""),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "qwen3-coder-480b-a35b-fp8", "fp8"),
    ],
)
def test_version_of_a_built_in_model_is_found_with_its_precision(typed: str, model: str, precision: str) -> None:
    shape = find_model(typed, Catalog())
    assert (shape.name, shape.native) == (model, precision)
    assert find_model(shape.name, Catalog()) == shape  # Its own name means the same.


def test_repository_with_other_sizes_is_not_taken_for_a_model_of_a_like_name() -> None:
    assert built_in("someone/Llama-3.1-8B-Instruct-pruned-4b", Catalog()) is None
    assert built_in("someone/qwen9-7b", Catalog()) is None


def test_size_alone_means_the_family_most_repositories_are_based_on() -> None:
    assert find_model("8b", Catalog()).name == "llama-3.1-8b"
    assert find_model("32b", Catalog()).name == "qwen3-32b"
    assert find_model("qwen 8b", Catalog()).name == "qwen3-8b"  # and not the vision-language model, which is newer
