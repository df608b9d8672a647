"""Of many offers alike in all but name only the cheapest are read, and the answers are those of the whole store."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.live.source_harness import TODAY
from whichgpu.api.prices import offers as offers_verb
from whichgpu.api.prices.offers import OffersAnswer, OffersQuery, list_offers
from whichgpu.api.prices.store import catalog_forget, catalog_import
from whichgpu.catalog.live import alike
from whichgpu.catalog.live.price_store import open_for_reading, store_path
from whichgpu.catalog.live.stored_offers import cheapest_live_offers, live_offers
from whichgpu.catalog.store import Catalog

KEPT = 5
HEADER = "provider,instance,region,gpu,gpus,term,price,currency"
QUERIES = (
    OffersQuery(gpu="H100 SXM", limit=5),
    OffersQuery(gpu="H100 SXM", limit=3, currency="EUR"),
    OffersQuery(gpu="H100 SXM", limit=5, provider="colo"),
    OffersQuery(gpu="H100 SXM", limit=5, region="Seoul", term="spot"),
    OffersQuery(gpu="L4", limit=5, near="Seoul"),
    OffersQuery(gpu="H100 SXM,L4", group_by="gpu,region", sort="region"),
    OffersQuery(instance="machine-7", limit=5),
    OffersQuery(instance="p5.48xlarge", limit=5),
)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("WHICHGPU_DATA", str(folder))
    monkeypatch.setattr(alike, "MIN_OFFERS", 100)
    monkeypatch.setattr(alike, "KEPT_OFFERS", KEPT)
    monkeypatch.setattr(offers_verb, "KEPT_OFFERS", KEPT)


def price_list(path: Path, seed: int, machines: int = 300) -> Path:
    """Write a list of machines under few names in random places, some of them known to the catalog, at random prices."""
    draw = random.Random(seed)
    rows = [HEADER]
    for _ in range(machines):
        gpu, gpus, low = draw.choice((("H100 SXM", 8, 24.0), ("H100 SXM", 1, 2.5), ("L4", 1, 0.6)))
        provider = draw.choice(("colo", "colo", "aws"))
        in_catalog = provider == "aws" and gpus == 8 and draw.random() < 0.3
        name = "p5.48xlarge" if in_catalog else f"machine-{draw.randrange(machines)}"
        price = low * draw.uniform(1.6 if in_catalog else 1.0, 2.2)
        currency = random.Random(f"{seed} {name}").choice(("USD", "KRW"))  # A list has one currency for a machine.
        amount = f"{price * 1380:.3f}" if currency == "KRW" else f"{price:.5f}"
        region = draw.choice(("us-east-1", "us-west-2")) if provider == "aws" else draw.choice(("Seoul", "Hanoi"))
        rows.append(f"{provider},{name},{region},{gpu},{gpus},{draw.choice(('on-demand', 'spot'))},{amount},{currency}")
    rows.append(f"colo,machine-7,Seoul,L4,1,on-demand,{draw.uniform(1.2, 1.4):.2f},USD")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def answers(catalog: Catalog) -> list[OffersAnswer]:
    return [list_offers(query, TODAY, catalog) for query in QUERIES]


def without_ranks(folder: Path, question: Callable[[], list[OffersAnswer]]) -> list[OffersAnswer]:
    path = store_path(folder)
    assert path is not None
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alike_state SET version = 'other'")
    connection.close()
    return question()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_the_whole_store(seed: int, tmp_path: Path, folder: Path, catalog: Catalog) -> None:
    """Lists supersede each other under other names, in other currencies and on other days, and an offer ends."""
    lists = ((f"a{seed}", 3), (f"b{seed}", 1), (f"a{seed}", 0))  # name of the list, days ago
    for number, (name, days) in enumerate(lists):
        path = price_list(tmp_path / f"{name}.csv", 10 * seed + number)
        day = TODAY - timedelta(days)
        catalog_import(path, catalog=catalog, today=TODAY, observed_on=day, folder=folder, trusting=True)
    stored = cheapest_live_offers(TODAY)
    assert stored.left_out
    assert len(stored.offers) < len(live_offers(TODAY))
    ranked = answers(catalog)
    whole = without_ranks(folder, lambda: answers(catalog))
    for query, one, other in zip(QUERIES, ranked, whole, strict=True):
        assert one == other, query


def test_ranks_follow_the_store(tmp_path: Path, folder: Path, catalog: Catalog) -> None:
    """A snapshot saved without ranking, or a past day, is read whole; forgetting a list ranks again."""
    for number, name in enumerate("ab"):
        path = price_list(tmp_path / f"{name}.csv", number)
        catalog_import(path, catalog=catalog, today=TODAY, observed_on=TODAY, folder=folder, trusting=True)
    before = sum(cheapest_live_offers(TODAY).left_out.values())
    assert before
    assert cheapest_live_offers(TODAY - timedelta(1)).left_out == {}
    assert cheapest_live_offers(TODAY, date.max).left_out == {}
    catalog_forget("own/b", folder)
    after = cheapest_live_offers(TODAY)
    assert 0 < sum(after.left_out.values()) < before
    assert len({one.key for one in after.offers}) + sum(after.left_out.values()) == len({one.key for one in live_offers(TODAY)})


def test_small_stores_have_no_ranks(tmp_path: Path, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "MIN_OFFERS", 10_000)
    catalog_import(price_list(tmp_path / "a.csv", 1), catalog=catalog, today=TODAY, folder=folder, trusting=True)
    with open_for_reading(folder) as connection:
        assert connection is not None
        assert not alike.has_ranks(connection)
    assert cheapest_live_offers(TODAY).left_out == {}


def test_an_import_is_kept_if_its_offers_cannot_be_ranked(
    tmp_path: Path, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alike, "_STEPS", ("INSERT INTO no_such_table VALUES (1)",))
    answer = catalog_import(price_list(tmp_path / "a.csv", 1), catalog=catalog, today=TODAY, folder=folder, trusting=True)
    assert answer.kept
    assert cheapest_live_offers(TODAY).left_out == {}
    assert len(live_offers(TODAY)) > 100


def test_a_recommendation_counts_the_offers_left_out(
    tmp_path: Path, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whichgpu import recommend

    monkeypatch.setattr(alike, "KEPT_OFFERS", 50)
    catalog_import(price_list(tmp_path / "a.csv", 1, 3000), catalog=catalog, today=TODAY, folder=folder, trusting=True)
    question: dict[str, Any] = {"as_of": TODAY.isoformat(), "gpu": "H100 SXM", "provider": "colo"}
    ranked = recommend("serve", "llama-3.1-8b", **question)
    left_out = sum(cheapest_live_offers(TODAY, gpus=frozenset({"h100-sxm"})).left_out.values())
    assert left_out
    assert ranked.rejected.reasons["alike"] == left_out
    without_ranks(folder, list)
    whole = recommend("serve", "llama-3.1-8b", **question)
    assert "alike" not in whole.rejected.reasons
    assert ranked.answer == whole.answer
