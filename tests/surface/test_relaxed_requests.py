"""A question without an answer: counts by reason, and a relaxed request that is answered, on every surface."""

from __future__ import annotations

from shlex import split

import pytest

import whichgpu as wg
from tests.surface.cli import call
from whichgpu.base.errors import NoAnswer

DAY = ("--as-of", "2026-10-01")


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("train", "llama-3.1-8b", "--deadline", "24h", "--budget", "5usd"), {"budget"}),
        (("serve", "llama-3.1-70b", "--rate", "5", "--tpot", "1ms", "--gpu", "H100"), {"tpot_max"}),
        (("finetune", "qwen2.5-32b", "--gpus", "1", "--gpu", "L4"), {"gpus"}),
        (("finetune", "llama-3.1-70b", "--gpus", "1", "--gpu", "RTX-4090"), {"gpu", "gpus"}),  # Eight of these are too small too.
        # Azure has no L4: other providers' L4s hold the default objective, so the GPU may stay.
        (("serve", "llama-3.1-70b", "--rate", "5", "--gpu", "L4", "--provider", "azure"), {"provider"}),
    ],
)
def test_relaxed_request_is_answered(words: tuple[str, ...], changed: set[str]) -> None:
    reply = call("recommend", *words, *DAY, "--json")
    assert reply.code == 1
    document = reply.json()
    assert document["rejected"]
    assert all(isinstance(count, int) and count > 0 for count in document["rejected"].values())
    relaxation = document["relaxation"]
    assert set(relaxation["change"]) == changed
    program, *argv = split(relaxation["command"])
    assert program == "whichgpu"
    answer = call(*argv, "--json")
    assert answer.code == 0, answer.out
    request = relaxation["request"]
    same = wg.recommend(request.pop("task"), request.pop("model"), **request)
    assert same.answer.gpu == answer.json()["answer"]["gpu"]


def test_python_error_has_the_same_counts_and_request() -> None:
    with pytest.raises(NoAnswer) as caught:
        wg.recommend("train", "llama-3.1-8b", budget="1usd", as_of="2026-10-01")
    document = call("recommend", "train", "llama-3.1-8b", "--budget", "1usd", *DAY, "--json").json()
    assert caught.value.rejected == document["rejected"]
    assert caught.value.relaxation == document["relaxation"]
