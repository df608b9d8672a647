"""Built-in models by the names that configs and result files give them: repositories, GGUF files, builders of torchtune."""

from __future__ import annotations

import re

from whichgpu.catalog.model import Model
from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import built_in
from whichgpu.workload.precisions import PRECISION_BY_NAME

_TUNED = re.compile(r"[-_](instruct|chat|it|base|hf|fp8|awq|gptq|dynamic)\b.*$", re.IGNORECASE)
_GGUF_TYPE = re.compile(r"[-._](?:ud-)?(i?q\d\w*|tq\d_0|f16|bf16|f32|mxfp4\w*)(?:-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE)
# Type that is loaded if none is named (https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md, `--hf-repo`;
# https://docs.ollama.com/modelfile, 2026-11-18), and a family whose weights are published in four bits, and loaded as they are.
USUAL_TYPE, QUANTISED_FAMILY = "q4_k_m", "gpt-oss"
_BUILDER = re.compile(r"^q?(?:lora|dora)_")


def model_of(name: str, catalog: Catalog) -> Model | None:
    """Return the built-in model that a name means, also with words for a tuned or quantised version; None if none does."""
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    builder = re.sub(r"(\d)_(\d)", r"\1.\2", _BUILDER.sub("", last))
    dashed = re.sub(r"([a-z])(\d)", r"\1-\2", builder).replace("_", "-")
    names = (name, last, builder, dashed)
    for candidate in dict.fromkeys((*names, *(_TUNED.sub("", one) for one in names[1:]))):
        if candidate and (model := built_in(candidate, catalog)) is not None:
            return model
    return None


def base_and_precision(model: Model, catalog: Catalog) -> tuple[str, str]:
    """Return the id of a built-in model, and the precision of its weights if it is a quantised version; else ""."""
    base, _, precision = model.id.rpartition("-")
    ids = {one.id for one in catalog.models}
    return (base, precision) if model.id not in ids and base in ids else (model.id, "")


def gguf_parts(name: str) -> tuple[str, str | None]:
    """Return the model's name and the precision in the name of a GGUF file.

    >>> gguf_parts("/models/Llama-3.1-8B-Instruct-Q4_K_M.gguf")
    ('Llama-3.1-8B-Instruct', 'q4_k_m')
    >>> gguf_parts("Qwen3-32B-UD-Q8_K_XL-00001-of-00002.gguf")
    ('Qwen3-32B', 'q8_0')
    """
    file = re.split(r"[/\\]", name)[-1]
    file_type = _GGUF_TYPE.search(file)
    return _GGUF_TYPE.sub("", file).removesuffix(".gguf"), _known_type(file_type[1].lower()) if file_type else None


def hub_parts(name: str) -> tuple[str, str | None]:
    """Return the model and the GGUF type of a repository with GGUF files, as `-hf` of llama.cpp names it.

    >>> hub_parts("bartowski/Llama-3.2-3B-Instruct-GGUF:Q8_0"), hub_parts("ggml-org/gpt-oss-20b-GGUF")
    (('Llama-3.2-3B-Instruct', 'q8_0'), ('gpt-oss-20b', None))
    """
    repository, _, tag = name.partition(":")
    model = re.sub(r"[-_.]gguf$", "", repository.rpartition("/")[2], flags=re.IGNORECASE)
    return model, _known_type(tag.lower().removeprefix("ud-")) if tag else usual_type(model)


def usual_type(model: str) -> str | None:
    """Return the GGUF type that llama.cpp and Ollama load if none is named; None for models published in four bits."""
    return None if QUANTISED_FAMILY in model.lower() else USUAL_TYPE


def _known_type(word: str) -> str:
    """Return llama.cpp's file type for a name of one, also with a suffix for larger embeddings: q6_k for Q6_K_L."""
    types = {name: one.alias_of or name for name, one in PRECISION_BY_NAME.items()} | {"q8_k": "q8_0"}
    return next((types[part] for end in range(len(word), 1, -1) if (part := word[:end]) in types), word)
