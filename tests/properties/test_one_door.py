"""One declaration, one answer: the command line, Python and REST give the same JSON document to the same request."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import urlencode

import pytest

import whichgpu as wg
from tests.surface.cli import call
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import english
from whichgpu.surface.commands.command import command_line, command_named, value_text
from whichgpu.surface.web.worker_answers import ANSWERS

QUESTIONS = 100
DAY = "2026-06-01"
VALUES: dict[str, list[Any]] = {
    "model": ["llama-3.1-8b", "gpt2", "mistral-7b", "mixtral-8x7b", "bert-large", "no-such-model"],
    "gpu": ["L4", "H100 SXM", "RTX 4090", "A100", "T4"],
    "precision": ["bf16", "fp8", "int4", "fp7"],
    "batch": [1, 8, "4", 0],
    "seq_in": [128, 2048, "1024"],
    "seq_out": [16, 256],
    "engine": ["vllm", "sglang", "pytorch", "llama.cpp"],
    "min_memory": ["24GB", 80 * 2**30, "lots"],
    "supports": ["bf16", "bf16,fp8"],
    "vendor": ["nvidia", "amd"],
    "sort": ["-memory_bandwidth", "name"],
    "names": [["H100"], ["T4", "L4"], ["H101"]],
    "gpus": ["1..8", 4, "0"],
    "provider": ["aws", "gcp"],
    "lora_rank": [8, 16],
    "checkpointing": ["full", "none"],
    "price": ["RTX 4090=1800usd"],
    "use": [0.3, 2.0],
    "years": [2, 3],
}
ASKED: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "gpus": (wg.gpus, {}, ("names", "min_memory", "supports", "vendor", "sort")),
    "instances": (wg.instances, {}, ("provider", "gpu", "gpus", "min_memory")),
    "fit": (wg.fit, {"model": "llama-3.1-8b"}, ("model", "gpu", "precision", "batch", "seq_in", "seq_out", "engine")),
    "estimate": (
        wg.estimate,
        {"task": "decode", "model": "llama-3.1-8b", "gpu": "L4"},
        ("model", "precision", "batch", "seq_in", "engine"),
    ),
    "compare": (wg.compare, {"names": ["T4", "L4"]}, ("names",)),
    "buy": (wg.buy, {"names": ["RTX 4090"], "as_of": DAY}, ("price", "use", "years")),
}


def random_question(seed: int) -> tuple[str, dict[str, Any]]:
    """A question: a command and some of its fields, right or wrong."""
    dice = random.Random(seed)
    name = dice.choice(sorted(ASKED))
    _, always, fields = ASKED[name]
    some = dice.sample(fields, dice.randint(0, len(fields)))
    return name, {**always, **{field: dice.choice(VALUES[field]) for field in some}}


def by_command_line(name: str, request: dict[str, Any]) -> Any:
    return call(*_before_arguments(command_line(name, request))).json()


def _before_arguments(words: list[str]) -> list[str]:
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], "--json", *words[end:]]


def by_python(name: str, request: dict[str, Any]) -> Any:
    try:
        return ASKED[name][0](**request).to_dict()
    except WhichGpuError as error:
        return {"ok": False, "kind": error.kind}


def by_rest(name: str, request: dict[str, Any], body: bool) -> Any:
    parameters = {"name" if field == "names" else field: value for field, value in request.items()}
    fields = command_named(name).fields
    texts = {
        "name" if field == "names" else field: value if isinstance(value, list) else value_text(fields[field], value)
        for field, value in request.items()
    }
    sent = {"body": json.dumps(parameters).encode()} if body else {"query": urlencode(texts, doseq=True)}
    reply = ANSWERS["rest"]({"endpoint": name, **sent}, english(), None)
    return json.loads(reply.body)


def same(typed: Any, other: Any) -> bool:
    """Answers word for word; of errors the kind, since each surface names fields as its users write them."""
    if isinstance(typed, dict) and typed.get("ok") is False and "error" in typed and "gpus" not in typed:
        return bool(typed["error"]["kind"] == (other.get("kind") or other["error"]["kind"]))
    return bool(typed == other)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", range(QUESTIONS))
def test_every_surface_gives_the_same_document(seed: int) -> None:
    name, request = random_question(seed)
    typed = by_command_line(name, request)
    for other in (by_python(name, request), by_rest(name, request, body=True), by_rest(name, request, body=False)):
        assert same(typed, other), (name, request)
