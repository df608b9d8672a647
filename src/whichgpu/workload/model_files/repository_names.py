"""Built-in models by names of repositories: tuned, merged and quantised versions, and copies under another owner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from whichgpu.catalog.model import model_key
from whichgpu.workload.precisions import GGUF_PRECISIONS, PRECISION_SYNONYMS, PRECISIONS

if TYPE_CHECKING:
    from whichgpu.catalog.model import Model
    from whichgpu.catalog.store import Catalog

# Words at the end of a name that say how the weights are stored, beside the precisions' own names: those of llm-compressor,
# bitsandbytes, AutoRound, and of GGUF folders, from which llama.cpp takes the type Q4_K_M if none is named.
STORED_AS = {
    "fp8-dynamic": "fp8", "fp8-block": "fp8", "w8a8-fp8": "fp8", "w8a8": "int8", "w8a16": "int8", "gptq-int8": "int8",
    "awq-8bit": "int8", "w4a16": "int4", "gptq-int4": "int4", "awq-4bit": "int4", "awq-int4": "int4", "autoround": "int4",
    "unsloth-bnb-4bit": "int4", "gguf": "q4_k_m",
}  # fmt: skip
PRECISION_WORDS = {
    **{word: name for word, name in PRECISION_SYNONYMS.items() if name in PRECISIONS},
    **{name: name for name in (*PRECISIONS, *GGUF_PRECISIONS)},
    **STORED_AS,
}
WIDE = ("bf16", "fp16", "fp32", "f16", "f32", "fp32-default", "tf32", "amp-bf16", "amp-fp16")  # not quantised
TUNED_WORDS = ("instruct", "chat", "it", "base", "hf", "mlx", "quantized", "dynamic", "qat", "imatrix", "i1", "nvidia", "unsloth")
_SUFFIX = re.compile(
    "[-_.:](" + "|".join(sorted(map(re.escape, (*PRECISION_WORDS, *TUNED_WORDS)), key=len, reverse=True)) + ")$", re.IGNORECASE
)
# What a checkpoint's own `quantization_config` states for each precision.
QUANTIZATION: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8"},
    "int8": {"quant_method": "gptq", "bits": 8},
    "int4": {"quant_method": "gptq", "bits": 4},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "mxfp4": {"quant_method": "mxfp4"},
}


def repository_model(name: str, catalog: Catalog) -> Model | None:
    """Return the built-in model of a repository's name; a quantised version as a model of its own, `ID-PRECISION`.

    None if no repository, and no built-in name without the words of a version, is called so.
    """
    spellings = list(_spellings(name.strip()))
    models = {model.id: model for model in catalog.models}
    for index in (_own_names(catalog), _repositories(catalog)):
        for candidate, precision in spellings:
            keys = (model_key(candidate), model_key(candidate.rpartition("/")[2]))
            if id := next(filter(None, map(index.get, keys)), None):
                return _stored_as(models[id], precision)
    return None


def _own_names(catalog: Catalog) -> dict[str, str]:
    """Return ids of models by the keys of their own names."""
    return {model_key(name): model.id for model in catalog.models for name in model.names}


def _repositories(catalog: Catalog) -> dict[str, str]:
    """Return ids of models by keys of repositories; without the owner only if that name means one model."""
    index: dict[str, str] = {}
    for row in catalog.repositories:
        for repository in row.repositories:
            index[model_key(repository)] = row.model
            bare = model_key(repository.rpartition("/")[2])
            index[bare] = row.model if index.get(bare, row.model) == row.model else ""
    return index


def _spellings(name: str) -> Iterator[tuple[str, str]]:
    """Yield a name, then the name without each of the words of a version at its end, with the precision that these state.

    >>> list(_spellings("Qwen2.5-7B-Instruct-AWQ"))
    [('Qwen2.5-7B-Instruct-AWQ', 'int4'), ('Qwen2.5-7B-Instruct', 'int4'), ('Qwen2.5-7B', 'int4')]
    """
    precision = next(_precisions(name), "")
    yield name, precision
    while suffix := _SUFFIX.search(name):
        name = name[: suffix.start()]
        yield name, precision


def _precisions(name: str) -> Iterator[str]:
    """Yield the precisions that words at the end of a name state, the last one first."""
    while suffix := _SUFFIX.search(name):
        word = suffix[1].lower()
        if word in PRECISION_WORDS:
            yield PRECISION_WORDS[word]
        name = name[: suffix.start()]


def _stored_as(model: Model, precision: str) -> Model:
    """Return a model as its weights are stored; unchanged if they are 16-bit or as published."""
    if not precision or precision in WIDE:
        return model
    stored = QUANTIZATION.get(precision, {"quant_method": "gguf", "type": precision})
    return replace(model, id=f"{model.id}-{precision}", config={**model.config, "quantization_config": stored})
