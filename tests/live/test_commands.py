"""`whichgpu catalog import, export, diff, history, watch, status, quarantine` as users meet them."""

from __future__ import annotations

import csv
import io
import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.surface.cli import assert_refused, assert_refused_json, call
from whichgpu.catalog.live.price_store import open_for_writing, store_fault, store_path

DAY = date.today()


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """Two lists of one cloud, a week apart."""
    folder = tmp_path / "lists"
    folder.mkdir()
    header = "provider,instance,region,gpu,gpus,term,price"
    first, second = (folder / f"colo-{day}.csv" for day in (DAY - timedelta(days=8), DAY - timedelta(days=1)))
    first.write_text(f"{header}\ncolo,one,Seoul,H100 SXM,1,on-demand,2.5\ncolo,two,Seoul,H100 SXM,8,on-demand,20\n")
    second.write_text(f"{header}\ncolo,one,Seoul,H100 SXM,1,on-demand,1.9\ncolo,new,Seoul,L4,1,spot,0.3\n")
    return folder


def imported(path: Path, *more: str) -> None:
    reply = call("catalog", "import", str(path), *more)
    assert reply.code == 0, reply.err


@pytest.fixture
def filled(lists: Path) -> Path:
    first, second = sorted(lists.iterdir())
    lists.joinpath("colo.csv").write_bytes(first.read_bytes())
    imported(lists / "colo.csv", "--date", (DAY - timedelta(days=8)).isoformat())
    lists.joinpath("colo.csv").write_bytes(second.read_bytes())
    imported(lists / "colo.csv", "--date", (DAY - timedelta(days=1)).isoformat())
    return lists


def test_counts_of_an_import_add_up(lists: Path) -> None:
    path = lists / "odd.csv"
    path.write_text("provider,gpu,price\ncolo,L4,0.5\ncolo,L4,0\ncolo,H100,2\n")
    reply = call("catalog", "import", str(path), "--json")
    document = reply.json()
    assert reply.code == 0
    assert (document["prices"], document["kept"], document["quarantined"], document["unknown"]) == (3, 1, 1, 1)
    assert document["reasons"] == {"price-zero": 1}
    assert document["unknown_gpus"] == {"H100": 1}
    words = call("catalog", "import", str(path)).err
    assert "3 prices read: 1 kept, 1 quarantined, 1 of unknown GPUs" in words
    assert "a price of 0" in words
    assert "H100 (1)" in words


def test_quarantined_rows_can_be_listed(lists: Path) -> None:
    path = lists / "odd.csv"
    path.write_text("provider,gpu,price\ncolo,L4,0.5\ncolo,L4,0\n")
    imported(path)
    (row,) = call("catalog", "quarantine", "--json").json()["quarantined"]
    assert (row["reason"], row["provider"], row["price"]) == ("price-zero", "colo", "0")
    assert call("catalog", "quarantine", "--source", "own", "--csv").csv()[1][2] == "price-zero"
    assert call("catalog", "quarantine", "--source", "skypilot").code == 1
    assert_refused(call("catalog", "quarantine", "--source", "skypilt"), 2)


def test_day_of_a_price_list_is_in_its_name_or_a_flag(lists: Path) -> None:
    imported(lists)
    days = {row["content"] for row in call("catalog", "status", "--live", "--json").json()["series"]}
    assert days == {(DAY - timedelta(days=8)).isoformat(), (DAY - timedelta(days=1)).isoformat()}
    assert_refused(call("catalog", "import", str(lists), "--date", "2099-01-01"), 2)


def test_imported_prices_appear_in_offers(filled: Path) -> None:
    offers = [row for row in call("offers", "--gpu", "H100 SXM", "--json").json()["offers"] if row["provider"] == "colo"]
    assert [(row["instance"], row["price"]["amount"], row["source"]) for row in offers] == [("one", "1.9", "own")]
    before = (DAY - timedelta(days=5)).isoformat()
    then = [
        row
        for row in call("offers", "--gpu", "H100 SXM", "--as-of", before, "--json").json()["offers"]
        if row["provider"] == "colo"
    ]
    assert {row["instance"]: row["price"]["amount"] for row in then} == {"one": "2.5", "two": "20"}


