"""`recommend` and `buy` as the contract has them: fields, forms, exit codes, refusals."""

from __future__ import annotations

import json
import shlex
from decimal import Decimal
from typing import Any

import pytest

from tests.surface.cli import assert_refused, assert_refused_json, call

SERVE = (
    "recommend",
    "serve",
    "llama-3.1-70b",
    "--rate",
    "5/s",
    "--in",
    "1000",
    "--out",
    "300",
    "--tpot",
    "50ms",
    "--as-of",
    "2026-10-01",
)
FIELDS = """gpu gpus instance provider region term parallel batch time throughput memory fits cost cost_per_hour
cost_per_million_tokens price_observed_at because""".split()
REPLY = "request answer candidates pareto rejected assumptions warnings sources verify reproduce".split()


@pytest.fixture(scope="module")
def served() -> dict[str, Any]:
    reply = call(*SERVE, "--json")
    assert reply.code == 0, reply.err
    document: dict[str, Any] = reply.json()
    return document


def test_reply_has_every_field(served: dict[str, Any]) -> None:
    assert set(REPLY) <= set(served)
    for one in (served["answer"], *served["candidates"], *served["pareto"]):
        assert set(FIELDS) <= set(one)


def test_estimates_are_figures_and_costs_money_with_a_range(served: dict[str, Any]) -> None:
    for one in served["candidates"]:
        for name in ("time", "throughput", "memory"):
            assert one[name]["low"] <= one[name]["value"] <= one[name]["high"]
            assert one[name]["basis"] in ("measured", "calibrated", "modelled", "published")
        cost = one["cost"]
        assert all(isinstance(cost[name], str) for name in ("amount", "low", "high"))
        assert Decimal(cost["low"]) <= Decimal(cost["amount"]) <= Decimal(cost["high"])
        assert isinstance(one["cost_per_hour"]["amount"], str)


def test_objectives_hold_for_every_candidate(served: dict[str, Any]) -> None:
    for one in served["candidates"]:
        assert one["tpot"]["value"] <= 0.05
        assert one["capacity"]["value"] >= 5
        assert one["fits"] in ("fits", "tight")


def test_request_shows_every_value_and_which_were_defaults(served: dict[str, Any]) -> None:
    assert served["request"]["rate"] == 5
    assert "precision" in served["request"]["defaults"]
    assert "rate" not in served["request"]["defaults"]


def _age_factor(days: int) -> float:
    """Weight of a service's price by its age, as docs/recommend.md states it."""
    return 1.0 + 0.25 * (days > 45) + 0.25 * (days > 180)


def test_answer_is_first_and_everyone_has_reasons(served: dict[str, Any]) -> None:
    assert served["candidates"][0] == served["answer"]
    assert all(len(one["because"]) >= 3 for one in served["candidates"])
    amounts = [float(one["cost"]["amount"]) * _age_factor(one["price_age_days"]) for one in served["candidates"]]
    assert amounts[1:] == sorted(amounts[1:])
    assert amounts[0] <= 1.03 * min(amounts)
    assert sum(served["rejected"]["reasons"].values()) < served["considered"] * 3


def test_reproducing_gives_the_same(served: dict[str, Any]) -> None:
    import shlex

    words = shlex.split(served["reproduce"]["command"])
    assert words[:2] == ["whichgpu", "recommend"]
    again = call(*words[1:], "--json").json()
    assert again["candidates"] == served["candidates"]
    assert served["reproduce"]["url"].startswith("/recommend?")


def test_verify_is_a_claim_measure_reads(served: dict[str, Any]) -> None:
    import shlex

    words = shlex.split(served["verify"])
    assert words[:3] == ["whichgpu", "measure", "--verify"]
    assert call(*shlex.split(words[3])).code == 0


def test_words_on_stderr_and_a_table_on_stdout() -> None:
    reply = call(*SERVE)
    assert reply.code == 0
    rows = reply.tsv()
    assert len(rows[0]) == 6
    assert len(rows) > 2
    assert reply.err.splitlines()[0].startswith("Use ")
    for word in ("because:", "assumed:", "verify:", "reproduce:", "Sources"):
        assert word in reply.err


@pytest.mark.parametrize("form", ["--csv", "--markdown"])
@pytest.mark.sweep(2)
def test_other_forms(form: str) -> None:
    assert call(*SERVE, form).code == 0


def test_no_candidate_lists_rejection_counts_and_the_smallest_relaxation() -> None:
    argv = ("recommend", "train", "llama-3.1-8b", "--deadline", "24h", "--budget", "5usd", "--as-of", "2026-10-01")
    assert_refused(call(*argv), 1)
    error = assert_refused_json(call(*argv, "--json"), 1)
    assert "--budget" in error["hint"]
    money = error["hint"].split("--budget ")[1].split("usd")[0]
    assert float(money) > 5
    assert call(*argv[:-4], "--budget", f"{money}usd", "--as-of", "2026-10-01").code == 0


@pytest.mark.long
def test_both_limits_moved_together_suffice() -> None:
    argv = ("recommend", "train", "llama-3.1-8b", "--deadline", "10min", "--budget", "1usd", "--as-of", "2026-10-01")
    error = assert_refused_json(call(*argv, "--json"), 1)
    money = error["hint"].split("--budget ")[1].split("usd")[0]
    hours = error["hint"].split("--deadline ")[1].split("h")[0]
    again = (*argv[:3], "--deadline", f"{hours}h", "--budget", f"{money}usd", "--as-of", "2026-10-01")
    assert call(*again).code == 0


