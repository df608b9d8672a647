"""Speculative decoding in a plan: a field of its models, in the capacity of replicas and in their launch options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whichgpu
from whichgpu.base.errors import UsageError
from whichgpu.workload.decoding.speculative import Speculative

REQUEST: dict[str, Any] = {
    "rate": "1/s", "gpu": "H100 SXM", "as_of": "2026-10-01", "curve": False, "simulate": False, "tpot_max": "100ms",
}  # fmt: skip
DRAFT = {"method": "draft", "draft": "llama-3.2-1b", "tokens": 4, "acceptance": 0.8}


def test_a_plan_counts_the_draft_and_writes_it_for_the_engine() -> None:
    usual = whichgpu.plan("llama-3.1-70b", **REQUEST)
    drafted = whichgpu.plan("llama-3.1-70b", **REQUEST, speculative=DRAFT, emit="vllm")
    assert usual.hints[0].speculative is None
    assert drafted.hints[0].speculative == Speculative("draft", "meta-llama/Llama-3.2-1B", 4, 0.8)
    assert drafted.groups[0].capacity.value != usual.groups[0].capacity.value
    line = drafted.emitted["vllm.sh"].splitlines()[-1]
    assert "--speculative-config.model=meta-llama/Llama-3.2-1B" in line
    assert "--speculative" in drafted.reproduce


def test_a_plan_file_has_it_for_each_model(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text('[[model]]\nname = "llama-3.1-8b"\nrate = "1/s"\nspeculative = "ngram,tokens=3"\n', encoding="utf-8")
    settings = {name: value for name, value in REQUEST.items() if name not in ("rate", "tpot_max")}
    [hint] = whichgpu.plan(str(path), **settings).hints
    assert hint.speculative
    assert (hint.speculative.method, hint.speculative.tokens) == ("ngram", 3)


@pytest.mark.parametrize("wrong", ["dance", "draft=resnet50,tokens=4", "draft=no-such-model,tokens=4", "ngram,tokens=0"])
def test_wrong_settings_are_errors(wrong: str) -> None:
    with pytest.raises(UsageError):
        whichgpu.plan("llama-3.1-8b", **REQUEST, speculative=wrong)
