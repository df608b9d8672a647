"""Questions that no fleet answers: exit 1 with what was rejected, and a relaxation whose command is answered."""

from __future__ import annotations

import random
from shlex import split

import pytest

from tests.surface.cli import call

TIGHT = {  # A constraint that no fleet meets, by kind.
    "budget": ("--budget", "0.01usd/h"),
    "quota": ("--gpu", "L40S", "--quota", "L40S=1", "--rate", "90/s"),
    "owned": ("--owned", "1xL4", "--only-owned", "--rate", "60/s"),
    "ttft": ("--ttft", "1ms"),
    "tpot": ("--tpot", "0.1ms"),
    "memory": ("--min-memory", "900GB"),
}


def _question(seed: int) -> list[str]:
    chance = random.Random(seed)
    kinds = list(TIGHT)
    stated = {
        "--rate": f"{10 ** chance.uniform(0, 1.3):.3g}/s",
        "--in": str(chance.choice([300, 1000, 3000])),
        "--out": str(chance.choice([50, 200])),
        "--ttft": chance.choice(["1s", "3s"]),
    }
    tight = TIGHT[kinds[seed % len(kinds)]]
    words = [word for flag, value in stated.items() if flag not in tight for word in (flag, value)]
    return ["plan", chance.choice(["llama-3.1-8b", "qwen2.5-7b"]), *words, *tight, "--no-curve", "--as-of", "2026-10-01"]


def _relaxation_works(seed: int) -> None:
    words = _question(seed)
    reply = call(*words, "--json")
    document = reply.json()
    assert (reply.code, document["ok"]) == (1, False), words
    assert sum(document["rejected"].values()) > 0, words
    answer = call(*split(document["relaxation"]["command"])[1:], "--json")
    assert answer.code == 0, (words, document["relaxation"]["command"], answer.out)


@pytest.mark.long
def test_the_relaxation_of_a_budget_too_small_is_answered() -> None:
    _relaxation_works(0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 36))
def test_the_relaxations_of_many_refusals_are_answered(seed: int) -> None:
    _relaxation_works(seed)
