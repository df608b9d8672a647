"""Imported prices in offers and recommendations: currencies, sellers, discounts and withdrawn offers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.live.price_lists import DAY, imported
from tests.surface.cli import assert_refused, assert_refused_json, call
from whichgpu.catalog.live.price_store import open_for_writing


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


def test_names_in_another_case_are_those_of_the_catalog_and_counts_that_contradict_each_other_are_quarantined(
    lists: Path,
) -> None:
    path = lists / "names.csv"
    rows = (
        "AWS,P5.48xlarge,US-East-1,H100 SXM,8,on-demand,42,USD,hour",
        "Lambda,gpu_8x_h100_sxm5,us-east-1,8xH100 SXM,,on-demand,22,USD,hour",
        "AWS,p4d.24xlarge,us-east-1,H100 SXM,8,on-demand,25,USD,hour",
        "colo,x1,Seoul,4xH100 SXM,8,on-demand,24,USD,hour",
        "colo,8xH100,Seoul,H100 SXM,4,on-demand,12,USD,hour",
        "colo,x2,Seoul,H100 SXM,8.5,on-demand,24,USD,hour",
        "colo,x3,Seoul,H100 SXM,8,on-demand,20 eur/h,USD,hour",
        "colo,x4,Seoul,H100 SXM,8,on-demand,20 usd/h,,month",
        "colo,x5,Seoul,9999999xH100 SXM,8,on-demand,20,USD,hour",
        "colo,,Seoul,4xH100 SXM,,on-demand,3,USD,gpu-hour",
        "Colo,x7,Seoul,H100 SXM,8,on-demand,21,USD,hour",
    )
    path.write_text("\n".join(("provider,instance,region,gpu,gpus,term,price,currency,per", *rows)) + "\n")
    document = call("catalog", "import", str(path), "--json").json()
    assert document["kept"] == 4
    assert document["reasons"] == {"other-gpu": 1, "count": 2, "gpus": 1, "malformed": 3}
    words = ["offers", "--gpu", "H100 SXM", "--term", "on-demand", "--json"]
    offers = call(*words, "--provider", "AWS", "--region", "us-east-1", "--instance", "p5.48xlarge").json()["offers"]
    assert [(offer["provider"], offer["instance"], offer["price"]["amount"]) for offer in offers] == [
        ("aws", "p5.48xlarge", "42")
    ]
    colo = call(*words, "--provider", "COLO").json()["offers"]
    assert {(offer["instance"], offer["gpus"], offer["price"]["amount"]) for offer in colo} == {
        ("4x H100 SXM", 4, "12"),
        ("x7", 8, "21"),
    }
    assert "22" in {offer["price"]["amount"] for offer in call(*words, "--provider", "Lambda").json()["offers"]}


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
