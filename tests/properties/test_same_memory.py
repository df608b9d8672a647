"""`fit`, `estimate`, `recommend` and `plan` give the same memory for the same request on the same GPU."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import whichgpu as wg
from tests.examples import examples
from whichgpu.api.workloads.estimate import estimate
from whichgpu.api.workloads.fit import fit_model

FIGURES = ("memory", "memory_device", "needed")
GPUS = ("h100-sxm", "rtx-4090", "a10g", "l40s")
REQUESTS: list[tuple[str, str, list[dict[str, Any]]]] = [
    (
        "finetune",
        "llama-3.1-8b",
        [{"qlora": True}, {"lora_rank": 16}, {"qlora": True, "batch": 4}, {"lora_rank": 8, "seq_in": 512}],
    ),
    ("finetune", "llama-3.2-1b", [{}, {"batch": 16}, {"precision": "bf16"}, {"optimizer": "adamw-8bit"}]),
    ("train", "gpt2", [{}, {"micro_batch": 2}, {"checkpointing": "full"}]),
    ("train", "resnet50", [{}, {"batch": 64}]),
    ("serve", "llama-3.1-8b", [{"precision": "bf16", **one} for one in ({}, {"batch": 4}, {"seq_in": 8192}, {"rate": 0.2})]),
    ("batch", "llama-3.1-8b", [{"precision": "bf16"}, {"precision": "fp8", "batch": 8}]),
    ("batch", "resnet50", [{"batch": 32}]),
    ("batch", "sdxl", [{}]),
]
QUESTIONS = [(task, model, fields) for task, model, choices in REQUESTS for fields in choices]


def test_every_verb_gives_the_same_memory() -> None:
    """Memory of `estimate`, `fit` and `recommend`; enough of the questions must have a recommendation to compare."""
    recommendations: list[str] = []

    @settings(max_examples=examples(6))
    @given(st.sampled_from(QUESTIONS), st.sampled_from(GPUS))
    def compare(question: tuple[str, str, dict[str, Any]], gpu: str) -> None:
        if _same_memory(question, gpu):
            recommendations.append(gpu)

    compare()
    assert len(recommendations) >= 3


def _same_memory(question: tuple[str, str, dict[str, Any]], gpu: str) -> bool:
    """Fail if the verbs give different memory; return whether `recommend` had an answer to compare."""
    task, model, fields = question
    alone = estimate(task, model, gpu=gpu, **fields)
    fitted = fit_model(model, gpu, task=task, **fields)
    assert (fitted.memory, fitted.memory_device) == (alone.memory, alone.memory_device)
    assert (fitted.gpus[0].fits, fitted.gpus[0].needed) == (alone.fits, int(fitted.needed.value))
    if alone.fits == "no":
        return False
    try:
        answer = wg.recommend(task, model, gpu=gpu, gpus="1", **fields)
    except wg.NoAnswer:
        return False  # The GPU is offered with others only, or fails the service's default latency.
    best = next(one for one in answer.candidates if one.gpu == gpu)
    assert [getattr(best, name) for name in FIGURES] == [fitted.memory, fitted.memory_device, fitted.needed]
    return True


@settings(max_examples=examples(3))
@given(
    st.sampled_from(("llama-3.1-8b", "qwen2.5-7b", "gemma-3-4b")),
    st.sampled_from(("l40s", "h100-sxm", "a100-sxm-80gb")),
    st.integers(64, 4000),
    st.integers(16, 500),
)
def test_plan_gives_the_memory_of_estimate_and_fit(model: str, gpu: str, seq_in: int, seq_out: int) -> None:
    lengths: dict[str, Any] = {"seq_in": seq_in, "seq_out": seq_out}
    plan = wg.plan(model, rate="1/s", gpu=gpu, **lengths, simulate=False, curve=False)
    for group in plan.groups:
        layout = {"gpus": group.gpus_per_copy, "parallel": {"tp": group.gpus_per_copy}}
        request: dict[str, Any] = {"precision": group.precision, "batch": 1, **lengths, **layout}
        alone = estimate("serve", model, gpu=group.gpu, **request)
        fitted = fit_model(model, group.gpu, task="serve", **request)
        assert (group.memory, group.memory_device) == (alone.memory, alone.memory_device)
        assert (group.memory, group.memory_device) == (fitted.memory, fitted.memory_device)
