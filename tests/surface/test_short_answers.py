"""Recommendations on a terminal: at most 25 lines of whole words; --long has the rest, --brief fits a chat message."""

from __future__ import annotations

import pytest

from tests.surface.cli import call, terminal

WIDTH = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
SERVE = ("recommend", "serve", "llama-3.1-70b", "--rate", "5", "--as-of", "2026-10-01")
QUESTIONS = (
    SERVE,
    ("recommend", "finetune", "llama-3.1-8b", "--as-of", "2026-10-01"),
    ("recommend", "chat", "llama-3.1-8b", "--buy", "--as-of", "2026-10-01"),
)


@pytest.mark.parametrize("words", QUESTIONS, ids=lambda words: words[1])
@pytest.mark.sweep(2)
def test_short_answer_has_whole_words_in_25_lines(words: tuple[str, ...]) -> None:
    lines = terminal(*words, env=WIDTH).out.splitlines()
    assert len(lines) <= 25
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(" ".join(lines).split())
    sentence = " ".join(call(*words, "--json").json()["sentence"].split())
    assert sentence in text
    assert sum(line.startswith("because: ") for line in lines) in (2, 3)
    assert "--long" in text


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (("serve", "llama-3.1-70b", "--rate", "5"), ("a million output tokens", "because: ")),
        (("serve", "mixtral-8x7b", "--rate", "5"), ("46.7B parameters are in memory", "12.9B")),
        (("serve", "llama-3.1-70b", "--rate", "1", "--in", "30000", "--ttft", "10s"), ("prefill decides", "disaggregated")),
        (("batch", "llama-3.1-8b", "--samples", "1000000"), ("sequences run at once",)),
        (("images", "sdxl", "--samples", "10000"), ("a picture on each GPU", "text encoders and VAE", "a thousand pictures")),
        (("train", "llama-3.1-8b", "--tokens", "20B"), ("MFU", "fp32 master weights", "interruptions expected")),
        (("finetune", "llama-3.1-8b", "--lora-rank", "16"), ("QLoRA",)),
        (("serve", "gpt-oss-120b", "--people", "50"), ("serve: vllm serve openai/gpt-oss-120b",)),
    ],
)
@pytest.mark.sweep(4)
def test_short_answer_says_what_decides_its_kind_of_work(words: tuple[str, ...], texts: tuple[str, ...]) -> None:
    lines = terminal("recommend", *words, "--as-of", "2026-10-01", env=WIDTH).out.splitlines()
    assert len(lines) <= 25
    text = " ".join(" ".join(lines).split())
    for part in texts:
        assert part in text


def test_long_answer_has_assumptions_and_sources() -> None:
    text = terminal(*SERVE, "--long", env=WIDTH).out
    assert "assumed: " in text
    assert "Sources:" in text


def test_brief_answer_fits_a_chat_message() -> None:
    text = call(*SERVE, "--brief").out
    assert len(text.splitlines()) <= 3
    assert text.startswith("Use ")


def test_every_named_gpu_has_a_row_or_a_reason() -> None:
    reply = call(*SERVE, "--precision", "bf16", "--gpu", "H100 SXM,T4,GTX 1080", "--json").json()
    listed = {one["gpu"] for one in reply["candidates"]}
    assert "h100-sxm" in listed
    assert set(reply["why_not"]) == {"t4", "gtx-1080"}
    assert all(reply["why_not"].values())


def test_verify_line_can_be_run_as_printed() -> None:
    reply = call(*SERVE)
    (line,) = [line for line in reply.err.splitlines() if line.startswith("verify: ")]
    note = call(*SERVE, "--json").json()["verify_note"]
    assert line == "verify: whichgpu measure" or "cannot run" not in note


def test_emitted_files_are_printed_on_a_terminal_too() -> None:
    text = terminal(*SERVE, "--emit", "vllm", env=WIDTH).out
    assert "vllm serve" in text
    assert "because: " not in text
