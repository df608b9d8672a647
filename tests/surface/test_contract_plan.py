"""`plan` as users and scripts meet it: fields, forms, exit codes."""

from __future__ import annotations

import json
import re
import shlex
from datetime import date
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.plan_cases import TWO_TYPES
from tests.surface.cli import assert_refused_json, call
from whichgpu.api.context import Context
from whichgpu.api.plan.command import reproduce
from whichgpu.api.plan.plan_verb import question_of
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg

SERVE = "plan llama-3.1-8b --rate 10/s --in 1000 --out 300 --ttft 1s --tpot 50ms --no-curve --as-of 2026-10-01".split()
OWNED = "8xV100-SXM-16GB,4xA100-SXM-80GB,2xH100-SXM"
REPLY = """request as_of sentence cost_per_hour cost_per_month cost bound gap groups bill levels alone jobs owned breaks_first
simulation curve timeline own hints assumptions warnings sources verify reproduce""".split()
GROUP = """model gpu gpus copies machines provider instance region term parallel batch rate capacity utilisation cost_per_hour
serves""".split()


@pytest.fixture(scope="module")
def planned() -> dict[str, Any]:
    reply = call(*SERVE, "--json")
    assert reply.code == 0, reply.err
    document: dict[str, Any] = reply.json()
    return document


@pytest.fixture
def profiles(tmp_path: Path) -> str:
    path = tmp_path / "two.json"
    path.write_text(json.dumps(TWO_TYPES))
    return str(path)


def test_reply_has_every_field(planned: dict[str, Any]) -> None:
    assert set(REPLY) <= set(planned)
    assert planned["groups"]
    for one in planned["groups"]:
        assert set(GROUP) <= set(one)


def test_the_plan_serves_all_traffic_within_its_objectives(planned: dict[str, Any]) -> None:
    assert sum(one["rate"] for one in planned["groups"]) == pytest.approx(10.0)
    for one in planned["groups"]:
        assert one["capacity"]["low"] <= one["capacity"]["value"] <= one["capacity"]["high"]
        assert 0 < one["utilisation"] <= 1 - planned["headroom"] + 1e-6
    (check,) = planned["simulation"]
    assert check["holds"]
    assert check["ttft"]["value"] <= 1.0
    assert check["tpot"]["value"] <= 0.05


def test_money_is_text_and_the_bill_adds_up(planned: dict[str, Any]) -> None:
    cost = planned["cost_per_hour"]
    assert Decimal(cost["low"]) <= Decimal(cost["amount"]) <= Decimal(cost["high"])
    whole = sum(Decimal(row["cost_per_hour"]["amount"]) for row in planned["bill"])
    assert float(whole) == pytest.approx(float(cost["amount"]), abs=1e-3)
    assert Decimal(planned["bound"]["amount"]) <= Decimal(cost["amount"])
    assert 0 <= planned["gap"] <= 0.03


def test_no_kind_alone_is_cheaper_than_the_bound(planned: dict[str, Any]) -> None:
    for row in planned["alone"]:
        if row["cost_per_hour"] is not None:
            assert Decimal(row["cost_per_hour"]["amount"]) >= Decimal(planned["bound"]["amount"]) - Decimal("0.0001")


def test_defaults_are_marked(planned: dict[str, Any]) -> None:
    assert {"horizon", "headroom"} <= set(planned["request"]["defaults"])
    assert planned["request"]["model"][0]["name"] == "llama-3.1-8b"


@pytest.mark.long
def test_reproduce_repeats_the_question(planned: dict[str, Any]) -> None:
    words = planned["reproduce"].split()[1:]
    again = call(*words, "--json").json()
    assert again["cost_per_hour"] == planned["cost_per_hour"]


def test_words_go_to_stderr_and_rows_to_stdout() -> None:
    reply = call(*SERVE, "--no-simulate")
    assert reply.code == 0
    assert reply.err.startswith("Use ")
    assert "bound: " in reply.err
    assert "breaks first: " in reply.err
    assert len(reply.tsv()[0]) == 7
    listed = call(*SERVE, "--no-simulate", "--csv").csv()
    assert {"gpu", "copies", "cost_per_hour.amount"} <= set(listed[0])


@pytest.mark.parametrize(("flags", "cost"), [(("--slices", "1"), "6.7"), (("--slices", "4"), "5.69"), ((), "4.68")])
def test_profiles_as_published(profiles: str, flags: tuple[str, ...], cost: str) -> None:
    document = call("plan", "--profiles", profiles, *flags, "--json").json()
    assert document["cost_per_hour"]["amount"] == cost
    assert document["bound"]["amount"] == cost
    assert {row["gpu"]: row["cost_per_hour"]["amount"] for row in document["alone"]}["A10G"] == "12.12"


