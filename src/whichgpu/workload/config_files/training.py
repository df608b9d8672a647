"""The workload of a training config of axolotl, LLaMA-Factory (and the Trainer arguments it extends), torchtune or accelerate.

`data/config_keys.csv` says which field each key sets: a key counts if its value, as lower-case text, matches `when`; the field
then gets `value`, or the key's own if that is empty. The first row that counts sets a field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from whichgpu.base.bundled_data import data_rows
from whichgpu.workload.config_files.config import (
    COUNTS_ALLOWED,
    MAX_COUNT,
    SHARES_ALLOWED,
    ConfigWorkload,
    ImpossibleNumber,
    is_number,
)

TABLE = Path(__file__).parent.parent / "data" / "config_keys.csv"
TRAINER_TOOL = "llama-factory"  # Its keys are those of transformers' Trainer and its own.
DEGREES = ("tp", "pp", "cp", "zero")
COUNTS = ("seq_in", "micro_batch", "accumulation", "lora_rank", "gpus", "nodes", "steps", *DEGREES)
# Values of keys that a file leaves out, as each tool documents them (https://docs.axolotl.ai/docs/config-reference.html,
# TrainingArguments of transformers, recipes of torchtune).
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "axolotl": {"micro_batch": 1, "checkpointing": "none"},
    TRAINER_TOOL: {"micro_batch": 8},
    "torchtune": {"checkpointing": "none"},
}
ADAPTER_FIELDS = ("lora_rank", "lora_targets", "lora_dropout", "qlora")
DEFAULT_LORA_RANK = {"axolotl": 8, TRAINER_TOOL: 8, "torchtune": 8}  # as documented by each tool
# Values of keys that are read otherwise; DPO, reward models and frozen layers, for example, are not.
KNOWN_VALUES = {
    "adapter": ("lora", "qlora", "dora", "none", ""),
    "finetuning_type": ("lora", "full", "none", ""),
    "stage": ("sft", "pt", "none", ""),
}
NEUTRAL_VALUES = ("none", "false", "no", "auto", "", "0", "1", "-1", "null")  # They change neither memory nor speed.
# Keys of these tools that say nothing about memory or speed: data, logging, learning rates and the like.
_UNRELATED = re.compile(
    r".*(data|log|save|eval|seed|lr|learning|warmup|schedul|output|report|wandb|chat|template|val_|dir|prompt|workers|hub|special"
    r"|weight_decay|checkpointer|tokenizer|resume|metric|profiler|shuffle|device|loss|preprocess|overwrite|plot|strict|debug).*",
    re.IGNORECASE,
)
_OPTIMIZERS = (("8bit", "adamw-8bit"), ("adafactor", "adafactor"), ("sgd", "sgd"), ("adam", "adamw"))


class ConfigKey(msgspec.Struct, frozen=True):
    """A row of the table: which value of which key sets which field."""

    tool: str
    key: str
    when: str
    field: str
    value: str


@cache
def config_keys() -> tuple[ConfigKey, ...]:
    """Return the table of keys."""
    return tuple(ConfigKey(**row) for row in data_rows(TABLE))


def training_tool(document: Mapping[str, Any]) -> str | None:
    """Return the tool that a training config is written for; None if it is of none."""
    if "base_model" in document:
        return "axolotl"
    if "model_name_or_path" in document:
        return TRAINER_TOOL
    if any(isinstance(value, Mapping) and "_component_" in value for value in document.values()):
        return "torchtune"
    return "accelerate" if "distributed_type" in document or "compute_environment" in document else None


def training_workload(document: Mapping[str, Any], tool: str, shown_tool: str = "") -> ConfigWorkload:
    """Return the workload of a training config, under the tool's name or the one to show for it."""
    fields: dict[str, Any] = {"task": "finetune"}
    invalid: dict[str, ImpossibleNumber] = {}
    read = {"use_peft", "distributed_type", "compute_environment"}
    read |= {key for key, values in KNOWN_VALUES.items() if _text(document.get(key) or "none") in values}
    for row in (row for row in config_keys() if row.tool == tool):
        value = _value(document, row.key)
        if value is None or (value is False and row.when != "false"):
            continue
        is_set = not row.when or re.fullmatch(row.when, _text(value), re.IGNORECASE) is not None
        if is_set or _text(value) in NEUTRAL_VALUES:
            read.add(row.key.partition(".")[0])
        if not is_set:
            continue
        converted = _converted(row.field, row.value or value)
        if converted is not None:
            fields.setdefault(row.field, converted)
        elif row.field in COUNTS:
            read.discard(row.key)
        if (allowed := _range_missed(row.field, value)) is not None:
            invalid.setdefault(row.field, ImpossibleNumber(row.key, str(value), allowed))
    _set_adapter(document, tool, fields)
    if "lora_rank" not in fields:
        invalid = {field: one for field, one in invalid.items() if field not in ADAPTER_FIELDS}
    if tool == TRAINER_TOOL:
        fields.setdefault("checkpointing", "full" if "finetuning_type" in document else "none")
    for field, usual in DEFAULTS.get(tool, {}).items():
        fields.setdefault(field, usual)
    unread = tuple(str(key) for key in document if str(key) not in read and not _UNRELATED.fullmatch(str(key)))
    unread += tuple(_offloads(document))
    return ConfigWorkload(shown_tool or tool, with_batch(fields), unread=unread, invalid=tuple(invalid.values()))


