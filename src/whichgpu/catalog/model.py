"""Built-in models: names, publisher, parameter count and configuration."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import msgspec

from whichgpu.base.messages import msg
from whichgpu.catalog.tables import Row, bad_data_error, record_of

_PUNCTUATION = re.compile(r"[^a-z0-9.+]")
_POINT = re.compile(r"(?<=\d)_(?=\d)")  # torchvision and timm write 1_6 for 1.6.


class Model(msgspec.Struct, frozen=True):
    """A built-in model; `config` is its Hugging Face config.json, reduced to the fields that set sizes."""

    id: str
    name: str
    aliases: tuple[str, ...]
    kind: str  # transformer, vision, diffusion, recommendation
    publisher: str
    license: str
    released: str
    parameters: int
    config: dict[str, Any]
    sources: tuple[str, ...]
    recorded: str
    checked: str

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names of the model; repositories also without their owner."""
        return model_names(self.id, self.name, self.aliases)


class Repositories(msgspec.Struct, frozen=True):
    """Repositories on Hugging Face whose models have the sizes of a built-in one."""

    model: str
    repositories: tuple[str, ...]
    sources: tuple[str, ...]
    recorded: str


def model_names(id: str, name: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
    """Return all names of a model, without duplicates.

    >>> model_names("phi-2", "Phi-2 2.7B", ("microsoft/phi-2",))
    ('phi-2', 'Phi-2 2.7B', 'microsoft/phi-2')
    """
    bare = [alias.rpartition("/")[2] for alias in aliases]
    return tuple(dict.fromkeys((id, name, *aliases, *bare)))


@lru_cache(maxsize=16384)
def model_key(name: str) -> str:
    """Normalise a model's name: no case, blanks or punctuation except dots, since OPT 1.3B is not OPT 13B.

    >>> model_key("Llama 3.1 8B"), model_key("llama3.1:8b"), model_key("opt-1.3b") == model_key("opt-13b")
    ('llama3.18b', 'llama3.18b', False)
    >>> model_key("squeezenet1_1"), model_key("SqueezeNet 1.1")
    ('squeezenet1.1', 'squeezenet1.1')
    """
    return _PUNCTUATION.sub("", _POINT.sub(".", name.lower()))


def parse_config(text: str) -> dict[str, Any]:
    """Parse a table cell with a model's config: one JSON object with a `model_type`; raise ValueError otherwise."""
    try:
        config = json.loads(text)
    except RecursionError as problem:
        raise ValueError(text) from problem
    if "\n" in text or not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ValueError(text)
    return config


def build_model(row: Row) -> Model:
    """Return a built-in model made from its row of the catalog's table, with its config parsed."""
    try:
        config = parse_config(row["config"])
    except ValueError as problem:
        raise bad_data_error("models.csv", row["id"], "config", msg("finding.bad-config")) from problem
    return record_of(Model, row, config=config)
