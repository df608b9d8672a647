"""Whole steps to measure, of each kind that engines on PyTorch run, small enough to take a minute or two together.

None of them is among the measurements the shipped calibration is checked with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from whichgpu.catalog.gpu import Gpu
from whichgpu.measure.bench.case import StepCase

TINY = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
    "intermediate_size": 1536, "vocab_size": 32000, "max_position_embeddings": 2048, "tie_word_embeddings": True,
}  # fmt: skip
# The most informative cases come first, since the last are skipped if time runs out.
TRAINING: tuple[dict[str, Any], ...] = (
    {"model": "resnet34", "precision": "amp-bf16", "batch": 128, "optimizer": "sgd-momentum"},
    {"model": "opt-125m", "precision": "amp-bf16", "batch": 16, "seq_in": 512},
    {"model": "qwen1.5-0.5b", "precision": "bf16", "batch": 4, "seq_in": 1024},
    {"model": "mlp:4096x6144x6144x1000", "precision": "tf32", "batch": 2048, "optimizer": "adamw"},
    {"model": TINY, "precision": "bf16", "batch": 4, "seq_in": 256},
    {"model": "resnet101", "precision": "tf32", "batch": 48, "optimizer": "sgd-momentum"},
    {"model": "mobilenet_v2", "precision": "amp-bf16", "batch": 192, "optimizer": "sgd-momentum"},
    {"model": "opt-1.3b", "precision": "bf16", "batch": 4, "seq_in": 1024},
    {"model": "qwen1.5-1.8b", "precision": "bf16", "batch": 2, "seq_in": 2048, "checkpointing": "full"},
    {"model": "roberta-base", "precision": "amp-bf16", "batch": 24, "seq_in": 256},
    {"model": "mlp:2048x4096x4096x100", "precision": "fp32", "batch": 512, "optimizer": "sgd-momentum"},
    {"model": "vit_b_32", "precision": "amp-bf16", "batch": 192, "optimizer": "adamw"},
    {"model": "resnext50_32x4d", "precision": "amp-bf16", "batch": 96, "optimizer": "sgd-momentum"},
    {"model": "resnet34", "precision": "fp32", "batch": 96, "optimizer": "sgd-momentum"},
)
FORWARD: tuple[dict[str, Any], ...] = (
    {"model": "resnet34", "precision": "fp16", "batch": 2},
    {"model": "resnet34", "precision": "fp16", "batch": 64},
    {"model": "mobilenet_v2", "precision": "fp16", "batch": 16},
    {"model": "resnet101", "precision": "fp32-default", "batch": 16},
    {"model": "vit_b_32", "precision": "fp16", "batch": 64},
    {"model": "resnext50_32x4d", "precision": "fp16", "batch": 48},
    {"model": "vgg13", "precision": "fp16", "batch": 24},
)
ENCODING: tuple[dict[str, Any], ...] = (
    {"model": "roberta-base", "precision": "fp16", "batch": 4, "seq_in": 256},
    {"model": "roberta-large", "precision": "fp16", "batch": 24, "seq_in": 256},
)
DECODING: tuple[dict[str, Any], ...] = (
    {"model": "qwen1.5-1.8b", "precision": "bf16", "batch": 4, "seq_in": 1024},
    {"model": "yi-6b", "precision": "bf16", "batch": 1, "seq_in": 1024},
    {"model": "yi-6b", "precision": "bf16", "batch": 48, "seq_in": 1536},
    {"model": "llama-2-13b", "precision": "bf16", "batch": 12, "seq_in": 768},
    {"model": "yi-9b", "precision": "bf16", "batch": 8, "seq_in": 4096},
)
PREFILL: tuple[dict[str, Any], ...] = (
    {"model": "qwen1.5-1.8b", "precision": "bf16", "batch": 2, "seq_in": 768},
    {"model": "yi-6b", "precision": "bf16", "batch": 1, "seq_in": 1536},
    {"model": "llama-2-13b", "precision": "bf16", "batch": 2, "seq_in": 3072},
    {"model": "yi-6b", "precision": "bf16", "batch": 1, "seq_in": 256},
)
FALLBACK_PRECISIONS = {"bf16": "fp16", "amp-bf16": "amp-fp16", "tf32": "fp32"}  # Replacements on GPUs without such units.


def step_cases(gpu: Gpu) -> Iterator[StepCase]:
    """Yield the training and inference steps to measure on a GPU, alternating between kinds of step."""
    kinds = [
        [_step("train", "pytorch", one, gpu) for one in TRAINING],
        [_step("decode", "cuda-graphs", one, gpu) for one in DECODING],
        [_step("forward", engine, one, gpu) for one in FORWARD for engine in ("pytorch", "cuda-graphs")],
        [_step("prefill", "pytorch-compile", one, gpu) for one in PREFILL],
        [_step("forward", "pytorch", one, gpu) for one in ENCODING],
    ]
    turns = (3, 1, 4, 1, 1)  # How many cases of each kind are yielded per round.
    while any(kinds):
        for kind, count in zip(kinds, turns, strict=True):
            yield from kind[:count]
            del kind[:count]


def _step(task: str, engine: str, settings: dict[str, Any], gpu: Gpu) -> StepCase:
    precision = settings["precision"]
    unit = precision.removeprefix("amp-")
    if unit in ("bf16", "tf32") and unit not in gpu.peaks:
        precision = FALLBACK_PRECISIONS[precision]
    if task == "train" and precision == "fp16":  # Gradients in fp16 would underflow.
        precision = "amp-fp16"
    request = {"task": task, "engine": engine, **settings, "precision": precision, "gpu": gpu.id}
    name = settings["model"] if isinstance(settings["model"], str) else "tiny-llama"
    length = f"-{settings['seq_in']}" if "seq_in" in settings else ""
    return StepCase(f"{task}-{engine}-{name}-{precision}-{settings['batch']}{length}".replace(":", "-"), request)