def _offloads(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of DeepSpeed or FSDP that place something in host memory, which no field has."""
    for key, part in document.items():
        for name, value in part.items() if isinstance(part, Mapping) else ():
            if "offload" in str(name) and _text(value) not in NEUTRAL_VALUES:
                yield f"{key}.{name}"


def with_batch(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with the layout as one mapping, and the batch of all GPUs from that of one."""
    values = dict(fields)
    parallel = {name: values.pop(name) for name in DEGREES if name in values}
    gpus = int(values.get("gpus", 1))
    dp = max(1, gpus // (parallel.get("tp", 1) * parallel.get("pp", 1) * parallel.get("cp", 1)))
    if gpus > 1:
        parallel["dp"] = dp
    if micro := values.pop("micro_batch", None):
        values["micro_batch"] = micro
        values["batch"] = micro * values.get("accumulation", 1) * dp
    return values | ({"parallel": parallel} if parallel else {})


def _set_adapter(document: Mapping[str, Any], tool: str, fields: dict[str, Any]) -> None:
    """Set or remove the fields of low-rank adapters, which configs keep for full fine-tuning too."""
    component = str(_value(document, "model._component_") or "").rpartition(".")[2]
    word = str(document.get("adapter") or document.get("finetuning_type") or component.partition("_")[0]).lower()
    if "lora" not in word and "dora" not in word and not (tool == TRAINER_TOOL and document.get("use_peft")):
        for name in ADAPTER_FIELDS:
            fields.pop(name, None)
        return
    fields.setdefault("lora_rank", DEFAULT_LORA_RANK.get(tool, 8))
    if tool == "torchtune" and _value(document, "model.apply_lora_to_mlp") is True:
        fields["lora_targets"] = ",".join(filter(None, (fields.get("lora_targets"), "mlp")))
    if "finetuning_type" in document:  # LLaMA-Factory has only the adapters in fp32, frozen weights in the compute type.
        fields["precision"] = str(fields.get("precision", "fp32")).removeprefix("amp-")
    if word.startswith("qlora"):
        fields["qlora"] = True


def _value(document: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key, whose parts are separated by dots."""
    value: Any = document
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    return " ".join(map(str, value)).lower() if isinstance(value, list) else str(value).lower()


def _converted(field: str, value: Any) -> Any:
    """Return a key's value as that of a field; None if it is not one."""
    if field in COUNTS:
        text = str(value) if isinstance(value, str | int) else ""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 and 0 < int(text) <= MAX_COUNT else None
    if field == "epochs":
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
    if field == "lora_dropout":
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1 else None
    if field == "optimizer":
        return next((name for part, name in _OPTIMIZERS if part in str(value).lower()), None)
    if field == "lora_targets":
        return ",".join(_targets(value)) or None
    if field == "qlora":
        return True
    if field == "model" and not isinstance(value, str | int | float):
        return None
    return str(value).rpartition(".")[2] if field == "model" and "." in str(value) and "models." in str(value) else str(value)


def _range_missed(field: str, value: Any) -> str | None:
    """Return the numbers that are allowed for a field if the key's value is another number; else None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not is_number(str(value)):
        return None
    if field in COUNTS:
        return COUNTS_ALLOWED if _converted(field, value) is None else None
    if field == "epochs":
        return f"0 ... {MAX_COUNT}" if not 0 <= float(value) <= MAX_COUNT else None
    if field == "lora_dropout":
        return SHARES_ALLOWED.replace("<", "<=", 1) if not 0 <= float(value) <= 1 else None
    return None


def _targets(value: Any) -> Iterator[str]:
    """Yield the layers of adapters by this package's words for them: `q` for `q_proj`."""
    names = value if isinstance(value, list) else str(value).split(",")
    for name in dict.fromkeys(str(one).strip().removesuffix("_proj") for one in names):
        if name in ("q", "k", "v", "o", "gate", "up", "down", "all-linear", "mlp", "attention"):
            yield name
        elif name == "output":
            yield "o"