@pytest.mark.parametrize(
    "flags",
    [
        ("--rank", "speed"),
        ("--budget", "five"),
        ("--deadline", "soon"),
        ("--needs", "warp-drive"),
        ("--provider", "nowhere"),
        ("--gpu", "H9000"),
        ("--max-latency", "20ms"),
        ("--gpus", "8..1"),
        ("--owned", "8xH9000"),
    ],
)
def test_invalid_constraints_are_refused(flags: tuple[str, ...]) -> None:
    assert_refused(call("recommend", "train", "resnet50", *flags), 2)


def test_why_not() -> None:
    reply = call(*SERVE, "--why-not", "V100-SXM-16GB", "--json").json()
    assert set(reply["why_not"]) == {"v100-sxm-16gb"}
    assert reply["why_not"]["v100-sxm-16gb"]


def test_owned_gpus_compete_and_are_not_overdrawn() -> None:
    reply = call("recommend", "train", "resnet50", "--owned", "4xV100-SXM-16GB", "--term", "owned", "--json").json()
    assert reply["answer"]["provider"] == "owned"
    assert max(one["gpus"] for one in reply["candidates"]) <= 4


def test_currency() -> None:
    reply = call(*SERVE, "--currency", "EUR", "--json").json()
    assert reply["answer"]["cost"]["currency"] == "EUR"


def test_without_a_model_the_mix_is_named() -> None:
    reply = call("recommend", "train", "--budget", "2usd/h", "--json").json()
    assert reply["request"]["model"] is None
    assert reply["request"]["mix"] == ["cnn-training", "transformer-training"]
    assert Decimal(reply["answer"]["cost_per_hour"]["amount"]) <= 2


@pytest.mark.parametrize(
    "work", [("serve", "--rate", "0.1/s", "--out", "10"), ("finetune", "--steps", "10", "--lora")], ids=lambda work: str(work[0])
)
def test_more_tokens_than_the_model_s_context_give_a_warning(work: tuple[str, ...]) -> None:
    task, *more = work
    argv = ("recommend", task, "gpt2", *more, "--gpu", "L40S", "--as-of", "2025-06-01", "--json")
    reply = call(*argv, "--in", "3000")
    assert reply.code == 0, reply.out
    assert [one for one in json.loads(reply.out)["warnings"] if "1024" in one and "gpt2" in one]
    assert not [one for one in json.loads(call(*argv, "--in", "512").out)["warnings"] if "1024" in one]


def test_reproduce_and_verify_contain_the_whole_config() -> None:
    shape = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32}
    config = json.dumps({**shape, "intermediate_size": 8192, "vocab_size": 32000}, separators=(",", ":"))
    answer = json.loads(call("recommend", "batch", config, "--gpu", "L4", "--as-of", "2025-06-01", "--json").out)
    words = shlex.split(answer["reproduce"]["command"])
    assert words[:4] == ["whichgpu", "recommend", "batch", config]
    again = json.loads(call(*words[1:], "--json").out)
    assert again["answer"] == answer["answer"]
    assert config in shlex.split(shlex.split(answer["verify"])[3])


def test_buy_shows_inputs_and_marks_defaults() -> None:
    reply = call("buy", "RTX 4090", "--use", "0.3", "--json")
    assert reply.code == 0, reply.err
    answer = json.loads(reply.out)
    assert answer["inputs"]["use"] == 0.3
    assert "use" not in answer["defaults"]
    assert "years" in answer["defaults"]
    assert answer["rows"][0]["sensitivity"]
    assert "15% when idle" in answer["assumptions"][0]
    assert f"assumed: {answer['assumptions'][0]}" in call("buy", "RTX 4090", "--use", "0.3").err
    assert_refused(call("buy", "B200"), 1)
    assert_refused(call("buy"), 2)
    assert_refused(call("buy", "RTX 4090", "--use", "7"), 2)


def test_plot(tmp_path: Any) -> None:
    pytest.importorskip("vl_convert")
    path = tmp_path / "front.svg"
    assert call(*SERVE, "--plot", str(path)).code == 0
    assert path.read_text().startswith("<svg")


@pytest.mark.parametrize("share", ["1", "3", "-0.1", "nan", "inf"])
def test_idle_is_a_share_of_the_time(share: str) -> None:
    assert assert_refused_json(call("recommend", "train", "resnet50", "--idle", share, "--json"), 2)["kind"] == "bad-field"


def test_speed_of_a_service_is_that_of_its_load(served: dict[str, Any]) -> None:
    """As in `estimate`: tokens per second over all answers."""
    for row in served["candidates"]:
        assert row["throughput"]["value"] == pytest.approx(5 * 300)
        assert row["throughput"]["low"] <= row["throughput"]["value"] == row["throughput"]["high"]
        assert row["throughput"]["unit"] == "output tokens/s"


@pytest.mark.parametrize("size", [3, 512])
def test_a_micro_batch_of_any_size_is_answered_with_it(size: int) -> None:
    reply = call("recommend", "train", "bert-base", "--micro-batch", str(size), "--json")
    assert reply.code == 0, reply.err
    assert reply.json()["answer"]["batch"] % size == 0


def test_ranges_of_waits_under_a_load_are_wider_than_those_of_a_step(served: dict[str, Any]) -> None:
    """At the slow end more sequences run concurrently and slow each other down."""
    for row in served["candidates"]:
        step = row["time"]["high"] / row["time"]["value"]
        for name in ("ttft", "tpot"):
            assert row[name]["low"] <= row[name]["value"]
            assert row[name]["high"] / row[name]["value"] >= step - 1e-9
