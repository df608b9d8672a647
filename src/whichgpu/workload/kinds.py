"""Kinds of workload fields: how a value is read from JSON or text, written back, and validated.

A kind reads either a typed value (JSON, TOML) or a text (flags, URL). It raises `InvalidValue` with what is accepted;
`spelling.py` adds the field's name as the user wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from whichgpu.base.kinds import FALSE, TRUE, Flag, InvalidValue, SingleValue, Text, ValueKind, Whole
from whichgpu.base.messages import msg
from whichgpu.base.names import nearest, squash
from whichgpu.workload.parallel import LAYOUT_FIELDS, LAYOUT_FLAGS, Parallel
from whichgpu.workload.precisions import PRECISION_SYNONYMS

SYNONYMS = {
    **PRECISION_SYNONYMS,
    "momentum": "sgd-momentum", "adam8bit": "adamw-8bit", "adamw8bit": "adamw-8bit", "flashattention": "flash", "fa2": "flash",
    "finetuning": "finetune", "training": "train", "serving": "serve", "none": "none",
    "inference": "serve", "chatbot": "chat", "image": "images", "picture": "images", "pictures": "images",
    "nhwc": "channels_last", "nchw": "contiguous",
}  # fmt: skip
LORA_TARGETS = ("all-linear", "attention", "mlp", "q", "k", "v", "o", "gate", "up", "down")


class Word(SingleValue, msgspec.Struct, frozen=True):
    """Kind of a request field whose value is one word of a fixed list, in any case and with or without dashes."""

    words: tuple[str, ...] = ()

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the words that the field accepts."""
        return self.words

    def read(self, value: Any) -> str:
        if isinstance(value, str):
            target = squash(SYNONYMS.get(squash(value), value))
            for word in self.choices:
                if squash(word) == target:
                    return word
        near = nearest(str(value)[:80], self.choices)
        raise InvalidValue(msg("hint.nearest" if near else "hint.choices", choices=near or self.choices), near or self.choices)

    def read_text(self, text: str) -> str:
        return self.read(text)


class EngineName(Word, frozen=True):
    """Kind of a request field whose value is an engine, by its id or a synonym; engines are read when first needed."""

    @property
    def choices(self) -> tuple[str, ...]:
        from whichgpu.catalog.engines.registry import engine_ids

        return engine_ids()

    def read(self, value: Any) -> str:
        from whichgpu.catalog.engines.registry import engine_synonyms

        return Word.read(self, engine_synonyms().get(squash(value), value) if isinstance(value, str) else value)


class Checkpointing(Word, frozen=True):
    """Kind of the request field for activation checkpointing: none, full or selective; true means full."""

    def read(self, value: Any) -> str:
        if isinstance(value, bool):
            return "full" if value else "none"
        return Word.read(self, value)

    def read_text(self, text: str) -> str:
        word = text.strip().lower()
        return "full" if word in TRUE else "none" if word in FALSE else self.read(text)


class LoraTargets(SingleValue, msgspec.Struct, frozen=True):
    """Kind of the request field for the targets of LoRA adapters: all-linear, or names of projections."""

    takes_list: ClassVar[bool] = True

    def read(self, value: Any) -> str:
        words = value if isinstance(value, list | tuple) else str(value).split(",") if isinstance(value, str) else []
        kind = Word(LORA_TARGETS)
        targets = [kind.read(word.strip().removesuffix("_proj") if isinstance(word, str) else word) for word in words]
        if not targets:
            raise InvalidValue(msg("hint.choices", choices=LORA_TARGETS), LORA_TARGETS)
        return ",".join(dict.fromkeys(targets))

    def read_text(self, text: str) -> str:
        return self.read(text)


class Layout(SingleValue):
    """Kind of the request field for the parallel layout: an object, or text such as `tp=2,zero=3`."""

    takes_mapping: ClassVar[bool] = True

    DEGREES = Whole(1, 2**20)
    ZERO = Whole(0, 3)

    def read(self, value: Any) -> Parallel:
        if isinstance(value, str):
            return self.read_text(value)
        if not isinstance(value, Mapping):
            raise InvalidValue(msg("wants.parallel"))
        return self._built({str(name): item for name, item in value.items()}, lambda kind, item: kind.read(item))

    def read_text(self, text: str) -> Parallel:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        fields = {
            name: value or ("true" if name in LAYOUT_FLAGS else "") for name, _, value in (part.partition("=") for part in parts)
        }
        if len(fields) < len(parts):
            raise InvalidValue(msg("wants.parallel"))
        return self._built(fields, lambda kind, item: kind.read_text(item))

    def _built(self, fields: Mapping[str, Any], read: Callable[[ValueKind, Any], Any]) -> Parallel:
        if any(name not in LAYOUT_FIELDS for name in fields):
            raise InvalidValue(msg("wants.parallel"), LAYOUT_FIELDS)
        try:
            return Parallel(**{name: read(self.kind_of(name), item) for name, item in fields.items()})
        except InvalidValue as refused:
            raise InvalidValue(msg("wants.parallel")) from refused

    def write(self, value: Parallel) -> dict[str, Any]:
        return {name: getattr(value, name) for name in self._part_texts(value)}

    def write_text(self, value: Parallel) -> str:
        return ",".join(f"{name}={self.kind_of(name).write_text(getattr(value, name))}" for name in self._part_texts(value))

    def _part_texts(self, value: Parallel) -> list[str]:
        """Return the layout fields to write: all parallel degrees, and rarely used fields only if they are not the default."""
        plain = Parallel()
        return [name for name in LAYOUT_FIELDS if name not in UNUSUAL or getattr(value, name) != getattr(plain, name)]

    def kind_of(self, name: str) -> ValueKind:
        return Flag() if name in LAYOUT_FLAGS else self.ZERO if name == "zero" else self.DEGREES


UNUSUAL = ("chunks", "threads")


class ModelValue(SingleValue):
    """Kind of the request field for the model: a name, or the content of a config.json as an object or as JSON text."""

    complete = "models"  # list of the catalog that shell completion uses
    takes_mapping: ClassVar[bool] = True

    def read(self, value: Any) -> str | Mapping[str, Any]:
        if isinstance(value, Mapping):
            if not value:
                raise InvalidValue(msg("wants.model"))
            return value
        if isinstance(value, str) and value.lstrip().startswith("{"):
            return self._config(value)
        try:
            return Text().read(value)
        except InvalidValue:
            raise InvalidValue(msg("wants.model")) from None

    def read_text(self, text: str) -> str | Mapping[str, Any]:
        return self.read(text)

    def write_text(self, value: str | Mapping[str, Any]) -> str:
        import json

        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))

    def _config(self, text: str) -> Mapping[str, Any]:
        from whichgpu.workload.model_files.json_text import read_object

        try:
            return self.read(read_object(text))  # type: ignore[return-value]
        except ValueError as problem:
            raise InvalidValue(msg("wants.model"), problem=msg("error.not-json", why=str(problem))) from problem
