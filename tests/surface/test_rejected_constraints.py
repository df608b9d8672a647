"""Contradictory, excessive or unreadable constraints are rejected at once, and the error names values that would work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.surface.cli import call
from whichgpu.api.recommend.recommend import recommend
from whichgpu.api.workloads.estimate import estimate
from whichgpu.api.workloads.stream import estimate_requests
from whichgpu.decide.requirements import Requirements

H100 = ("--gpu", "H100 SXM")


@pytest.mark.parametrize(
    ("argv", "kind", "words"),
    [
        (("estimate", "serve", "llama-3.1-8b", *H100, "--batch", "4", "--rate", "2/s"), "contradiction", "--rate alone"),
        (("recommend", "serve", "llama-3.1-8b", "--batch", "4", "--rate", "2/s"), "contradiction", "--batch alone"),
        (("estimate", "train", "llama-3.1-8b", *H100, "--epochs", "3", "--steps", "9"), "contradiction", "--samples"),
        (("recommend", "train", "llama-3.1-8b", "--tokens", "1B", "--steps", "9"), "contradiction", "--steps, --tokens"),
        (("estimate", "train", "resnet50", *H100, "--lora"), "bad-field", "leave it out"),
        (("recommend", "finetune", "resnet50", "--qlora"), "bad-field", "leave it out"),
        (("fit", "resnet50", "--task", "train", "--lora-rank", "8", *H100), "bad-field", "bert-large"),
        (("estimate", "serve", "llama-3.1-8b", *H100, "--out", "0"), "bad-field", "--out 1"),
        (("recommend", "batch", "llama-3.1-8b", "--out", "0"), "bad-field", "--out 1"),
        (("recommend", "serve", "llama-3.1-8b", "--rate", "1", "--percentile", "99.99"), "bad-field", "--percentile up to 99."),
        (("recommend", "train", "resnet50", "--gpus", "10000000"), "bad-span", "1,000,000"),
        (("recommend", "train", "resnet50", "--owned", "99999999xT4"), "bad-field", "999,999"),
        (("buy", "99999999xT4"), "bad-field", "999,999"),
        (("recommend", "train", "resnet50", "--deadline", "0h"), "bad-field", "above 0"),
        (("recommend", "train", "resnet50", "--duration", "999999999d"), "bad-field", "100 years"),
        (("recommend", "train", "resnet50", "--deadline", "9" * 30 + "h"), "bad-duration", "18 digits"),
        (("recommend", "train", "resnet50", "--limit", "most"), "bad-field", "or all"),
        (("estimate", "serve", "llama-3.1-8b", *H100, "--tpot", "9999999s"), "bad-field", "1,000,000s"),
        (("estimate", "serve", "llama-3.1-8b", *H100, "--rate", "9999999/s"), "bad-field", "1,000,000/s"),
        (("estimate", "train", "resnet50", *H100, "--epochs", "1e-30"), "bad-field", "at least 1e-09"),
        (("estimate", "forward", "llama-3.1-8b", *H100, "--seq-in", "7", "--cp", "8"), "bad-field", "at most 7"),
        (("recommend", "serve", ""), "bad-field", "reference mix"),
        (("fit", "/etc/passwd"), "file-unreadable", "config.json"),
        (("buy", "RTX 4090", "--pue", "0.5"), "bad-field", "from 1 to 20"),
        (("buy", "RTX 4090", "--residual", "-0.1"), "bad-field", "from 0 to 1"),
        (("buy", "RTX 4090", "--use", "nan"), "bad-field", "above 0, up to 1"),
    ],
)  # fmt: skip
def test_refused_with_a_hint(argv: tuple[str, ...], kind: str, words: str) -> None:
    reply = call(*argv, "--json")
    assert reply.code == 2, reply.err
    error = reply.json()["error"]
    assert error["kind"] == kind
    assert words in error["hint"] + str(error["choices"])


def test_existing_file_is_not_reported_missing() -> None:
    assert "there is no file" not in call("fit", "/etc/passwd").err


def test_zero_residual_value_is_accepted() -> None:
    assert call("buy", "RTX 4090", "--residual", "0", "--pue", "1").code == 0


def test_steps_with_a_data_set_size_give_the_cost_of_an_epoch() -> None:
    answer = recommend("train", "resnet50", Requirements(gpu="T4"), steps=1000, batch=64, samples=128_000).answer
    assert answer.cost_per_epoch is not None
    assert float(answer.cost_per_epoch.amount) == pytest.approx(2 * float(answer.cost.amount), rel=0.01)


def test_an_echo_of_a_rate_can_be_sent_again() -> None:
    """The reply shows the batch it chose, which the request did not set."""
    request = {"task": "serve", "model": "llama-3.1-8b", "gpu": "H100 SXM", "rate": 1.0}
    echo = estimate(**request).request  # type: ignore[arg-type]
    assert echo["batch"] is not None
    assert next(iter(estimate_requests([json.dumps(echo).encode()]))).error is None
    line = json.dumps(request | {"batch": 4}).encode()
    error = next(iter(estimate_requests([line]))).error
    assert error is not None
    assert error.kind == "contradiction"


def test_list_for_a_single_value_is_an_invalid_line() -> None:
    lines = [{"task": "serve", "model": "llama-3.1-8b", "gpu": "H100 SXM", "batch": one} for one in ([1], {"a": 1}, "1", True, 1)]
    replies = list(estimate_requests(json.dumps(line).encode() for line in lines))
    assert [reply.error.kind if reply.error else "" for reply in replies] == ["bad-field"] * 4 + [""]


def test_a_percentile_beyond_the_requests_simulated() -> None:
    words = ("estimate", "serve", "llama-3.1-8b", *H100, "--rate", "1/s", "--in", "50", "--out", "5", "--tpot", "1s")
    few = call(*words, "--percentile", "99.9", "--count", "500", "--json")
    assert (few.code, few.json()["error"]["kind"]) == (2, "bad-field")
    assert "--count 11112" in few.json()["error"]["hint"]
    alone = call("estimate", "serve", "llama-3.1-8b", *H100, "--percentile", "99", "--json")
    assert any("--ttft or --tpot" in one for one in alone.json()["warnings"])


def test_percentile_with_few_requests_beyond_it_gives_a_warning() -> None:
    argv = ("recommend", "serve", "llama-3.1-8b", "--rate", "1/s", *H100, "--as-of", "2026-10-01")
    assert "p99 is determined by only" in call(*argv, "--percentile", "99").err
    assert "rests on" not in call(*argv).err


def test_history_ends_on_the_requested_day() -> None:
    argv = ("catalog", "history", "--gpu", "H100 SXM", "--as-of")
    rows = call(*argv, "2024-01-05", "--json").json()["history"]
    assert rows
    assert all(row["observed"] <= row["last_observed"] <= "2024-01-05" for row in rows)
    later = call(*argv, "2025-01-05", "--json").json()["history"]
    assert len(later) > len(rows)
    assert any(row["last_observed"] > "2024-01-05" for row in later)
    none = call(*argv, "2020-01-01", "--json")
    assert (none.code, none.json()["error"]["kind"]) == (1, "no-history")
    assert "--as-of" in none.json()["error"]["hint"]


def test_plot_is_written_through_a_symlink(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    (tmp_path / "there").mkdir()
    link, real = tmp_path / "link.svg", tmp_path / "there" / "real.svg"
    link.symlink_to(real)
    assert call("fit", "bert-large", "--gpu", "T4", "--plot", str(link)).code == 0
    assert link.is_symlink()
    assert real.read_text().startswith("<svg")
    assert [one.name for one in real.parent.iterdir()] == ["real.svg"]
    link.unlink()
    link.symlink_to("/dev/null")
    refused = call("fit", "bert-large", "--gpu", "T4", "--plot", str(link))
    assert refused.code == 2
    assert "is not a regular file" in refused.err


def test_owning_is_compared_with_a_recent_rent() -> None:
    """Prices of marketplaces older than a year say nothing, unless there are no others."""
    row = call("buy", "RTX 4090", "--as-of", "2026-11-15", "--json").json()["rows"][0]
    assert row["rent"]["age_days"] <= 365
    bought = call("buy", "RTX 4090", "--provider", "vast", "--as-of", "2026-11-15", "--json").json()["rows"][0]
    assert bought["rent"]["provider"] == "vast"


def test_a_number_of_gpus_that_no_machine_has_is_answered_with_the_nearest() -> None:
    hint = call("recommend", "train", "resnet50", "--gpus", "3", "--gpu", "T4", "--as-of", "2026-10-01", "--json").json()[
        "error"
    ]["hint"]
    assert "--gpus 2" in hint
    assert "--gpus 4" in hint


def test_assumptions_about_billing_and_checkpoints_are_listed() -> None:
    argv = ("recommend", "train", "resnet50", "--gpu", "H100", "--term", "on-demand", "--as-of", "2026-10-01", "--provider")
    unread, read = call(*argv, "cudo").err, call(*argv, "lambda").err
    assert "no billing rules of cudo could be read" in unread
    assert "billing rules" not in read
    assert all("a checkpoint every 1,800 s, which takes 60 s" in answer for answer in (unread, read))


def test_the_same_card_costs_the_same_in_any_currency() -> None:
    dollars, won = (
        call("buy", "RTX 4090", "--currency", code, "--as-of", "2026-10-01", "--json").json()["rows"][0]
        for code in ("USD", "KRW")
    )
    rate = float(won["purchase"]["amount"]) / float(dollars["purchase"]["amount"])
    for name in ("host", "own_per_hour", "rent_per_hour"):
        assert float(won[name]["amount"]) == pytest.approx(rate * float(dollars[name]["amount"]), rel=0.01)


def test_a_rent_counts_the_host_of_a_gpu_that_is_priced_alone() -> None:
    row = call("buy", "P100 PCIe 16GB", "--price", "1000usd", "--as-of", "2026-10-01", "--json").json()["rows"][0]
    assert row["rent"]["includes"] == "gpu"
    whole = float(row["rent"]["price_per_gpu_hour"]["amount"]) + float(row["rent_host"]["amount"])
    assert float(row["rent_per_hour"]["amount"]) == pytest.approx(whole, rel=1e-3)
    words = ("estimate", "train", "resnet50", "--gpu", "T4", "--epochs", "1", "--as-of", "2026-10-01", "--json")
    offer = call(*words).json()["run"]["offer"]
    alone = call("offers", "--gpu", "T4", "--provider", "gcp", "--term", "on-demand", "--as-of", "2026-10-01", "--json").json()
    assert float(offer["price"]["amount"]) > float(alone["offers"][0]["price_per_gpu_hour"]["amount"])  # which has no host


def test_a_run_over_eight_gpus_is_priced_in_machines_of_eight() -> None:
    argv = ("estimate", "train", "llama-3.1-8b", *H100, "--tokens", "1B", "--as-of", "2026-10-01", "--json", "--gpus")
    one, two = call(*argv, "8").json()["run"]["offer"], call(*argv, "16", "--nodes", "2").json()["run"]["offer"]
    assert (one["machines"], two["machines"]) == (1, 2)
    assert (one["instance"], one["price"]) == (two["instance"], two["price"])


def test_limit_within_the_90_percent_range_gives_a_warning() -> None:
    argv = ("recommend", "train", "resnet50", "--epochs", "1", "--gpu", "T4", "--gpus", "1", "--as-of", "2026-10-01")
    run = call(*argv, "--json").json()["answer"]
    hours, cost = (run["run_time"][name] / 3600 for name in ("value", "high")), run["cost"]
    value, high = hours
    near = call(*argv, "--deadline", f"{(value + high) / 2:.4f}h", "--budget", f"{float(cost['high']) * 0.99:.4f}usd").err
    assert "longer than --deadline" in near
    assert "more than --budget" in near
    far = call(*argv, "--deadline", f"{high * 2:.4f}h", "--budget", f"{float(cost['high']) * 2:.4f}usd").err
    assert "at the slow end" not in far