def test_an_answer_can_be_had_again_after_a_refresh_of_the_same_day(lists: Path) -> None:
    path, argv = lists / "colo.csv", ("offers", "--gpu", "H100 SXM", "--region", "Seoul", "--json")
    bundled = call(*argv).json()
    assert bundled["snapshot"] is None
    for price, number in (("2.5", 1), ("1.9", 2)):
        path.write_text(f"provider,instance,region,gpu,gpus,term,price\ncolo,one,Seoul,H100 SXM,1,on-demand,{price}\n")
        imported(path)
        now = call(*argv).json()
        assert now["snapshot"] == number
        assert price in {row["price"]["amount"] for row in now["offers"]}
        if number == 1:
            first = now
    assert call(*argv, "--catalog-as-known", "@1").json() == first
    assert call(*argv, "--catalog-as-known", "@0").json() == bundled
    assert call(*argv, "--catalog-as-known", "@2").json() == now
    assert call(*argv, "--catalog-as-known", DAY.isoformat()).json() == now
    for wrong in ("@", "@-1", "@x", "@1.5"):
        assert_refused_json(call(*argv, "--catalog-as-known", wrong), 2)


def test_imported_list_is_found_by_its_own_names(filled: Path) -> None:
    def offered_instances(*argv: str) -> set[tuple[str, str]]:
        reply = call("offers", "--gpu", "H100 SXM", *argv, "--json").json()
        return {(row["provider"], row["instance"]) for row in reply["offers"]}

    assert offered_instances("--provider", "Colo") == {("colo", "one")}
    assert offered_instances("--instance", "ONE") == {("colo", "one")}
    assert (
        ("colo", "one") in offered_instances("--region", "seoul") > {("colo", "one")}
    )  # in addition to the clouds' offers there
    assert call("catalog", "history", "--gpu", "H100 SXM", "--provider", "colo").code == 0
    assert_refused(call("offers", "--provider", "nobody"), 2)
    assert_refused(call("offers", "--instance", "none-such"), 2)


def test_offer_withdrawn_in_the_store_is_not_taken_from_bundled_prices(lists: Path) -> None:
    argv = ["offers", "--instance", "p5.48xlarge", "--region", "us-east-1", "--term", "on-demand", "--provider", "aws", "--json"]
    assert len(call(*argv).json()["offers"]) == 1
    path, header = lists / "aws.csv", "provider,instance,region,gpu,gpus,price"
    other = "aws,p4d.24xlarge,us-east-1,A100 SXM 40GB,8,21.9"
    path.write_text(f"{header}\naws,p5.48xlarge,us-east-1,H100 SXM,8,54.32\n{other}\n")
    imported(path, "--date", (DAY - timedelta(days=2)).isoformat())
    (offer,) = call(*argv).json()["offers"]
    assert (offer["price"]["amount"], offer["source"]) == ("54.32", "own")
    path.write_text(f"{header}\n{other}\n")
    imported(path, "--date", (DAY - timedelta(days=1)).isoformat())
    assert call(*argv).code == 1


def test_status_shows_the_age_of_content(filled: Path) -> None:
    live = call("catalog", "status", "--json").json()["live"]
    (series,) = live["series"]
    assert live["exists"] is True
    assert (series["source"], series["scope"], series["age_days"], series["stale"], series["snapshots"]) == (
        "own",
        "colo",
        1,
        False,
        2,
    )
    assert "1 part of a source" in call("catalog", "status").err
    assert call("catalog", "status", "--live").tsv()[1][:2] == ["own", "colo"]


def test_status_without_a_store_says_how_to_make_one() -> None:
    assert "catalog refresh" in call("catalog", "status").err
    assert call("catalog", "status", "--json").json()["live"]["exists"] is False


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


def test_export_to_stdout_and_to_files(filled: Path, tmp_path: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(call("catalog", "export").out)))
    assert len(lines) == 4
    assert {line["gpu"] for line in lines} == {"h100-sxm", "l4"}
    assert len(json.loads(call("catalog", "export", "--json").out)["offers"]) == 4
    for name in ("out.csv", "out.json"):
        reply = call("catalog", "export", str(tmp_path / name))
        assert (reply.code, reply.out) == (0, "")
        assert "4 prices written" in reply.err
    assert_refused(call("catalog", "export", str(tmp_path / "out.doc")), 2)


def test_names_that_look_like_formulas_leave_through_csv_as_text(tmp_path: Path) -> None:
    instances = ["=1+2", "+cmd", "-1+cmd", "@sum(A1)", "=HYPERLINK(0)", "plain-1"]
    path = tmp_path / "colo.csv"
    path.write_text("provider,instance,region,gpu,price\n" + "".join(f"colo,{name},Seoul,L4,0.5\n" for name in instances))
    imported(path)
    as_text = [name if name == "plain-1" else f"'{name}" for name in instances]
    offers = list(csv.DictReader(io.StringIO(call("offers", "--provider", "colo", "--csv").out)))
    assert sorted(offer["instance"] for offer in offers) == sorted(as_text)
    exported = call("catalog", "export").out
    assert sorted(line["instance"] for line in csv.DictReader(io.StringIO(exported))) == sorted(as_text)
    (tmp_path / "again.csv").write_text(exported)
    imported(tmp_path / "again.csv")
    prices = json.loads(call("catalog", "export", "--json").out)["offers"]
    assert {offer["instance"] for offer in prices} == set(instances)


