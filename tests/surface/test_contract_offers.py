"""`whichgpu offers` from outside: fields, filters, dates, currencies, forms and exit codes as the contract has them."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.surface.cli import assert_refused, assert_refused_json, call, process, rows, terminal

FIELDS = {
    "provider", "instance", "region", "gpu", "gpus", "term", "payment", "price", "price_per_gpu_hour", "price_month", "upfront",
    "valid_from", "observed_at", "age_days", "confidence", "includes", "exchange_rate", "source",
}  # fmt: skip
DAY = "2019-09-08"
SEOUL = ("offers", "--gpu", "V100", "--provider", "aws", "--region", "Seoul", "--as-of", DAY)


def amounts(offers: list[dict[str, Any]], field: str = "price") -> list[Decimal]:
    return [Decimal(row[field]["amount"]) for row in offers]


def test_the_document_and_its_fields() -> None:
    reply = call("offers", "--gpu", "A100-SXM-80GB", "--json")
    assert (reply.code, reply.err) == (0, "")
    document = reply.json()
    assert set(document) >= {"as_of", "offers"}
    assert document["offers"]
    for offer in document["offers"]:
        assert set(offer) >= FIELDS
        assert offer["gpu"] == "a100-sxm-80gb"
        for name in ("price", "price_per_gpu_hour", "price_month"):
            assert set(offer[name]) == {"amount", "currency"}
            assert isinstance(offer[name]["amount"], str)
        assert offer["confidence"] in ("observed", "bracketed", "carried")
        assert offer["includes"] in ("gpu+host", "gpu")
        assert offer["valid_from"] <= offer["observed_at"] <= document["as_of"]
        assert offer["source"]
        share = Decimal(offer["price"]["amount"]) / Decimal(str(offer["gpus"]))
        assert Decimal(offer["price_per_gpu_hour"]["amount"]) == pytest.approx(share, rel=Decimal("0.00001"))
        assert Decimal(offer["price_month"]["amount"]) == pytest.approx(
            Decimal(offer["price"]["amount"]) * 730, abs=Decimal("0.001")
        )


def test_the_seed_prices_by_day() -> None:
    by_term = {row["term"]: row for row in rows(*SEOUL)}
    assert by_term["on-demand"]["price"] == {"amount": "4.234", "currency": "USD"}
    assert by_term["reserved-3y"]["price"]["amount"] == "1.676"
    assert by_term["reserved-3y"]["payment"] == "all-upfront"
    assert by_term["reserved-3y"]["upfront"]["currency"] == "USD"
    assert by_term["on-demand"]["exchange_rate"] is None


def test_family_means_all_variants_and_a_count_filters_gpus_per_instance() -> None:
    assert {row["gpu"] for row in rows("offers", "--gpu", "A100", "--provider", "azure")} == {
        "a100-pcie-80gb",
        "a100-sxm-40gb",
        "a100-sxm-80gb",
    }
    assert {row["gpus"] for row in rows("offers", "--gpu", "8xA100-SXM-80GB")} == {8}
    assert {row["gpus"] for row in rows("offers", "--gpu", "A100-SXM-80GB:8")} == {8}
    assert {row["instance"] for row in rows("offers", "--gpu", "p4d.24xlarge")} == {"p4d.24xlarge"}
    assert {row["gpu"] for row in rows("offers", "--gpu", "T4,L4", "--provider", "aws")} == {"t4", "l4"}


def test_filters_narrow() -> None:
    offers = rows("offers", "--min-memory", "80GiB", "--provider", "aws,gcp", "--term", "on-demand")
    assert {row["provider"] for row in offers} == {"aws", "gcp"}
    assert {row["term"] for row in offers} == {"on-demand"}
    assert "h100-sxm" in {row["gpu"] for row in offers}
    assert "a100-sxm-40gb" not in {row["gpu"] for row in offers}
    assert {row["region"] for row in rows("offers", "--gpu", "T4", "--region", "us-east-1", "--provider", "aws")} == {"us-east-1"}
    assert {row["gpus"] for row in rows("offers", "--gpu", "T4", "--gpus", "4..8", "--provider", "aws")} <= {4, 8}
    assert {row["instance"] for row in rows("offers", "--instance", "g4dn.xlarge,g5.xlarge")} == {"g4dn.xlarge", "g5.xlarge"}


def test_every_term_has_offers_today_and_can_be_selected() -> None:
    terms = {"on-demand", "spot", "reserved-1y", "reserved-3y", "committed-1y", "committed-3y", "sustained"}
    argv = ("offers", "--gpu", "T4,V100,K80,A100", "--provider", "aws,gcp,azure")
    assert {row["term"] for row in rows(*argv)} == terms
    for term in terms:
        assert {row["term"] for row in rows(*argv, "--term", term)} == {term}


def test_cheapest_gpu_hour_comes_first_unless_sorted_otherwise() -> None:
    ask = ("offers", "--gpu", "T4", "--provider", "aws", "--region", "US")
    prices = amounts(rows(*ask), "price_per_gpu_hour")
    assert prices == sorted(prices)
    prices = amounts(rows(*ask, "--sort", "-price"))
    assert prices == sorted(prices, reverse=True)
    regions = [row["region"] for row in rows("offers", "--gpu", "T4", "--provider", "aws", "--sort", "region")]
    assert regions == sorted(regions)


def test_prices_sort_by_converted_value() -> None:
    """CNY 5.223 is cheaper than USD 0.9; EUR is dearer than its number."""
    offers = rows("offers", "--gpu", "T4", "--provider", "aws", "--term", "on-demand", "--as-of", "2023-03-01", "--sort", "price")
    yuan = next(i for i, row in enumerate(offers) if row["price"]["currency"] == "CNY")
    dollars = next(i for i, row in enumerate(offers) if Decimal(row["price"]["amount"]) > 4 and row["price"]["currency"] == "USD")
    assert yuan < dollars


def test_another_currency_at_the_last_business_days_rate() -> None:
    offers = rows(*SEOUL, "--currency", "KRW", "--term", "on-demand")
    assert offers[0]["price"]["currency"] == "KRW"
    assert offers[0]["exchange_rate"]["date"] == "2019-09-06"
    assert offers[0]["exchange_rate"]["value"] == pytest.approx(1192.27, abs=0.01)
    assert Decimal(offers[0]["price"]["amount"]) == pytest.approx(Decimal("4.234") * Decimal("1192.2735"), rel=Decimal("0.00001"))
    assert offers[0]["listed_price"] == {"amount": "4.234", "currency": "USD"}


def test_a_rate_of_ones_own() -> None:
    offers = rows(*SEOUL, "--currency", "krw", "--exchange-rate", "KRW=1190", "--term", "on-demand")
    assert offers[0]["price"] == {"amount": "5038.46", "currency": "KRW"}
    assert offers[0]["exchange_rate"]["value"] == 1190
    assert rows(*SEOUL, "--currency", "TWD")[0]["exchange_rate"]["date"] == "2019"
    assert rows(*SEOUL, "--currency", "VND")[0]["price"]["currency"] == "VND"


def test_near_a_city() -> None:
    offers = rows("offers", "--gpu", "K80", "--provider", "gcp", "--as-of", DAY, "--near", "Seoul")
    trips = {row["region"]: row["round_trip"] for row in offers}
    assert trips["us-west1"]["basis"] == "measured"
    assert trips["us-west1"]["value"] == pytest.approx(0.245904412)
    assert trips["us-central1"]["basis"] == "modelled"
    assert trips["us-central1"]["low"] < trips["us-central1"]["value"] < trips["us-central1"]["high"]
    near = rows("offers", "--gpu", "H100", "--near", "Seoul", "--max-latency", "50ms")
    assert near
    assert all(row["round_trip"]["value"] <= 0.05 for row in near)


def test_group_by_lists_the_cheapest_of_each_group() -> None:
    every = rows("offers", "--gpu", "H100 SXM", "--term", "on-demand")
    offers = rows("offers", "--gpu", "H100 SXM", "--term", "on-demand", "--group-by", "provider")
    assert sorted(row["provider"] for row in offers) == sorted({row["provider"] for row in every})
    for row in offers:
        group = [other for other in every if other["provider"] == row["provider"]]
        assert row["cheapest_of"] == len(group)
        assert Decimal(row["price_per_gpu_hour"]["amount"]) == min(amounts(group, "price_per_gpu_hour"))
    keys = [(row["gpu"], row["region"]) for row in rows("offers", "--gpu", "T4", "--group-by", "gpu,region")]
    assert len(keys) == len(set(keys))


def test_hours_run_make_a_sustained_discount() -> None:
    ask = ("offers", "--instance", "gcp/n1+1xt4", "--region", "gcp/us-central1", "--term", "sustained", "--as-of", "2023-06-01")
    assert amounts(rows(*ask)) == [Decimal("0.245")]
    assert amounts(rows(*ask, "--hours", "365")) == [Decimal("0.315")]
    assert amounts(rows(*ask, "--hours", "100")) == [Decimal("0.35")]


def test_older_day_never_shows_a_later_price() -> None:
    for day in ("2014-01-01", "2016-12-31", "2019-09-08", "2022-12-31", "2025-06-01"):
        offers = rows("offers", "--provider", "aws", "--as-of", day)
        assert all(row["valid_from"] <= day and row["observed_at"] <= day for row in offers)
        assert all(row["age_days"] >= 0 for row in offers)
    ask = ("offers", "--instance", "p5.48xlarge", "--region", "us-east-1", "--term", "on-demand", "--as-of")
    assert amounts(rows(*ask, "2025-06-01")) == [Decimal("98.32")]
    assert amounts(rows(*ask, "2025-06-05")) == [Decimal("55.04")]


def test_a_machine_withdrawn_is_offered_no_longer() -> None:
    assert rows("offers", "--instance", "p2.xlarge", "--as-of", "2024-01-01")
    assert_refused(call("offers", "--instance", "p2.xlarge", "--as-of", "2025-12-01"), 1)


def test_stale_prices_are_marked_on_stderr_and_in_the_table() -> None:
    reply = call("offers", "--gpu", "K80", "--provider", "gcp", "--as-of", "2018-06-01")
    assert "more than 30 days" in reply.err
    assert "not seen for" in reply.out
    fresh = call(*SEOUL)
    assert "more than 30 days" not in fresh.err


def test_only_prices_recorded_by_that_day() -> None:
    assert_refused(call("offers", "--gpu", "T4", "--catalog-as-known", "2020-01-01"), 1)
    assert rows("offers", "--gpu", "T4", "--catalog-as-known", "2026-11-15", "--as-of", "2026-11-15")


def test_forms() -> None:
    table = call(*SEOUL).tsv()
    assert len(table) == 3
    assert all(len(line) == len(table[0]) for line in table)
    assert any("4.234 USD" in cell for cell in table[2])
    cells = call(*SEOUL, "--csv").csv()
    assert {"provider", "instance", "price.amount", "price.currency", "observed_at", "source"} <= set(cells[0])
    marked = call(*SEOUL, "--markdown").markdown()
    assert marked[0] == table[0]
    month = call(*SEOUL, "--per", "hour,month")
    assert "3,090.82 USD" in month.out
    assert "730 hours" in month.err
    assert call(*SEOUL, "--columns", "instance,price.amount").tsv()[0] == ["instance", "price.amount"]


def test_every_row_of_a_table_carries_its_day_and_source() -> None:
    table = call("offers", "--gpu", "T4", "--provider", "aws,gcp").tsv()
    date_column, source = table[0].index("price seen"), table[0].index("source")
    assert all(line[date_column][:2] == "20" and line[source] for line in table[1:])


def test_empty_name_is_an_error() -> None:
    assert call("offers", "--gpu", "").code == 2
    assert call("offers", "--region", " , ").code == 2


def test_words_on_stderr_data_on_stdout() -> None:
    reply = call(*SEOUL)
    assert reply.err.splitlines()[0].startswith("2 offers as of 2019-09-08")
    assert "Sources:" in reply.err
    assert "Sources" not in reply.out


def test_terminal_table_is_not_truncated() -> None:
    reply = terminal(*SEOUL, env={"COLUMNS": "160"})
    assert reply.code == 0
    assert "4.234 USD" in reply.out
    assert "…" not in reply.out


@pytest.mark.parametrize(
    ("args", "kind", "choice"),
    [
        (("--gpu", "H10"), "unknown-gpu", "H100"),
        (("--provider", "amazone"), "unknown-provider", "Amazon Web Services"),
        (("--region", "Seol"), "unknown-region", "Seoul"),
        (("--term", "ondemnd"), "unknown-term", "on-demand"),
        (("--near", "Seol"), "unknown-city", "Seoul"),
        (("--currency", "KWR"), "unknown-currency", "KRW"),
        (("--group-by", "gpuu"), "unknown-group", "gpu"),
        (("--per", "day"), "unknown-period", "hour"),
        (("--sort", "prize"), "unknown-field", "price"),
        (("--exchange-rate", "KRW"), "bad-exchange-rate", None),
        (("--hours", "800"), "bad-hours", None),
        (("--max-latency", "50ms"), "no-near", None),
        (("--min-memory", "80"), "bad-size", None),
        (("--near", "95,10"), "bad-coordinates", None),
        (("--as-of", "2099"), "date-in-future", None),
    ],
)
def test_wrong_words_are_exit_2_with_the_nearest(args: tuple[str, ...], kind: str, choice: str | None) -> None:
    assert_refused(call("offers", *args), 2)
    error = assert_refused_json(call("offers", *args, "--json"), 2)
    assert error["kind"] == kind
    if choice:
        assert choice in error["choices"]


def test_no_matching_offer_exits_1_with_the_count_per_filter() -> None:
    reply = call("offers", "--gpu", "H100", "--provider", "ibm")
    assert_refused(reply, 1)
    assert "--provider" in reply.err
    assert assert_refused_json(call("offers", "--gpu", "H100", "--as-of", "2015-01-01", "--json"), 1)["kind"] == "no-offer"
    assert_refused(call("offers", "--gpu", "T4", "--currency", "RUB"), 1)


def test_help_names_every_option() -> None:
    text = call("offers", "--help").out
    for name in "gpu min-memory provider region near max-latency term currency exchange-rate per sort group-by as-of".split():
        assert f"--{name}" in text


def test_own_terms_are_marked_as_own(tmp_path: Path) -> None:
    own = tmp_path / "prices.toml"
    own.write_text(
        '[discounts]\naws = "10%"\n[[owned]]\nname = "lab"\ngpu = "T4"\ngpus = 4\ncost = "0.40 usd/h"\n', encoding="utf-8"
    )
    offers = rows("offers", "--gpu", "T4", "--overlay", str(own), "--as-of", "2026-11-15", "--term", "on-demand,owned")
    mine = next(row for row in offers if row["standing"] == "owned")
    assert (mine["price"]["amount"], mine["gpus"]) == ("0.4", 4)
    cheap = next(row for row in offers if row["instance"] == "g4dn.xlarge" and row["region"] == "us-east-1")
    assert cheap["standing"] == "discounted"
    assert Decimal(cheap["price"]["amount"]) == Decimal("0.4734")
    assert cheap["listed_price"]["amount"] == "0.526"
    assert "your 10% off" in call("offers", "--gpu", "T4", "--overlay", str(own), "--provider", "aws").out


def test_as_a_process_it_answers_the_same(tmp_path: Path) -> None:
    reply = process(*SEOUL, "--json", cwd=tmp_path)
    assert reply.code == 0
    assert [row["price"]["amount"] for row in reply.json()["offers"]] == ["1.676", "4.234"]


def test_a_limit_keeps_the_first_and_says_how_many_there_are() -> None:
    whole = call("offers", "--gpu", "T4", "--json").json()
    part = call("offers", "--gpu", "T4", "--limit", "3", "--json").json()
    assert part["offers"] == whole["offers"][:3]
    assert part["matching"] == whole["matching"] == len(whole["offers"]) > 40
    reply = call("offers", "--gpu", "T4", "--limit", "3")
    assert len(reply.out.splitlines()) == 4
    assert f"Showing the first 3 of {part['matching']}" in reply.err


def test_terminal_shows_one_page_and_a_pipe_all_rows() -> None:
    argv = ("offers", "--gpu", "T4", "--provider", "aws,azure")
    wide = {"COLUMNS": "250", "NO_COLOR": "1"}
    there = len(rows(*argv))
    assert len(call(*argv).out.splitlines()) == 1 + there > 41
    assert len(re.findall(r"\dx T4\b", terminal(*argv, env=wide).out)) == 40
    assert len(re.findall(r"\dx T4\b", terminal(*argv, "--limit", "all", env=wide).out)) == there


@pytest.mark.parametrize("limit", ["0", "-3", "some", "1.5", "٣", ""])
def test_a_limit_that_is_no_number_of_rows_is_refused(limit: str) -> None:
    assert_refused(call("offers", "--gpu", "T4", "--limit", limit), 2)


def test_day_before_all_prices_is_reported() -> None:
    reply = call("offers", "--gpu", "H100", "--as-of", "2010-01-01")
    assert_refused(reply, 1)
    assert "no such price is known as of 2010-01-01" in reply.err


def test_many_sources_are_cut_short_in_words_and_whole_in_json() -> None:
    reply = call("offers", "--gpu", "H100", "--near", "Seoul")
    lines = reply.err.partition("Sources:")[2].splitlines()
    sources = call("offers", "--gpu", "H100", "--near", "Seoul", "--json").json()["sources"]
    assert len(sources) > 8
    assert sum("http" in line for line in lines) == 8
    assert f"and {len(sources) - 8} more" in lines[-1]


def first_line(*argv: str) -> str:
    reply = call("offers", *argv)
    assert reply.code == 0, reply.err
    return reply.err.splitlines()[0]


def test_first_sentence_has_the_date_of_its_price() -> None:
    line = first_line("--gpu", "V100", "--provider", "aws", "--region", "Seoul", "--as-of", DAY, "--term", "on-demand")
    assert re.search(r"4\.234 USD \(.*; (last )?seen 20\d\d-\d\d(-\d\d)?", line), line


def test_first_sentence_says_that_all_prices_are_stale() -> None:
    line = first_line("--gpu", "H100", "--provider", "gcp", "--as-of", "2026-11-15")
    assert re.search(r"last seen 2026-\d\d-\d\d, \d+ days before", line), line
    assert "None was seen in the last 30 days." in line


def test_near_sorts_by_price_then_distance_and_notes_it() -> None:
    argv = ("--gpu", "H100", "--near", "Seoul", "--provider", "aws,gcp", "--as-of", "2026-08-23")
    document = call("offers", *argv, "--json").json()
    each = [
        (Decimal(row["price_per_gpu_hour"]["amount"]), (row["round_trip"] or {"value": 9e9})["value"])
        for row in document["offers"]
    ]
    assert {row["price_per_gpu_hour"]["currency"] for row in document["offers"]} == {"USD"}
    assert each == sorted(each)
    assert len({price for price, _ in each}) < len(each)  # there are ties
    assert document["nearest"]["round_trip"]["value"] == min(trip for _, trip in each)
    reply = call("offers", *argv)
    assert "--max-latency" in reply.err
    assert "The nearest is" in reply.err
    bounded = call("offers", *argv, "--max-latency", "50ms").err
    assert "ms round trip from Seoul" in bounded.splitlines()[0]
    assert "Sorted by price, not by distance" not in bounded
    sorted_ = [row["round_trip"]["value"] for row in rows("offers", *argv, "--sort", "round_trip") if row["round_trip"]]
    assert sorted_ == sorted(sorted_)


@pytest.mark.parametrize(
    ("more", "unused"),
    [((), ["KRW"]), (("--currency", "EUR"), ["KRW"]), (("--currency", "KRW"), []), (("--currency", "krw"), [])],
)
def test_exchange_rate_that_converts_nothing_is_reported(more: tuple[str, ...], unused: list[str]) -> None:
    argv = ("offers", "--gpu", "L4", "--exchange-rate", "KRW=1190", *more)
    assert call(*argv, "--json").json()["unused_rates"] == unused
    assert ("The exchange rate of KRW converted nothing" in call(*argv).err) is bool(unused)


def test_the_cheapest_is_named_in_any_order_and_with_its_age() -> None:
    plain = call("offers", "--gpu", "A100", "--limit", "1", "--as-of", "2026-11-15").err.splitlines()[0]
    for sort in ("price", "-price", "region"):
        message = call("offers", "--gpu", "A100", "--limit", "1", "--as-of", "2026-11-15", "--sort", sort).err.splitlines()[0]
        assert message == plain
    assert "the cheapest per GPU hour is" in plain
    assert "days before" in plain
    assert re.search(r"None was seen in the last 30 days; of those seen in the last \d+ days the cheapest is", plain)
    reply = call("offers", "--gpu", "A100", "--sort", "-price", "--json").json()
    assert float(reply["cheapest"]["price_per_gpu_hour"]["amount"]) <= float(reply["recent"]["price_per_gpu_hour"]["amount"])


def test_synonym_of_offers_suggests_the_command() -> None:
    message = call("prices", "H100").err
    assert "whichgpu offers" in message


def test_excluded_providers_are_left_out_of_offers_and_recommendations() -> None:
    providers = {row["provider"] for row in rows("offers", "--gpu", "H100", "--limit", "all")}
    remaining = {row["provider"] for row in rows("offers", "--gpu", "H100", "--limit", "all", "--exclude-provider", "aws,runpod")}
    assert {"aws", "runpod"} <= providers
    assert remaining == providers - {"aws", "runpod"}
    answer = call("recommend", "train", "resnet50", "--exclude-provider", "aws", "--json").json()
    assert answer["answer"]["provider"] != "aws"
    assert answer["rejected"]["reasons"]["exclude-provider"] > 0
    assert_refused(call("offers", "--gpu", "H100", "--exclude-provider", "nosuch"), 2)
