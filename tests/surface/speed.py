"""Estimates that several tests of the contract ask for."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.surface.cli import call

LLM, CNN, ENCODER = "llama-3.2-1b", "resnet50", "bert-large"
# task, model, flags -> the unit of its throughput
CASES: dict[str, tuple[list[str], str]] = {
    "train-llm": (["train", LLM, "--batch", "4", "--seq-in", "1024"], "input tokens/s"),
    "finetune-lora": (["finetune", LLM, "--batch", "4", "--seq-in", "1024", "--lora-rank", "16"], "input tokens/s"),
    "train-cnn": (["train", CNN, "--batch", "64"], "samples/s"),
    "train-mlp": (["train", "mlp:784x2048x10", "--batch", "128"], "samples/s"),
    "forward-cnn": (["forward", CNN, "--batch", "8"], "samples/s"),
    "forward-encoder": (["forward", ENCODER, "--batch", "8", "--seq-in", "384"], "samples/s"),
    "prefill": (["prefill", LLM, "--batch", "2", "--seq-in", "1024"], "input tokens/s"),
    "decode": (["decode", LLM, "--batch", "8", "--seq-in", "1024"], "output tokens/s"),
    "serve": (["serve", LLM, "--batch", "8", "--in", "1024", "--out", "128"], "output tokens/s"),
    "batch": (["batch", LLM, "--batch", "32", "--in", "1024", "--out", "128"], "output tokens/s"),
}


@cache
def estimate_json(*argv: str) -> Any:
    """The reply of a successful estimate, on an H200 unless a GPU is named."""
    gpu = () if "--gpu" in argv else ("--gpu", "H200 SXM")
    reply = call("estimate", *argv, *gpu, "--json")
    assert reply.code == 0, reply.err or reply.out
    return reply.json()


def of(case: str) -> Any:
    return estimate_json(*CASES[case][0])


def estimate_lines(tmp_path: Path, *lines: dict[str, Any]) -> tuple[int, list[Any]]:
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    reply = call("estimate", "--requests", str(path))
    return reply.code, [json.loads(line) for line in reply.out.splitlines()]
