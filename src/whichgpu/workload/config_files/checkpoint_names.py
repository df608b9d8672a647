"""Names of checkpoints that only the user can name: a placeholder for a model's weights in a precision, and GGUF files."""

from __future__ import annotations

from whichgpu.workload.precisions import PRECISION_BY_NAME

# No repository of Hugging Face has two slashes in its name, so no engine loads another checkpoint by mistake.
PLACEHOLDER_FOLDER = "path/to/"
# File types of llama-quantize in which llama.cpp runs weights of other precisions; those of its own are their own.
GGUF_TYPES = {
    "fp32": "f32", "fp32-default": "f32", "tf32": "f32", "amp-bf16": "bf16", "amp-fp16": "f16", "fp16": "f16", "fp8": "q8_0",
    "int8": "q8_0", "int4": "q4_k_m", "nvfp4": "q4_k_m", "mxfp4": "mxfp4_moe",
}  # fmt: skip


def checkpoint_placeholder(model: str, precision: str) -> str:
    """Return the placeholder for a checkpoint of a model in a precision.

    >>> checkpoint_placeholder("meta-llama/Llama-3.1-8B", "int4")
    'path/to/meta-llama/Llama-3.1-8B-int4'
    """
    return f"{PLACEHOLDER_FOLDER}{model.lstrip('./~')}-{precision}"


def placeholder_parts(name: str) -> tuple[str, str | None]:
    """Return the model and the precision of a placeholder; any other name as it is, with None.

    >>> placeholder_parts("path/to/meta-llama/Llama-3.1-8B-int4"), placeholder_parts("a/b-int4")
    (('meta-llama/Llama-3.1-8B', 'int4'), ('a/b-int4', None))
    """
    model, _, precision = name.removeprefix(PLACEHOLDER_FOLDER).rpartition("-")
    is_placeholder = name.startswith(PLACEHOLDER_FOLDER) and model and precision in PRECISION_BY_NAME
    return (model, precision) if is_placeholder else (name, None)


def gguf_file(model: str, precision: str) -> str:
    """Return the name of the GGUF file with a model's weights in the file type nearest to a precision.

    >>> gguf_file("meta-llama/Llama-3.1-8B", "int4")
    'Llama-3.1-8B-q4_k_m.gguf'
    """
    return f"{model.rpartition('/')[2]}-{GGUF_TYPES.get(precision, precision)}.gguf"
