"""`whichgpu catalog import, export, status, quarantine, forget, check` as users meet them."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.live.price_lists import DAY, imported
from tests.surface.cli import assert_refused, assert_refused_json, call
from whichgpu.catalog.live.price_store import store_fault, store_path


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


@pytest.mark.parametrize(
    "name", ["refresh", "import", "export", "diff", "history", "watch", "quarantine", "forget", "sources", "status"]
)
def test_every_command_explains_itself(name: str) -> None:
    reply = call("catalog", name, "--help")
    assert reply.code == 0
    assert f"whichgpu catalog {name}" in reply.out
    assert "command." not in reply.out
    assert "option." not in reply.out


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