def test_every_owned_gpu_has_a_role_or_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    models = (("llama-3.1-8b", "3/s"), ("llama-3.1-70b", "0.3/s"), ("qwen2.5-7b", "2/s"))
    tables = "".join(
        f'[[model]]\nname = "{name}"\nrate = "{rate}"\nin = 1000\nout = 300\ntpot = "80ms"\n' for name, rate in models
    )
    path.write_text("only_owned = true\ncurve = false\n" + tables)
    reply = call("plan", str(path), "--owned", OWNED, "--json")
    assert reply.code == 0, reply.err or reply.out
    document = reply.json()
    assert [(row["gpu"], row["gpus"]) for row in document["owned"]] == [
        ("v100-sxm-16gb", 8),
        ("a100-sxm-80gb", 4),
        ("h100-sxm", 2),
    ]
    for row in document["owned"]:
        assert row["used"] <= row["gpus"]
        assert row["roles"] if row["used"] else row["reasons"]
        assert row["used"] == row["gpus"] or row["reasons"]
    assert {one["model"] for one in document["groups"]} == {name for name, _ in models}
    assert all(one["provider"] == "owned" for one in document["groups"])


def test_a_trace_a_chart_and_files_to_start_from(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{place / 4},{200 + place % 700},{20 + place % 90}\n" for place in range(1200))
    trace.write_text("time,prompt,output\n" + rows)
    folder = tmp_path / "deploy"
    argv = ["plan", "llama-3.1-8b", "--trace", str(trace), "--tpot", "60ms", "--gpu", "H100 SXM,L4,A10G", "--no-curve"]
    reply = call(*argv, "--export", str(folder), "--emit", "skypilot", "--as-of", "2026-10-01")
    assert reply.code == 0, reply.err
    assert json.loads((folder / "plan.json").read_text())["groups"]
    assert [path.suffix for path in folder.iterdir() if path.name != "plan.json"] == [".yaml"] * len(list(folder.glob("*.yaml")))
    assert list(folder.glob("*.yaml"))
    printed = call(*argv, "--hints", "vllm", "--no-simulate", "--as-of", "2026-10-01")
    assert "vllm serve RedHatAI/Meta-Llama-3" in printed.out  # a checkpoint in the precision that is planned
    assert "--tensor-parallel-size=" in printed.out
    assert "--hints is an old spelling of --emit" in printed.err


def test_one_model_served_twice_is_two_with_machines_of_their_own(tmp_path: Path) -> None:
    """Groups on the same machine type each have their own machines, and their costs add up to the bill."""
    file = tmp_path / "twice.toml"
    one = '[[model]]\nname = "llama-3.1-8b"\nrate = "{rate}/s"\nin = {prompt}\nout = 100\n'
    config = '[[model]]\nname = "long prompts"\nmodel = "llama-3.1-8b"\nrate = "1/s"\nin = 6000\nout = 100\n'
    file.write_text(one.format(rate=20, prompt=500) + one.format(rate=3, prompt=3000) + config)
    argv = [
        "plan",
        str(file),
        "--gpu",
        "L4,L40S",
        "--no-curve",
        "--no-simulate",
        "--tolerance",
        "0",
        "--as-of",
        "2026-10-01",
        "--json",
    ]
    document = call(*argv).json()
    assert {row["model"] for row in document["groups"]} == {"llama-3.1-8b", "llama-3.1-8b (2)", "long prompts"}
    assert set(document["levels"][0]["rates"].values()) == {20.0, 3.0, 1.0}
    machines = {(row["instance"], row["region"]): row["machines"] for row in document["bill"]}
    for place, count in machines.items():
        mine = [row for row in document["groups"] if (row["instance"], row["region"]) == place]
        assert all(row["gpus"] <= row["machines"] * row["gpus_per_machine"] for row in mine)
        assert count <= sum(row["machines"] for row in mine) <= count + len(mine) - 1
    spent = sum(float(row["cost_per_hour"]["amount"]) for row in document["groups"])
    assert spent == pytest.approx(sum(float(row["cost_per_hour"]["amount"]) for row in document["bill"]), rel=1e-3)
    assert len({one["group"] for one in document["hints"]}) == len(document["groups"])
    assert {one["model"] for one in document["hints"]} == {"meta-llama/Llama-3.1-8B"}


@pytest.mark.long
def test_sweep_on_processes_equals_a_serial_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["plan", "llama-3.1-8b", "--rate", "5/s", "--gpu", "L4,A10G,L40S", "--no-simulate", "--as-of", "2026-10-01", "--json"]
    progress = []
    for more in ((), ("--jobs", "2")):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache{len(more)}"))  # nothing is taken from the run before
        reply = call(*argv, "--sweep", "rate=2/s,5/s,20/s", *more)
        assert reply.code == 0, reply.err or reply.out
        progress.append(reply.json()["curve"])
    assert progress[0] == progress[1]
    costs = [float(one["cost_per_hour"]["amount"]) for one in progress[0]]
    assert costs == sorted(costs)


def test_sweep_lists_the_bill_at_every_value() -> None:
    argv = ["plan", "llama-3.1-8b", "--rate", "5/s", "--gpu", "L4,A10G", "--no-simulate", "--as-of", "2026-10-01", "--json"]
    curve = call(*argv, "--sweep", "rate=2/s,20/s").json()["curve"]
    assert [(one["objective"], one["value"]) for one in curve] == [("rate", 2.0), ("rate", 20.0)]
    assert float(curve[0]["cost_per_hour"]["amount"]) < float(curve[1]["cost_per_hour"]["amount"])


def test_hourly_plan_commits_the_base_load_and_has_gpus_per_level() -> None:
    """Over three years a commitment covers the base load of a daily curve; every hour has the GPUs of its level."""
    curve = ",".join(["2"] * 16 + ["10"] * 8)
    terms = "on-demand,reserved-1y,reserved-3y,committed-1y,committed-3y"
    argv = f"plan llama-3.1-8b --hourly {curve} --in 1000 --out 300 --tpot 60ms --provider aws,gcp --term {terms}".split()
    document = call(*argv, "--horizon", "36 months", "--no-curve", "--no-simulate", "--as-of", "2026-10-01", "--json").json()
    assert len(document["timeline"]) == 24
    assert len(document["levels"]) == 2
    committed = [row for row in document["bill"] if row["term"] != "on-demand"]
    assert committed
    assert all(len(set(row["machines_by_level"])) == 1 for row in committed)
    assert document["levels"][0]["gpus"] > document["levels"][1]["gpus"]


FLEET = """
horizon = "12 months"
term = ["on-demand", "spot"]
[[model]]
name = "llama-3.1-8b"
rate = "20/s"
in = 1000
out = 300
tpot = "50ms"
[[job]]
name = "nightly tuning"
task = "finetune"
model = "llama-3.1-8b"
tokens = "10M"
deadline = "24h"
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fleet") / "fleet.toml"
    path.write_text(FLEET)
    return path


def _ages(document: dict[str, Any]) -> list[int]:
    day = date.fromisoformat(document["as_of"])
    return [(day - date.fromisoformat(row["price_observed_at"])).days for row in (*document["bill"], *document["jobs"])]


@pytest.mark.long
def test_spot_prices_older_than_a_year_count_only_if_requested(fleet: Path) -> None:
    document = call("plan", str(fleet), "--no-curve", "--no-simulate", "--as-of", "2026-11-15", "--json").json()
    assert max(_ages(document)) <= 365
    assert any("not seen for a year" in one for one in document["assumptions"])
    old = call("plan", str(fleet), "--no-curve", "--no-simulate", "--as-of", "2026-11-15", "--max-age", "3000d", "--json").json()
    assert max(_ages(old)) > 365
    fresh = call("plan", str(fleet), "--no-curve", "--no-simulate", "--as-of", "2026-11-15", "--max-age", "90d", "--json").json()
    assert max(_ages(fresh)) <= 90


def test_the_text_says_when_prices_are_of_and_warns_of_old_ones(fleet: Path) -> None:
    reply = call("plan", str(fleet), "--no-curve", "--no-simulate", "--as-of", "2026-11-15")
    assert "price date" in reply.out
    assert re.search(r"job: .*\(.*price of \d{4}-\d\d-\d\d\).* once, in the bill as", reply.err)
    assert "prices last seen more than 30 days ago" in reply.err
    assert "runs once in the 8,760 hours" in reply.err


def test_engine_is_planned_only_on_supported_gpus_and_earlier_releases_are_named() -> None:
    argv = ["plan", "llama-3.1-8b", "--rate", "2/s", "--only-owned", "--no-curve", "--no-simulate", "--as-of", "2026-11-15"]
    document = call(*argv, "--owned", "8xV100-SXM-16GB,2xGTX-1080-Ti", "--engine", "vllm", "--json").json()
    assert any("V100 SXM 16GB in an earlier release only" in one for one in document["warnings"])
    assert {one["gpu"] for one in document["groups"]} == {"v100-sxm-16gb"}
    assert "does not run on it" in document["owned"][1]["reasons"][0]
    service = call(*argv, "--owned", "8xV100-SXM-16GB", "--emit", "skypilot").out
    assert 'setup: "pip install vllm"' not in service
    assert "VLLM_VERSION" in service
    present = call(*argv, "--owned", "2xA100-SXM-80GB", "--emit", "skypilot").out
    assert 'setup: "pip install vllm"' in present
    refused = assert_refused_json(call(*argv, "--owned", "8xK80", "--json"), 1)
    assert "runs on none of the allowed GPUs" in refused["message"]


@pytest.mark.long
def test_ranges_are_shown_and_an_objective_within_one_is_named(planned: dict[str, Any]) -> None:
    (check,) = planned["simulation"]
    limits = {"ttft": 1.0, "tpot": 0.05}
    assert check["unsure"] == [name for name in limits if check[name]["value"] <= limits[name] < check[name]["high"]]
    message = call(*SERVE).err
    assert re.search(r"TPOT [\d.]+ ms \([\d.]+ ms to [\d.]+ m?s\)", message)
    assert message.count("is inside that range") == len(check["unsure"])
    assert f"with {planned['headroom']:.0%} headroom per replica (--headroom), no mix" in message


def test_without_objectives_none_is_reported_as_met() -> None:
    message = call("plan", "llama-3.1-8b", "--rate", "1/s", "--gpu", "L4,A10G", "--no-curve", "--as-of", "2026-11-15").err
    assert "no objective was given" in message
    assert "- met" not in message


@pytest.mark.long
def test_a_million_requests_a_second_are_answered_in_time() -> None:
    began = monotonic()
    document = call("plan", "llama-3.1-8b", "--rate", "1000000/s", "--no-curve", "--as-of", "2026-11-15", "--json").json()
    assert monotonic() - began < 60
    assert sum(one["copies"] for one in document["groups"]) > 10_000
    assert document["simulation"][0]["requests"] > 1000


FLAGS: dict[str, Any] = {
    "roles": True, "policies": True, "only_owned": True, "sweep": "rate=1/s,2/s", "owned": "2xH100 SXM", "quota": "L4=3",
    "max_age": "90d",
    "headroom": "0.2", "slices": "2", "levels": "2", "current": "2xL4", "change_cost": "1usd", "spot_share": "0.3",
    "tolerance": "0.05",
    "time_limit": "9s", "seed": "7", "horizon": "100h", "simulate": False, "curve": False, "hourly": "1,2", "in_spread": "0.5",
    "out_histogram": "10:1,20:3", "latency": "9s", "term": ("on-demand", "spot"),
}  # fmt: skip


@pytest.mark.parametrize("flag", FLAGS)
def test_reproduce_has_every_flag(flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[Any, ...]] = []

    def hear(*question: Any) -> None:
        heard.append(question)
        raise NoAnswer("no-plan", msg("error.no-plan"), msg("hint.plan"))

    monkeypatch.setattr("whichgpu.api.plan.plan.plan", hear)
    prices = tmp_path / "mine.csv"
    question = question_of({"what": ("llama-3.1-8b",), "rate": "1/s", flag: FLAGS[flag]}, Context())
    assert call(*shlex.split(reproduce(question, date(2026, 11, 15), prices, own_measurements=False))[1:]).code == 1
    ((again, day, _, overlay, own, *_),) = heard
    assert (again, day, overlay, own) == (question, date(2026, 11, 15), prices, False)


def test_reproduce_of_a_file_keeps_the_flags_over_it(fleet: Path) -> None:
    flags = ("--no-curve", "--no-simulate", "--as-of", "2026-11-15", "--headroom", "0.2", "--horizon", "100h")
    document = call("plan", str(fleet), *flags, "--json").json()
    words = shlex.split(document["reproduce"])
    assert {"--headroom=0.2", "--horizon=100h", "--no-curve", "--no-simulate"} <= set(words)
    assert not [word for word in words if word.startswith("--term")]  # the file says it


def test_owned_gpus_used_up_are_the_reason_for_dearer_ones() -> None:
    argv = ["plan", "llama-3.1-8b", "--rate", "40/s", "--in", "1000", "--out", "300", "--no-curve", "--no-simulate"]
    own = ("--owned", "2xA100-SXM-80GB", "--gpu", "H100 SXM", "--quality", "lossless")  # In int8 one of the two would do.
    document = call(*argv, *own, "--as-of", "2026-11-15", "--json").json()
    rented = [one for one in document["groups"] if one["provider"] != "owned"]
    assert rented
    assert "all you own are in use" in rented[0]["because"][0]


def test_a_fleet_with_a_spare_tolerates_the_loss_of_a_machine_and_costs_more() -> None:
    argv = ["plan", "llama-3.1-8b", "--rate", "20/s", "--in", "1000", "--out", "300", "--no-curve", "--no-simulate"]
    plain, spare = (call(*argv, *more, "--as-of", "2026-10-01", "--json").json() for more in ((), ("--spare",)))
    assert any("meets the objectives" in line for line in plain["breaks_first"])
    assert any("tolerates the loss" in line for line in spare["breaks_first"])
    assert float(plain["cost_per_hour"]["amount"]) < float(spare["cost_per_hour"]["amount"])
    assert "--spare" in spare["reproduce"]
