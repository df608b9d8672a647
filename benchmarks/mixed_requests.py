"""A file of mixed requests: language models in training, prefill, decode and serving, vision models forward and in training.

    python -m benchmarks.mixed_requests [LINES] [SEED] [DEFAULTS] > requests.jsonl

The same seed makes the same file. DEFAULTS is the share of the fields beyond task, model, GPU and batch that keep their defaults.
With 0 hardly two lines share more than a model, so that next to nothing can be computed once for several lines.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

from whichgpu.catalog.engines.engine import may_run_on
from whichgpu.catalog.store import Catalog
from whichgpu.workload.precisions import TRAINED_PRECISIONS

LINES, SEED, DEFAULTS = 1000, 4, 0.95
LANGUAGE = "llama-3.1-8b llama-3.2-1b mistral-7b mixtral-8x7b qwen2.5-7b gemma-2-9b gpt2 phi-4".split()
ENCODERS = ("bert-large", "roberta-large", "vit-base-patch16-224", "mlp:784x2048x2048x10")
VISION = "resnet50 resnet18 vgg16 efficientnet_b0 mobilenet_v2 convnext_tiny swin_t vit_b_16".split()
STORED = ("bf16", "fp16", "fp8", "int8", "int4", "q4_k_m")
SERVERS = ("vllm", "sglang", "tensorrt-llm")
BATCHES = (1, 2, 4, 8, 16, 32, 64)
ODD_BATCHES = (3, 6, 12, 24, 48, 100, 128, 256)
NAMED = ("task", "model")
LENGTHS = (128, 256, 512, 777, 1024, 2048, 4096)


def mixed(lines: int = LINES, seed: int = SEED, defaults: float = DEFAULTS) -> Iterator[dict[str, Any]]:
    """Return random requests: a third generates text, a third is of vision models, the rest trains or encodes."""
    chance = random.Random(seed)
    catalog = Catalog()
    gpus = [gpu for gpu in catalog.gpus if gpu.peaks and gpu.memory_bandwidth]
    able = {engine.id: [gpu.name for gpu in gpus if may_run_on(engine, gpu)] for engine in catalog.engines}
    kinds = (_training, _generating, _generating, _seeing, _seeing, _encoding)
    for number in range(lines):
        whole = chance.choice(kinds)(chance)
        request = {name: value for name, value in whole.items() if name in NAMED or chance.random() >= defaults}
        gpu = chance.choice(able[request.get("engine", "pytorch")])
        batch = chance.choice(BATCHES if chance.random() < defaults else (*BATCHES, *ODD_BATCHES))
        yield {"id": number, **request, "gpu": gpu, "batch": batch}


def _training(chance: random.Random) -> dict[str, Any]:
    request: dict[str, Any] = {
        "task": chance.choice(("train", "finetune")),
        "model": chance.choice(LANGUAGE),
        "precision": chance.choice(TRAINED_PRECISIONS),
        "seq_in": chance.choice(LENGTHS),
        "checkpointing": chance.choice(("none", "none", "full", "selective")),
    }
    extra = chance.choice(({}, {}, {"lora_rank": 16}, {"accumulation": 4}, {"optimizer": "sgd"}))
    return {**request, **extra, **chance.choice(({}, {}, {"engine": "pytorch-compile"}, {"attention": "eager"}))}


def _generating(chance: random.Random) -> dict[str, Any]:
    task = chance.choice(("prefill", "decode", "serve", "serve", "batch"))
    precision = chance.choice(STORED)
    plain = ("pytorch", *SERVERS) if precision in ("bf16", "fp16") else SERVERS
    engines = ("llama.cpp",) if precision.startswith("q") else plain
    request = {"task": task, "model": chance.choice(LANGUAGE), "precision": precision, "engine": chance.choice(engines)}
    length = {"seq_out": chance.choice((64, 128, 300, 512))} if task in ("serve", "batch") else {}
    return {**request, "seq_in": chance.choice(LENGTHS), **length}


def _seeing(chance: random.Random) -> dict[str, Any]:
    task = chance.choice(("train", "forward"))
    engines = ("pytorch", "cuda-graphs", "pytorch-compile" if task == "train" else "tensorrt")
    request = {
        "task": task,
        "model": chance.choice(VISION),
        "precision": chance.choice(TRAINED_PRECISIONS),
        "engine": chance.choice(engines),
        "memory_format": chance.choice(("channels_last", "contiguous")),
    }
    return {**request, **chance.choice(({}, {}, {}, {"image": 288}))}


def _encoding(chance: random.Random) -> dict[str, Any]:
    return {
        "task": chance.choice(("train", "forward")),
        "model": chance.choice(ENCODERS),
        "precision": chance.choice(TRAINED_PRECISIONS),
    }


def main() -> int:
    numbers: tuple[float, ...] = tuple(float(word) for word in sys.argv[1:4])
    lines, seed, plain = (numbers + (LINES, SEED, DEFAULTS)[len(numbers) :])[:3]
    for request in mixed(int(lines), int(seed), float(plain)):
        print(json.dumps(request))
    return 0


if __name__ == "__main__":
    sys.exit(main())
