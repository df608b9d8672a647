"""What cannot be planned is refused: with the reason and the smallest change, before any work, the part named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surface.cli import assert_refused, assert_refused_json, call

SERVE = "plan llama-3.1-8b --rate 10/s --in 1000 --out 300 --ttft 1s --tpot 50ms --no-curve --as-of 2026-10-01".split()


@pytest.mark.parametrize(
    ("flags", "reason", "way_out"),
    [
        (("--tpot", "1ms"), "between tokens", "--tpot"),
        (("--budget", "0.01usd/h"), "budget", "--budget"),
        (("--gpu", "H100 SXM", "--quota", "H100 SXM=1", "--rate", "60/s"), "quota", '--quota "H100 SXM='),
        (("--owned", "2xV100-SXM-16GB", "--only-owned"), "too few", "owned"),
    ],
)
def test_infeasible_plan_has_a_reason_and_the_smallest_relaxation(flags: tuple[str, ...], reason: str, way_out: str) -> None:
    argv = ["plan", "llama-3.1-8b", "--in", "1000", "--out", "300", "--no-curve", "--no-simulate", "--as-of", "2026-10-01"]
    rate = () if "--rate" in flags else ("--rate", "20/s")
    error = assert_refused_json(call(*argv, *rate, *flags, "--json"), 1)
    assert reason in error["message"]
    assert way_out in error["hint"]


@pytest.mark.parametrize(
    "argv",
    [
        ("plan",),
        ("plan", "none.toml"),
        ("plan", "llama-3.1-8b", "--horizon", "soon"),
        ("plan", "llama-3.1-8b", "--headroom", "3"),
        ("plan", "llama-3.1-8b", "--sweep", "colour=1"),
        ("plan", "llama-3.1-8b", "--only-owned"),
        ("plan", "llama-3.1-8b", "--quota", "H100"),
        ("plan", "resnet50", "--rate", "3/s"),
        ("plan", "no-such-model", "--rate", "3/s"),
        ("plan", "llama-3.1-8b", "--trace", "none.csv"),
        ("plan", "--profiles", "none.json"),
        ("plan", "llama-3.1-8b", "--owned", "8xNoSuchGpu"),
        ("plan", "llama-3.1-8b", "--emit", "nomad"),
    ],
)
def test_bad_input_is_exit_2(argv: tuple[str, ...]) -> None:
    assert_refused(call(*argv, "--no-curve"), 2)


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "time,prompt,output\n",
        "time,prompt\n1,2\n",
        "time,prompt,output\n-1,10,10\n",
        "time,prompt,output\n1,nan,10\n",
        "time,prompt,output\n5,10,10\n1,10,10\n",
    ],
)
def test_bad_traces_are_named(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(lines)
    error = assert_refused_json(call("plan", "llama-3.1-8b", "--trace", str(path), "--json"), 2)
    assert "trace.csv" in error["message"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--jobs", "0"), "--jobs: jobs is a whole number from 1 to 256"),
        (("--levels", "99"), "from 1 to 24"),
        (("--headroom", "2"), "from 0 to 0.9"),
        (("--horizon", "soon"), "horizon is a duration"),
        (("--owned", "0xH100-SXM"), "is not a count of one GPU or more"),
        (("--change-cost", "much"), "not an amount of money"),
        (("--sweep", "rate=0/s"), "is not a sweep"),
        (("--ray", "somewhere"), "--ray wants auto, local or an address"),
    ],
)
def test_out_of_range_input_is_refused_early_with_the_limit(
    flags: tuple[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whichgpu.api.plan.plan.search_plan", lambda *_: pytest.fail("it began to work"))
    reply = call("plan", "llama-3.1-8b", "--rate", "1/s", *flags)
    assert_refused(reply, 2)
    assert words in reply.err


def test_a_bad_job_or_model_of_a_file_is_named_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichgpu.api.plan.plan.search_plan", lambda *_: pytest.fail("it began to work"))
    good = '[[model]]\nname = "llama-3.1-8b"\n'
    job = '[[job]]\nname = "tune"\ntask = "{task}"\nmodel = "llama-3.1-8b"\ndeadline = "24h"\ntokens = "{tokens}"\n'
    cases = {
        good + job.format(task="serve", tokens="1M"): "[[job]] tune: a job is work that comes to an end",
        good + job.format(task="finetune", tokens="0"): "[[job]] tune: --tokens",
        good + '[[model]]\nname = "second"\nmodel = "llama-3.1-8b"\ntpot = "0ms"\n': "[[model]] second: --tpot",
    }
    for text, words in cases.items():
        (tmp_path / "fleet.toml").write_text(text)
        reply = call("plan", str(tmp_path / "fleet.toml"))
        assert_refused(reply, 2)
        assert words in reply.err