def test_empty_import_creates_no_store(tmp_path: Path) -> None:
    path = tmp_path / "not-a-list.csv"
    path.write_text("a,b\n1,2\n")
    assert call("catalog", "import", str(path)).code == 3
    store = store_path()
    assert store is not None
    assert not store.exists()


def test_a_source_can_be_forgotten(filled: Path, lists: Path) -> None:
    other = lists / "other.csv"
    other.write_text("provider,gpu,price\ncolo2,L4,0.4\n")
    imported(other)
    reply = call("catalog", "forget", "own/colo")
    assert reply.code == 0
    assert "2 snapshots of own/colo removed, with 3 offers" in reply.err
    assert [(row["scope"], row["last_snapshot"]) for row in call("catalog", "status", "--live", "--json").json()["series"]] == [
        ("other", 3)
    ]
    providers = {row["provider"] for row in call("offers", "--gpu", "L4,H100", "--json").json()["offers"]}
    assert "colo2" in providers
    assert "colo" not in providers
    assert assert_refused_json(call("catalog", "forget", "own/othr", "--json"), 2)["choices"][0] == "own/other"
    assert call("catalog", "forget", "own", "--json").json() == {"forgotten": "own", "snapshots": 1, "offers": 1}
    assert_refused(call("catalog", "forget", "own"), 1)
    imported(filled / "colo.csv")
    assert call("catalog", "watch", "--gpu", "H100", "--below", "2usd/h").code == 0


def test_a_list_with_a_bad_row_keeps_the_others_and_says_why(lists: Path) -> None:
    path = lists / "odd.csv"
    path.write_text("provider,gpu,gpus,price,currency\ncolo,L4,1,0.5,\ncolo,L4,0,1,\ncolo,L4,-1,1,\ncolo,L4,1,9,ZZZ\n")
    document = call("catalog", "import", str(path), "--json").json()
    assert (document["kept"], document["reasons"]) == (1, {"gpus": 2, "currency": 1})
    assert call("offers", "--gpu", "L4").code == 0


@pytest.fixture
def unconvertible(lists: Path) -> Path:
    """A store whose newest row is in a currency without an exchange rate, as if no check had rejected it."""
    path = lists / "odd.csv"
    path.write_text("provider,gpu,price,currency\ncolo,L4,0.5,\ncolo,RTX 4090,9,EUR\n")
    imported(path)
    with open_for_writing() as connection:
        connection.execute("UPDATE offer SET currency = 'ZZZ' WHERE currency = 'EUR'")
    return path


def test_price_that_cannot_be_converted_is_left_out_with_a_warning(unconvertible: Path) -> None:
    for more in ((), ("--currency", "KRW"), ("--group-by", "gpu")):
        reply = call("offers", "--gpu", "L4,RTX 4090", *more)
        assert reply.code == 0, reply.err
        assert "1 offer in ZZZ is left out" in reply.err
        assert "ZZZ" not in reply.out
    document = call("offers", "--gpu", "RTX 4090", "--exchange-rate", "ZZZ=100", "--currency", "USD", "--json").json()
    assert document["without_rate"] == {}
    assert "0.09" in {row["price"]["amount"] for row in document["offers"]}
    assert_refused(call("offers", "--gpu", "RTX 4090", "--provider", "colo"), 1)
    reply = call("catalog", "history", "--gpu", "RTX 4090")
    assert reply.code == 0
    assert "1 price in ZZZ is left out" in reply.err
    assert "9 ZZZ" in call("catalog", "history", "--gpu", "RTX 4090", "--every").out
    assert "--every" in call("catalog", "history", "--gpu", "RTX 4090", "--provider", "colo").err
    reply = call("catalog", "watch", "--below", "1usd/h")
    assert reply.code == 0
    assert "1 price in ZZZ is left out" in reply.err
    assert_refused(call("catalog", "watch", "--below", "1zzz/h"), 2)


def test_a_recommendation_leaves_out_prices_without_an_exchange_rate(unconvertible: Path) -> None:
    argv = ("recommend", "batch", "llama-3.1-8b", "--gpu", "RTX 4090", "--provider", "colo", "--json")
    assert "1 in a currency without an exchange rate for that day" in assert_refused_json(call(*argv), 1)["message"]
    assert call(*argv, "--exchange-rate", "ZZZ=9").json()["candidates"][0]["price"]["amount"] == "1"


