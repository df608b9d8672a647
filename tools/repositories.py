"""Write catalog/data/repositories.csv: repositories on Hugging Face whose models have the sizes of a built-in one.

    PYTHONPATH=src python tools/repositories.py FILE SOURCE

FILE is a JSON list of repositories with the fields of llmfit's list of models (`name`, `architecture`, `hidden_size`,
`num_hidden_layers`, `num_attention_heads`, `num_key_value_heads`, `moe_intermediate_size`, `vocab_size`, `context_length`);
SOURCE is the id of its row in sources.csv. A repository belongs to the model with the same architecture and sizes, to the one
whose name it shares and with the nearest context if there are several; one that a model lists among its own names is left out.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

from whichgpu.catalog.model import Model
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.store import Catalog
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.shapes import Transformer

# Model types of whole multimodal models, and of the language model that the catalog has of them.
LANGUAGE_PART = {
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_text",
    "kimi_k25": "kimi_k2",
}
SIZE_KEYS = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "moe_intermediate_size", "vocab_size",
)  # fmt: skip
Sizes = tuple[Any, ...]


def model_sizes(model: Model) -> tuple[Sizes, Transformer] | None:
    """Return the architecture and sizes of a built-in decoder or encoder, with its shape; None for other kinds of models."""
    if model.kind != "transformer":
        return None
    shape = shape_from_config(model.config, model.id)
    if not isinstance(shape, Transformer) or shape.encoder_layers or shape.patches:
        return None
    inner = model.config.get("text_config") or model.config
    layers = inner.get("num_hidden_layers") or shape.layers
    ffn = shape.experts.ffn if shape.experts else shape.ffn
    heads = (shape.heads, shape.heads if shape.mla else shape.kv_heads)
    return (model.config["model_type"], layers, shape.hidden, *heads, ffn, shape.vocab), shape


def repository_sizes(row: dict[str, Any]) -> list[Sizes]:
    """Return the architectures and sizes under which a repository's model may be in the catalog."""
    sizes = tuple(row.get(key) for key in SIZE_KEYS)
    kind = row["architecture"]
    return [(name, *sizes) for name in dict.fromkeys((kind, LANGUAGE_PART.get(kind, kind)))]


def distance(context: int, id: str, row: dict[str, Any]) -> tuple[int, int]:
    """Return how far a model is from a repository: parts of its id that the repository's name lacks, difference in context."""
    name = row["name"].lower()
    return sum(part not in name for part in id.split("-")), abs(context - (row.get("context_length") or 0))


def main(file: str, source: str) -> int:
    """Write the table from a list of repositories."""
    catalog = Catalog()
    by_sizes: dict[Sizes, list[tuple[int, str]]] = defaultdict(list)
    for model in catalog.models:
        if found := model_sizes(model):
            by_sizes[found[0]].append((found[1].max_context, model.id))
    own = {alias for model in catalog.models for alias in model.aliases}
    members: dict[str, set[str]] = defaultdict(set)
    for row in json.loads(Path(file).read_text()):
        matches = next((by_sizes[sizes] for sizes in repository_sizes(row) if sizes in by_sizes), None)
        name = row["name"]
        if matches and name not in own and ";" not in name and name.isascii():
            members[min(matches, key=lambda one: distance(*one, row))[1]].add(name)
    today = date.today().isoformat()
    with (DATA_DIR / "repositories.csv").open("w", newline="", encoding="utf-8") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(("model", "repositories", "sources", "recorded"))
        for model in catalog.models:
            if model.id in members:
                writer.writerow((model.id, ";".join(sorted(members[model.id], key=str.lower)), source, today))
    print(f"{sum(map(len, members.values()))} repositories of {len(members)} models")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
