"""Words as people type them on the command line: rates and money without units, tasks, modes, families of models."""

from __future__ import annotations

from typing import Any

import pytest

from tests.surface.cli import assert_refused, call

DAY = ("--as-of", "2026-10-01", "--json")


def recommend(*words: str) -> dict[str, Any]:
    reply = call("recommend", *words, *DAY)
    assert reply.code == 0, reply.err or reply.out
    document: dict[str, Any] = reply.json()
    return document


def test_bare_rate_is_per_second() -> None:
    typed = recommend("serve", "llama-3.1-8b", "--rate", "5")
    assert typed["request"]["rate"] == 5
    assert typed["answer"] == recommend("serve", "llama-3.1-8b", "--rate", "5/s")["answer"]


@pytest.mark.parametrize("budget", ["$500", "500", "500 dollars", "0.5k"])
@pytest.mark.sweep(2)
def test_budgets_as_people_type_them(budget: str) -> None:
    words = ("finetune", "llama-3.1-8b", "--lora")
    assert recommend(*words, "--budget", budget)["answer"] == recommend(*words, "--budget", "500usd")["answer"]


def test_bare_budget_is_in_the_stated_currency() -> None:
    words = ("finetune", "llama-3.1-8b", "--lora", "--currency", "EUR")
    assert recommend(*words, "--budget", "40")["answer"] == recommend(*words, "--budget", "40eur")["answer"]


def test_fit_takes_the_task_before_the_model_as_other_commands_do() -> None:
    typed = call("fit", "finetune", "llama-3.1-8b", "--qlora", "--gpu", "RTX 4090", "--json").json()
    assert typed == call("fit", "llama-3.1-8b", "--task", "finetune", "--qlora", "--gpu", "RTX 4090", "--json").json()
    assert typed["request"]["task"] == "finetune"


def test_weight_only_schemes_of_4_bits_are_int4() -> None:
    for name in ("awq", "gptq", "nf4", "exl3"):
        assert recommend("serve", "llama-3.1-8b", "--precision", name)["request"]["precision"] == "int4"


def test_chat_and_inference_are_serve_for_one_user() -> None:
    chat = recommend("chat", "llama-3.1-8b")
    assert chat["sentence"].startswith("For one user, ")
    assert chat["request"]["task"] == "serve"
    assert chat["request"]["batch"] == 1
    assert any("one user" in line for line in chat["assumptions"])
    assert recommend("inference", "llama-3.1-8b")["answer"] == chat["answer"]
    assert recommend("serve", "llama-3.1-8b", "--mode", "me")["answer"] == chat["answer"]


def test_team_states_its_people_and_rate() -> None:
    team = recommend("chat", "llama-3.1-8b", "--people", "50")
    assert team["sentence"].startswith("For a team of 50 people, 0.28 requests/s")
    assert team["request"]["rate"] == pytest.approx(50 * 20 / 3600)
    assert any("50 people" in line and "--rate" in line for line in team["assumptions"])
    assert "--people=50" in team["reproduce"]["command"]


def test_images_is_batch_of_a_picture_model() -> None:
    assert recommend("images", "sdxl")["request"]["task"] == "batch"
    assert_refused(call("recommend", "images", "llama-3.1-8b"), 2)
    assert_refused(call("recommend", "images"), 2)


def test_size_means_the_newest_model_and_says_so() -> None:
    answer = recommend("serve", "70b", "--rate", "1", "--precision", "fp8")
    assert any("70b" in line and "llama-3.3-70b" in line for line in answer["assumptions"])
