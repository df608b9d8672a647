"""Precision of published weights, from `quantization_config` and `dtype` in a config.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from whichgpu.base.messages import Message, msg
from whichgpu.workload.hf.fields import printable
from whichgpu.workload.precisions import TRAINED_PRECISIONS
from whichgpu.workload.shapes import Shape

# Keys of multimodal configs that contain the config of the language model, where a quantisation may be stated as well.
INNER = ("text_config", "llm_config", "language_config", "thinker_config")
DTYPES: Mapping[str, str] = {"float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
INTEGERS: Mapping[int, str] = {4: "int4", 8: "int8"}
# Names of number formats in the configs of torchao, quanto, quark and ModelOpt, the first that occurs; others are unknown.
FORMATS = (
    (re.compile(r"nvfp4|nvfloat4"), "nvfp4"),
    (re.compile(r"mxfp4"), "mxfp4"),
    (re.compile(r"fp8|float8|f8_e4m3"), "fp8"),
    (re.compile(r"u?int4|w4a16|nf4"), "int4"),
    (re.compile(r"u?int8|w8a8|w8a16"), "int8"),
)
MXFP4_GROUP, NVFP4_GROUP = 32, 16  # weights that share a scale in the two formats of 4-bit floats

Quantisation = Mapping[str, Any]


def published_precision(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the precision of a config's published weights, empty for bf16, and the name of a quantisation that is unknown."""
    for part in _parts(config):
        quantisation = part.get("quantization_config") or part.get("compression_config")
        if isinstance(quantisation, Mapping):
            method = str(quantisation.get("quant_method", "")).lower()
            precision = _READERS.get(method, _by_bits)(quantisation) or ""
            return precision, "" if precision else printable(method or "quantization_config")[:40]
        if quantisation:  # A text or a list says less than the usual mapping.
            return "", printable(str(quantisation))[:40]
    dtypes = (part.get("dtype") or part.get("torch_dtype") for part in _parts(config))
    dtype = str(next((one for one in dtypes if one), "")).lower().removeprefix("torch.")
    return DTYPES.get(dtype, ""), ""


def quantisation_warnings(shape: Shape, precision: str | None) -> tuple[Message, ...]:
    """Return a warning if the weights are published in an unknown quantisation and are taken to be unquantised."""
    if not shape.unknown_quantisation or (precision or "bf16") not in TRAINED_PRECISIONS:
        return ()
    return (msg("warning.unknown-quantisation", method=shape.unknown_quantisation, precision=precision or "bf16"),)


def _parts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield config
    yield from (inner for key in INNER if isinstance(inner := config.get(key), Mapping))


def _bits(value: object) -> int:
    """Return a number of bits, also written as a text or as 4.0; 0 if it is none."""
    try:
        bits = float(str(value))
    except ValueError:
        return 0
    return int(bits) if bits.is_integer() else 0


def _integers(quantisation: Quantisation) -> str | None:
    """Return the integers of a weight-only method by its bits: GPTQ, AWQ (`w_bit`), AutoRound, EXL3."""
    return INTEGERS.get(_bits(quantisation.get("bits", quantisation.get("w_bit"))))


def _by_bits(quantisation: Quantisation) -> str | None:
    """Return the precision of a config without a known method: bitsandbytes' flags, or integers of 8 bits."""
    if quantisation.get("load_in_4bit") is True:
        return "int4"
    return "int8" if quantisation.get("load_in_8bit") is True or _bits(quantisation.get("bits")) == 8 else None


def _compressed(quantisation: Quantisation) -> str | None:
    """Return the precision of compressed-tensors' groups of layers; None if they differ."""
    groups = quantisation.get("config_groups")
    precisions = {_compressed_group(group) for group in groups.values()} if isinstance(groups, Mapping) else set[str | None]()
    return precisions.pop() if len(precisions) == 1 else None


def _compressed_group(group: object) -> str | None:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        return None
    bits = _bits(weights.get("num_bits"))
    if weights.get("type") == "int":
        return INTEGERS.get(bits)
    if bits == 4:
        return {MXFP4_GROUP: "mxfp4", NVFP4_GROUP: "nvfp4"}.get(_bits(weights.get("group_size")))
    return "fp8" if bits == 8 else None


def _modelopt(quantisation: Quantisation) -> str | None:
    inner = quantisation.get("quantization")
    return _format_precision(
        str(quantisation.get("quant_algo") or (inner.get("quant_algo") if isinstance(inner, Mapping) else ""))
    )


def _hqq(quantisation: Quantisation) -> str | None:
    inner = quantisation.get("quant_config")
    weights = inner.get("weight_quant_params") if isinstance(inner, Mapping) else quantisation
    return INTEGERS.get(_bits(weights.get("nbits"))) if isinstance(weights, Mapping) else None


def _quark(quantisation: Quantisation) -> str | None:
    inner = quantisation.get("global_quant_config")
    weights = inner.get("weight") if isinstance(inner, Mapping) else None
    if not isinstance(weights, Mapping):
        return None
    four_bit_floats = weights.get("dtype") == "fp4" and _bits(weights.get("group_size")) == MXFP4_GROUP
    return "mxfp4" if four_bit_floats else _format_precision(str(weights.get("dtype")))


def _format_precision(text: str) -> str | None:
    """Return the precision of the first number format named in a text.

    >>> _format_precision("Int4WeightOnlyConfig"), _format_precision("qfloat8_e4m3fn"), _format_precision("int2")
    ('int4', 'fp8', None)
    """
    return next((precision for pattern, precision in FORMATS if pattern.search(text.lower())), None)


_READERS: Mapping[str, Callable[[Quantisation], str | None]] = {
    **dict.fromkeys(("gptq", "awq", "auto-round", "autoround", "exl2", "exl3", "gptq_marlin", "awq_marlin"), _integers),
    **dict.fromkeys(("fp8", "fbgemm_fp8", "mxfp4"), lambda quantisation: _format_precision(str(quantisation["quant_method"]))),
    **dict.fromkeys(("compressed-tensors", "compressed_tensors"), _compressed),
    **dict.fromkeys(("modelopt", "modelopt_fp4", "modelopt_fp8"), _modelopt),
    "hqq": _hqq,
    "torchao": lambda quantisation: _format_precision(str(quantisation.get("quant_type"))[:2000]),
    "quanto": lambda quantisation: _format_precision(str(quantisation.get("weights"))),
    "quark": _quark,
    "fp_quant": lambda quantisation: _format_precision(str(quantisation.get("forward_dtype"))),
    "eetq": lambda _: "int8",
    "gguf": lambda quantisation: str(quantisation.get("type", "")),
}
