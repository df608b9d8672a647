"""Checks of models: valid configs, unambiguous names, parameter counts that fit name and config."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from whichgpu.base.messages import msg
from whichgpu.catalog.model import model_key, model_names, parse_config
from whichgpu.catalog.tables import Fault, Finding, Row, Tables, table_findings

PARAMETER_RANGE = (10**5, 10**13)  # Plausible parameter counts (assumed).
SIZE_TOLERANCE = 0.35  # Largest relative difference from the size in the name: makers round Gemma 2's 2.61 billion to 2B.
IMAGE_RANGE = (16, 4096)  # Plausible image sides in pixels (assumed).

_SIZE = re.compile(r" (\d+(?:\.\d+)?)([MB])(?=$|[ ,-])")  # Matches a size that is a separate word: neither 8x7B nor A3B.
_UNITS = {"M": 10**6, "B": 10**9}


def models(tables: Tables) -> list[Finding]:
    """Return findings for invalid configs, and for parameter counts that contradict the name or config."""
    return table_findings(tables, "models", _faults)


def names(tables: Tables) -> list[Finding]:
    """Return findings for ids, names and aliases that two models share."""
    owners: dict[str, str] = {}
    findings = []
    for row in tables["models"].rows:
        for name in sorted({model_key(text) for text in model_names(row["id"] or "", row["name"] or "", row["aliases"])}):
            if owners.setdefault(name, row["id"]) != row["id"]:
                detail = msg("finding.shared-name", name=name, other=owners[name])
                findings.append(Finding("models", row["id"], "shared-name", "aliases", detail))
    return findings


def _faults(row: Row) -> Iterator[Fault]:
    count = row["parameters"]
    if count is not None:
        yield from _size(count, row["name"] or "")
    if row["config"] is None:
        return
    try:
        config = parse_config(row["config"])
    except ValueError:
        yield "bad-config", "config", msg("finding.bad-config")
        return
    if config["model_type"] == "traced" and not _traced(config):
        yield "bad-table", "config", msg("finding.bad-table")
    embedding = _embedding(config)
    if count is not None and count < embedding:
        yield "too-few-parameters", "parameters", msg("finding.too-few-parameters", stated=count, least=embedding)


def _traced(config: Mapping[str, Any]) -> bool:
    """Whether a config names a stored table of the model's operators and a plausible image size in pixels."""
    low, high = IMAGE_RANGE
    image = config.get("image")
    return isinstance(image, int) and low <= image <= high and bool(config.get("table"))


def _size(count: int, name: str) -> Iterator[Fault]:
    low, high = PARAMETER_RANGE
    if not low <= count <= high:
        yield "implausible", "parameters", msg("finding.implausible", value=count, low=low, high=high)
    elif size := _SIZE.search(name):
        stated = float(size[1]) * _UNITS[size[2]]
        if abs(count / stated - 1) > SIZE_TOLERANCE:
            yield "name-size", "parameters", msg("finding.name-size", stated=count, size=size[1] + size[2])


def _embedding(config: Mapping[str, Any]) -> int:
    """Return the parameters of a model's token embedding, a lower bound of its total; 0 if the config has no embedding."""
    width = next((config[key] for key in ("hidden_size", "n_embd", "d_model") if key in config), 0)
    vocabulary = config.get("vocab_size", 0)
    return width * vocabulary if isinstance(width, int) and isinstance(vocabulary, int) else 0
