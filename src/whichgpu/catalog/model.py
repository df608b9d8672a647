"""A model known by name: what it is, who published it, and the sizes that decide its memory and time."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from whichgpu.base.messages import msg
from whichgpu.catalog.tables import Row, bad_data_error

_PUNCTUATION = re.compile(r"[^a-z0-9.+]")
_POINT = re.compile(r"(?<=\d)_(?=\d)")  # torchvision and timm write 1_6 for 1.6


@dataclass(frozen=True, slots=True)
class Model:
    """A built-in model. `config` is its Hugging Face config.json, cut to the fields that decide sizes."""

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
        """Every name it answers to; repositories also without their owner."""
        return model_names(self.id, self.name, self.aliases)


def model_names(id: str, name: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
    """Every name of a model, each once.

    >>> model_names("phi-2", "Phi-2 2.7B", ("microsoft/phi-2",))
    ('phi-2', 'Phi-2 2.7B', 'microsoft/phi-2')
    """
    bare = [alias.rpartition("/")[2] for alias in aliases]
    return tuple(dict.fromkeys((id, name, *aliases, *bare)))


def model_key(name: str) -> str:
    """A name without case, blanks and punctuation, but with its dots: OPT 1.3B is not OPT 13B, nor regnet_y_1_6gf regnet_y_16gf.

    >>> model_key("Llama 3.1 8B"), model_key("llama3.1:8b"), model_key("opt-1.3b") == model_key("opt-13b")
    ('llama3.18b', 'llama3.18b', False)
    >>> model_key("squeezenet1_1"), model_key("SqueezeNet 1.1")
    ('squeezenet1.1', 'squeezenet1.1')
    """
    return _PUNCTUATION.sub("", _POINT.sub(".", name.lower()))


def parse_config(text: str) -> dict[str, Any]:
    """The config of a cell: a JSON object on one line that names its `model_type`. Anything else is a ValueError."""
    try:
        config = json.loads(text)
    except RecursionError as problem:
        raise ValueError(text) from problem
    if "\n" in text or not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ValueError(text)
    return config


def build_model(row: Row) -> Model:
    """The model of a table row."""
    try:
        config = parse_config(row["config"])
    except ValueError as problem:
        raise bad_data_error("models.csv", row["id"], "config", msg("finding.bad-config")) from problem
    return Model(**{name: row[name] for name in Model.__dataclass_fields__ if name != "config"}, config=config)
