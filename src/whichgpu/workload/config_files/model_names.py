"""Built-in models by the names that configs and result files give them: repositories, GGUF files, builders of torchtune."""

from __future__ import annotations

import re

from whichgpu.catalog.model import Model
from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import built_in

_TUNED = re.compile(r"[-_](instruct|chat|it|base|hf|fp8|awq|gptq|dynamic)\b.*$", re.IGNORECASE)
_GGUF_TYPE = re.compile(r"[-._](i?q\d\w*|f16|bf16|f32|mxfp4)\.gguf$", re.IGNORECASE)
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


def gguf_parts(name: str) -> tuple[str, str | None]:
    """Return the model's name and the precision in the name of a GGUF file.

    >>> gguf_parts("/models/Llama-3.1-8B-Instruct-Q4_K_M.gguf")
    ('Llama-3.1-8B-Instruct', 'q4_k_m')
    """
    file = re.split(r"[/\\]", name)[-1]
    kind = _GGUF_TYPE.search(file)
    return _GGUF_TYPE.sub("", file).removesuffix(".gguf"), kind[1].lower() if kind else None
