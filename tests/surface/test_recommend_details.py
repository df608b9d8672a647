"""Details of a recommendation: the day of its price, the number of GPUs, the capacity of servers, and refusals."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from tests.surface.cli import assert_refused, call
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.recommend.verification import verify_command
from whichgpu.measure.bench.runnable import why_not_runnable
from whichgpu.workload.spelling import fill_defaults, from_texts

DAY = ("--as-of", "2026-09-01")
SERVE = ("recommend", "serve", "llama-3.1-8b", "--rate", "5/s", "--in", "500", "--out", "200", *DAY)


def recommend_json(*argv: str) -> Any:
    done = call(*argv, "--json")
    assert done.code == 0, done.out
    return done.json()


@pytest.mark.parametrize("lang", ["en", "ko", "vi", "zh"])
@pytest.mark.parametrize("words", [SERVE, ("recommend", "train", "resnet50", *DAY), ("recommend", "train", *DAY)])
@pytest.mark.sweep(3)
def test_the_first_sentence_has_the_day_of_its_price(words: tuple[str, ...], lang: str) -> None:
    answer = recommend_json(*words, "--gpu", "L40S", "--lang", lang)
    assert answer["answer"]["price_observed_at"] in answer["sentence"]


def test_stale_price_is_marked_in_the_sentence_and_its_row() -> None:
    reply = call("recommend", "train", "resnet50", "--gpu", "A100 SXM 80GB", "--term", "spot", "--as-of", "2026-11-15")
    assert reply.code == 0, reply.err
    assert re.search(r"price of 20\d\d-\d\d-\d\d, \d+ days old", reply.err.splitlines()[0])
    assert re.search(r"as spot, \d+ days old", reply.out.splitlines()[1])
    fresh = call(*SERVE, "--gpu", "L40S")
    assert "days old" not in fresh.err.splitlines()[0]


def test_purchase_price_has_its_basis_and_date_or_is_user_supplied() -> None:
    listed = ("recommend", "train", "resnet50", "--buy", "--gpu", "RTX 4080", *DAY)
    assert "list price of 2022-" in recommend_json(*listed)["sentence"]
    words = ("recommend", "train", "resnet50", "--buy", "--gpu", "RTX 4090", *DAY)
    assert "(used, prices of 2026-05)" in recommend_json(*words)["sentence"]
    assert "price as given" in recommend_json(*words, "--price", "RTX 4090=1500usd")["sentence"]


def test_gpus_of_a_service_are_those_of_all_its_machines() -> None:
    """One GPU fewer than the answer has does not sustain the rate, one more has less to do per GPU."""
    words = (*SERVE, "--gpu", "A10G", "--precision", "bf16", "--risk", "even")
    answer = recommend_json(*words)["answer"]
    gpus = answer["gpus"]
    assert gpus > 1
    assert (answer["machines"], answer["copies"]) == (gpus, gpus)
    assert answer["capacity"]["value"] >= 5
    assert call(*words, "--gpus", str(gpus - 1)).code == 1
    more = recommend_json(*words, "--gpus", str(gpus + 1))["answer"]
    assert (more["gpus"], more["machines"], more["copies"]) == (gpus + 1,) * 3
    assert more["tpot"]["value"] < answer["tpot"]["value"]
    assert more["capacity"]["value"] / (gpus + 1) == pytest.approx(answer["capacity"]["value"] / gpus, rel=0.1)


def test_capacity_covers_the_requested_rate_and_holds_in_the_simulation() -> None:
    one = recommend_json(*SERVE, "--gpu", "L40S", "--gpus", "1")["answer"]
    capacity = one["capacity"]["value"]
    assert capacity > 5.5
    words = ("recommend", "serve", "llama-3.1-8b", "--in", "500", "--out", "200", "--gpu", "L40S", "--gpus", "1", *DAY)
    assert call(*words, "--rate", f"{0.97 * capacity:.3f}/s").code == 0
    assert call(*words, "--rate", f"{1.3 * capacity:.3f}/s").code == 1


def test_requested_tensor_parallel_degree_is_used() -> None:
    answer = recommend_json(*SERVE, "--tp", "2")
    assert {one["parallel"]["tp"] for one in answer["candidates"]} == {2}


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("serve", "llama-3.1-8b", "--deadline", "3h"), "a service has no end", "--ttft"),
        (("serve", "llama-3.1-8b", "--pp", "2"), "--pp", "--tp"),
        (("batch", "llama-3.1-8b", "--dp", "2"), "--dp", "--gpus"),
        (("serve", "resnet50", "--tp", "2"), "--tp", "--gpus"),
    ],
)
def test_inapplicable_fields_of_a_task_are_refused(words: tuple[str, ...], message: str, hint: str) -> None:
    reply = call("recommend", *words)
    assert_refused(reply, 2)
    assert message in reply.err.splitlines()[0]
    assert hint in reply.err.splitlines()[1]


def test_answers_of_one_token_have_no_time_between_tokens() -> None:
    answer = recommend_json("recommend", "serve", "llama-3.1-8b", "--in", "100", "--out", "1", "--gpu", "L40S", *DAY)
    assert answer["answer"]["tpot"] is None
    assert "a token" not in answer["sentence"]
    reply = call("estimate", "serve", "llama-3.1-8b", "--gpu", "L40S", "--in", "100", "--out", "1", "--rate", "2/s")
    assert "the only token of the response" in reply.err
    assert not [line for line in reply.out.splitlines() if "between tokens" in line or "\t0 s\t" in line]


def test_refusal_names_the_default_objective_unless_one_is_set() -> None:
    words = ("recommend", "serve", "llama-3.1-70b", "--mode", "service", "--gpu", "L4", "--gpus", "8", "--tp", "8", *DAY)
    assert "at most 100 ms between tokens" in call(*words).err.splitlines()[0]
    assert "the default objective" not in call(*words, "--tpot", "90ms").err


@pytest.mark.parametrize(
    ("task", "model", "step"),
    [("serve", "llama-3.1-8b", "decode"), ("batch", "gpt2", "decode"), ("serve", "resnet50", "forward")],
)
def test_verify_names_a_step_that_measure_runs(task: str, model: str, step: str) -> None:
    workload = from_texts({"task": task, "model": model, "gpu": "l40s"}).workload
    shape = lookup_cache().shape(model)
    command, note = verify_command(workload, shape, 8)
    words = shlex.split(shlex.split(command)[3])
    assert words[:3] == ["estimate", step, model]
    assert note.id == f"verify-note.{step}"
    read = from_texts({"task": step, "model": model, "gpu": "l40s", "batch": "8"}).workload
    assert why_not_runnable(fill_defaults(read, shape), shape) is None
    assert call(*words).code == 0


def test_verify_notes_workloads_measure_cannot_run() -> None:
    answer = recommend_json("recommend", "serve", "llama-3.1-70b", "--tp", "4", "--gpu", "A100 SXM 80GB", *DAY)
    assert "measure runs on one GPU only, not on 4" in answer["verify_note"]


def test_short_prompts_are_read_together_and_take_no_gpu_each() -> None:
    """A step batches many of them: one GPU sustains the rate that would need eight if each were prefilled alone."""
    reply = call(
        "recommend", "serve", "llama-3.1-8b", "--rate", "300/s", "--in", "10", "--out", "2", "--gpu", "H100 SXM", "--json"
    )
    assert reply.code == 0, reply.err
    assert reply.json()["answer"]["copies"] == 1


def test_tpot_is_never_below_the_time_to_read_the_weights() -> None:
    reply = call(
        "recommend", "serve", "llama-3.1-8b", "--rate", "0.001/s", "--in", "1000", "--out", "300", "--gpu", "L4",
        "--precision", "bf16", "--json",
    )  # fmt: skip
    assert reply.code == 0, reply.err
    answer = reply.json()["answer"]
    read = (8.03e9 - 128256 * 4096) * 2 / 300e9  # all weights but the table of tokens, at 300 GB/s
    assert answer["gpu"] == "l4"
    assert read <= answer["tpot"]["low"] <= answer["tpot"]["value"]