def test_a_price_in_dong_that_is_none_never_becomes_the_answer(lists: Path) -> None:
    path = lists / "dong.csv"
    line = "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,1,VND,hour"
    path.write_text(f"provider,instance,region,gpu,gpus,term,price,currency,per\n{line}\n")
    document = call("catalog", "import", str(path), "--json").json()
    assert (document["kept"], document["reasons"]) == (0, {"below-power": 1})
    answer = call("recommend", "serve", "llama-3.1-8b", "--rate", "1/s", "--gpu", "H100 SXM", "--json").json()
    assert all(float(row["price"]["amount"]) > 1 for row in answer["candidates"])


def test_help_of_history_describes_its_own_plot() -> None:
    words = " ".join(call("catalog", "history", "--help").out.split())
    assert "the price history into a file" in words
    assert "memory" not in words


@pytest.mark.parametrize(
    "name", ["refresh", "import", "export", "diff", "history", "watch", "quarantine", "forget", "sources", "status"]
)
def test_every_command_explains_itself(name: str) -> None:
    reply = call("catalog", name, "--help")
    assert reply.code == 0
    assert f"whichgpu catalog {name}" in reply.out
    assert "command." not in reply.out
    assert "option." not in reply.out


def test_an_unknown_sellers_cheapest_offer_is_the_headline_with_a_warning_and_its_source(lists: Path) -> None:
    path = lists / "cheap.csv"
    path.write_text("provider,instance,region,gpu,gpus,term,price\nshady,h100x1,Seoul,H100 SXM,1,on-demand,0.9\n")
    imported(path)
    for words in (
        ["offers", "--gpu", "H100 SXM", "--term", "on-demand"],
        ["recommend", "serve", "llama3.1-8b", "--gpu", "H100 SXM"],
    ):
        reply = call(*words)
        headline = reply.err.splitlines()[0]
        assert "shady h100x1" in headline
        assert "the catalog does not know the seller shady, whose price comes from own alone: verify it" in headline
        document = call(*words, "--json").json()
        assert any("seller shady" in warning for warning in document["warnings"])
        own = next(source for source in document["sources"] if source["id"] == "own")
        assert own["title"] == "Price lists of the user: cheap"


def test_no_warning_and_no_own_source_for_known_sellers(lists: Path) -> None:
    path = lists / "known.csv"
    path.write_text("provider,instance,region,gpu,gpus,term,price\naws,g6.xlarge,us-east-1,L4,1,on-demand,0.8048\n")
    imported(path)
    document = call("offers", "--gpu", "L4", "--provider", "aws", "--term", "on-demand", "--json").json()
    assert document["warnings"] == []
    document = call("offers", "--gpu", "H100 SXM", "--json").json()
    assert "own" not in {source["id"] for source in document["sources"]}


def test_the_users_discounts_are_named_in_sources(lists: Path) -> None:
    path = lists / "mine.toml"
    path.write_text('[discounts]\naws = "12%"\n')
    for words in (["offers", "--gpu", "L4", "--provider", "aws"], ["recommend", "serve", "llama3.1-8b", "--provider", "aws"]):
        document = call(*words, "--prices", str(path), "--json").json()
        assert "prices.toml" in {source["id"] for source in document["sources"]}


def test_accept_keeps_a_quarantined_price(lists: Path) -> None:
    path = lists / "cheap.csv"
    path.write_text("provider,instance,region,gpu,gpus,term,price\nshady,h100x8,Seoul,H100 SXM,8,on-demand,3.5\n")
    assert call("catalog", "import", str(path), "--json").json()["reasons"] == {"one-for-all": 1}
    assert call("catalog", "import", str(path), "--accept", "--json").json()["kept"] == 1


def test_catalog_check_covers_the_users_price_store(tmp_path: Path, filled: Path) -> None:
    path = store_path()
    assert path is not None
    assert store_fault() is None
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    fault = store_fault()
    assert fault is not None
    assert fault[0] == "store-damaged"
    reply = call("catalog", "check", "--json")
    assert reply.code == 3
    assert [row["check"] for row in reply.json()["findings"] if row["key"] == "prices.sqlite3"] == ["store-damaged"]


@pytest.mark.parametrize("place", ["folder", "empty file"])
def test_a_price_store_that_is_a_folder_or_empty_is_a_finding(tmp_path: Path, place: str) -> None:
    assert store_fault(tmp_path) is None
    path = tmp_path / "prices.sqlite3"
    if place == "folder":
        path.mkdir()
    else:
        path.touch()
    fault = store_fault(tmp_path)
    assert fault is not None
    assert fault[0] == ("store-not-a-file" if place == "folder" else "store-empty")
    assert "prices.sqlite3" in str(fault[1])
