"""`whichgpu catalog diff, history, watch` as users meet them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.live.price_lists import DAY, imported
from tests.surface.cli import assert_refused, call


def test_diff_between_days_and_between_snapshots(filled: Path) -> None:
    days = [(DAY - timedelta(days=number)).isoformat() for number in (5, 0)]
    document = call("catalog", "diff", *days, "--gpu", "H100 SXM", "--json").json()
    changes = {(row["instance"], row["kind"]) for row in document["changes"] if row["provider"] == "colo"}
    assert changes == {("one", "down"), ("two", "gone")}
    document = call("catalog", "diff", "@1", "@2", "--json").json()
    assert {(row["instance"], row["kind"], row["change"]) for row in document["changes"]} == {
        ("one", "down", -0.24),
        ("two", "gone", None),
        ("new", "new", None),
    }
    assert call("catalog", "diff", "@2", "@2").code == 1
    assert "-24%" in call("catalog", "diff", "@1", "@2").out
    for wrong in (("@1", "@99"), ("@x", "@1"), ("@\u00b2", "@1"), ("yesterday", "@1"), ("2026-02-30", "@1")):
        assert_refused(call("catalog", "diff", *wrong), 2)


def test_history_as_table_and_every_price(filled: Path) -> None:
    lowest = [
        row for row in call("catalog", "history", "--gpu", "H100 SXM", "--json").json()["history"] if row["provider"] == "colo"
    ]
    assert [(row["price_per_gpu_hour"]["amount"], row["change"]) for row in lowest] == [("2.5", None), ("1.9", -0.24)]
    every = call("catalog", "history", "--gpu", "H100 SXM", "--every", "--json").json()["history"]
    assert len([row for row in every if row["provider"] == "colo"]) == 3
    assert_refused(call("catalog", "history", "--gpu", "H100 SXM", "--region", "nowhere"), 1)
    assert_refused(call("catalog", "history"), 2)


def test_history_says_the_lowest_then_now_and_the_change() -> None:
    argv = ("catalog", "history", "--gpu", "V100 SXM 16GB", "--provider", "aws", "--term", "on-demand")
    reply = call(*argv, "--json").json()
    (trend,) = reply["trends"]
    then, now = (float(trend[end]["price_per_gpu_hour"]["amount"]) for end in ("first", "last"))
    assert trend["first"]["observed"] == min(row["observed"] for row in reply["history"])
    assert trend["change"] == pytest.approx(now / then - 1, abs=1e-4)
    assert f"the lowest GPU hour was {then:g} USD on {trend['first']['observed']}" in call(*argv).err
    assert call(*argv, "--every", "--json").json()["trends"] == []


def test_history_as_a_chart(filled: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    path = tmp_path / "h100.svg"
    reply = call("catalog", "history", "--gpu", "H100 SXM", "--plot", str(path))
    assert reply.code == 0, reply.err
    assert path.read_text(encoding="utf-8").startswith("<svg")
    assert_refused(call("catalog", "history", "--gpu", "H100", "--plot", "h100.doc"), 2)


def test_history_knows_the_bundled_prices_without_a_store() -> None:
    rows = call("catalog", "history", "--gpu", "V100 SXM 16GB", "--provider", "aws", "--term", "on-demand", "--json").json()[
        "history"
    ]
    assert rows[0]["observed"] <= "2017-12-31"


def test_watch_exits_0_with_the_offers_when_the_condition_holds(filled: Path) -> None:
    reply = call("catalog", "watch", "--gpu", "H100", "--below", "2usd/h")
    assert reply.code == 0
    assert "colo one Seoul" in reply.out
    assert "does not guarantee" in reply.err
    document = call("catalog", "watch", "--gpu", "H100", "--below", "2usd/h", "--json").json()
    assert (document["met"], document["offers"][0]["price_per_gpu_hour"]["amount"]) == (True, "1.9")


def test_watch_otherwise_lists_changes_since_the_last_snapshot(filled: Path) -> None:
    argv = ["catalog", "watch", "--gpu", "H100", "--below", "1usd/h"]
    first = call(*argv)
    assert first.code == 1
    assert "None at or below 1 USD a GPU hour" in first.err
    assert "This is the first check" in first.err
    path = filled / "colo.csv"
    path.write_text("provider,instance,region,gpu,gpus,term,price\ncolo,one,Seoul,H100 SXM,1,on-demand,1.7\n")
    imported(path, "--trust")
    changed = call(*argv, "--json")
    assert changed.code == 1
    assert [(row["kind"], row["after"]["amount"]) for row in changed.json()["changes"]] == [("down", "1.7")]
    again = call(*argv, "--json").json()
    assert (again["changes"], again["first"]) == ([], False)
    assert "0 changes since the last check" in call(*argv).err


def test_watch_without_a_matching_offer_gives_a_hint(filled: Path) -> None:
    reply = call("catalog", "watch", "--gpu", "T4", "--below", "1usd/h")
    assert reply.code == 1
    assert "whichgpu catalog refresh brings those of today" in reply.err


def test_watch_ignores_stale_prices(lists: Path) -> None:
    path = lists / "old.csv"
    path.write_text("provider,gpu,price\ncolo,L4,0.2\n")
    imported(path, "--date", "2025-01-01")
    reply = call("catalog", "watch", "--gpu", "L4", "--below", "1usd/h")
    assert reply.code == 1
    assert "more than 30 days ago" in reply.err
    assert call("catalog", "watch", "--gpu", "L4", "--below", "1usd/h", "--max-age", "3000").code == 0


@pytest.mark.parametrize("below", ["2", "2usd/month", "cheap", "-1usd/h"])
def test_watch_refuses_a_limit_that_is_none(filled: Path, below: str) -> None:
    assert_refused(call("catalog", "watch", "--gpu", "H100", f"--below={below}"), 2)


@pytest.mark.parametrize(
    "command", [["watch", "--gpu", "L4", "--below", "1usd/h"], ["export"], ["quarantine"], ["diff", "@1", "@2"]]
)
def test_without_a_store_the_answer_is_how_to_make_one(command: list[str]) -> None:
    reply = call("catalog", *command)
    assert_refused(reply, 1)
    assert "catalog refresh" in reply.err


def test_help_of_history_describes_its_own_plot() -> None:
    words = " ".join(call("catalog", "history", "--help").out.split())
    assert "the price history into a file" in words
    assert "memory" not in words
