"""Requests that no GPU can serve are refused or served late, never dropped; `holds` needs enough requests that met it."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import split
from typing import Any

import numpy as np
import pytest

from tests.plan_cases import TWO_TYPES
from tests.surface.cli import assert_refused, assert_refused_json, call

LLAMA = ("plan", "llama-3.1-8b", "--no-curve", "--as-of", "2026-10-01")
MIXED = (
    *LLAMA, "--rate", "20/s", "--in-histogram", "200:80,16000:20", "--out", "200", "--ttft", "200ms", "--gpu", "L4,A10G,L40S"
)  # fmt: skip


def served(reply: dict[str, Any]) -> float:
    return float(sum(group["rate"] for group in reply["groups"]))


@pytest.mark.long
def test_a_bucket_no_gpu_serves_in_time_is_refused_with_its_lengths_and_share() -> None:
    refused = call(*MIXED, "--json")
    document = refused.json()
    assert (refused.code, document["ok"], document["error"]["kind"]) == (1, False, "no-plan")
    assert "16000 in, 200 out" in document["error"]["message"]
    assert "20.0% of requests (16000 in, 200 out)" in document["error"]["message"]
    assert set(document["rejected"]) == {"ttft"}
    assert document["rejected"]["ttft"] > 0
    assert_refused_json(refused, 1)
    assert_refused(call(*MIXED), 1)


@pytest.mark.long
def test_the_relaxation_of_a_refusal_is_answered() -> None:
    relaxation = call(*MIXED, "--json").json()["relaxation"]
    assert list(relaxation["change"]) == ["ttft_max"]
    program, *words = split(relaxation["command"])
    assert program == "whichgpu"
    answer = call(*words, "--json")
    assert answer.code == 0, answer.out
    assert served(answer.json()) == pytest.approx(20.0)
    assert [row["holds"] for row in answer.json()["simulation"]] == [True]


@pytest.mark.long
def test_a_bucket_the_percentile_leaves_room_for_is_served_late_and_counted_as_missed() -> None:
    rare = list(MIXED)
    rare[rare.index("200:80,16000:20")] = "200:97,16000:3"
    answer = call(*rare, "--gpu", "L40S", "--json")
    document = answer.json()
    assert served(document) == pytest.approx(20.0)
    (row,) = document["simulation"]
    assert row["met"] < 0.98
    assert row["holds"] == (row["met"] >= 0.95) == (answer.code == 0)
    assert [one for one in document["warnings"] if "served late and count as misses" in one]


@pytest.mark.parametrize("objectives", [(), ("--ttft", "20s", "--percentile", "90")])
@pytest.mark.sweep(2)
def test_requests_longer_than_any_kv_cache_are_refused_at_any_percentile(objectives: tuple[str, ...]) -> None:
    sizes = ("--in-histogram", "200:99.5,125000:0.5", "--out", "100")
    refused = call(*LLAMA, "--rate", "1/s", *sizes, "--instance", "g6.xlarge", *objectives, "--json")
    document = refused.json()
    assert (refused.code, document["error"]["kind"]) == (1, "no-plan")
    assert "do not fit in the memory" in document["error"]["message"]
    assert "125000 in, 100 out" in document["error"]["message"]
    assert set(document["rejected"]) == {"memory"}
    assert document["relaxation"]["change"] == {"instance": None}


RARE = (*LLAMA, "--rate", "20/s", "--in-histogram", "200:99.99,125000:0.01", "--out", "100")


def test_rare_request_that_fits_no_gpu_is_refused_with_its_share() -> None:
    refused = call(*RARE, "--instance", "g6.xlarge", "--json")
    assert "0.01% of requests (125000 in, 100 out) do not fit" in assert_refused_json(refused, 1)["message"]


@pytest.mark.long
def test_a_rare_long_request_does_not_keep_the_common_ones_from_a_gpu() -> None:
    answer = call(*RARE, "--gpu", "L4", "--ttft", "2s", "--json")
    assert answer.code == 0, answer.out
    single = [group for group in answer.json()["groups"] if group["gpus_per_copy"] == 1]
    assert sum(group["rate"] for group in single) > 10


@pytest.mark.long
def test_trace_with_requests_no_gpu_serves_in_time_is_refused(tmp_path: Path) -> None:
    """Two GPU types in the plan, and buckets left to none of them: the router had no shares for them."""
    chance = np.random.default_rng(0)
    prompts = chance.choice([300, 1200, 9000], 600, p=[0.6, 0.3, 0.1])
    lines = [f"{at * 0.1:.1f},{prompt},{chance.integers(20, 400)}" for at, prompt in enumerate(prompts.tolist())]
    path = tmp_path / "trace.csv"
    path.write_text("time,prompt,output\n" + "\n".join(lines) + "\n")
    refused = call(*LLAMA, "--trace", str(path), "--ttft", "200ms", "--gpu", "L4,A10G,L40S", "--json")
    document = refused.json()
    assert (refused.code, document["error"]["kind"]) == (1, "no-plan")
    assert "of requests" in document["error"]["message"]


def profiles(tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "two.json"
    path.write_text(json.dumps(TWO_TYPES | changes))
    return str(path)


def test_a_size_no_gpu_of_a_profile_file_serves_is_refused_with_its_share(tmp_path: Path) -> None:
    gpus = {
        name: {**facts, "requests_per_second": [facts["requests_per_second"][0], [facts["requests_per_second"][1][0], 0]]}
        for name, facts in TWO_TYPES["gpus"].items()
    }
    refused = call("plan", "--profiles", profiles(tmp_path, gpus=gpus), "--json")
    document = refused.json()
    assert (refused.code, document["error"]["kind"]) == (1, "no-plan")
    assert "20.0% of requests (2.2)" in document["error"]["message"]
    assert document["rejected"] == {"throughput": 2}
    assert document["relaxation"]["change"] == {"mix": {"2.2": 0.0}, "rate": pytest.approx(24.0)}
    answer = call("plan", "--profiles", profiles(tmp_path, gpus=gpus, mix=[[0.2, 0.1], [0.5, 0.0]], rate=24.0), "--json")
    assert answer.code == 0, answer.out


def test_too_few_gpus_for_a_profile_file_name_the_rate_they_serve(tmp_path: Path) -> None:
    path = profiles(tmp_path)
    document = call("plan", "--profiles", path, "--quota", "A10G=2,A100-80GB=0", "--json").json()
    assert document["rejected"] == {"quota": 2}
    answer = call(*split(document["relaxation"]["command"])[1:], "--json")
    assert answer.code == 0, answer.out
    assert 0 < served(answer.json()) < 30


@pytest.mark.long
def test_models_busiest_at_different_hours_are_each_simulated_at_their_own(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    model = '[[model]]\nname = "{name}"\nmodel = "llama-3.1-8b"\nin = 500\nout = 100\nttft = "1s"\nhourly = {hours}\n'
    hours = {"day": [6, 6, 0], "night": [0, 0, 3], "always": [2, 2, 1]}
    models = [model.format(name=name, hours=curve) for name, curve in hours.items()]
    path.write_text('gpu = "L40S"\ncurve = false\n' + "".join(models))
    answer = call("plan", str(path), "--as-of", "2026-10-01", "--json")
    assert answer.code == 0, answer.out + answer.err
    rows = {row["model"]: row for row in answer.json()["simulation"]}
    assert {name: row["holds"] for name, row in rows.items()} == dict.fromkeys(hours, True)
    assert min(row["requests"] for row in rows.values()) > 0


def test_owned_gpus_too_few_when_aggregated_serve_as_prefill_and_decode_workers() -> None:
    """With an engine that stops decoding for each prefill, 8 H100 and 8 A100 carry this rate only with roles."""
    argv = "plan llama-2-70b --year 2023 --rate 10/s --in 1155 --out 211 --ttft 1s --tpot 100ms --only-owned --no-curve".split()
    reply = call(*argv, "--owned", "8xH100-SXM,8xA100-SXM-80GB", "--no-simulate", "--as-of", "2026-11-15", "--json")
    assert reply.code == 0, reply.err or reply.out
    document = reply.json()
    workers = {role: {one["gpu"] for one in document["groups"] if one["role"] == role} for role in ("prefill", "decode")}
    assert "h100-sxm" in workers["prefill"]
    assert "a100-sxm-80gb" in workers["decode"]
    for role in ("prefill", "decode"):
        served = sum(one["rate"] for one in document["groups"] if one["role"] in (role, "both"))
        assert served == pytest.approx(10.0)
    assert {"prefill", "decode"} <= {one["role"] for one in document["hints"]}
    assert any("KV cache is sent" in one for one in document["assumptions"])
