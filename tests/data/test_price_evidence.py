"""Our prices against public histories: each agrees, or is listed in `price_disagreements.csv` with the side that is right."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tests.data.price_evidence import Claim, all_claims
from whichgpu.catalog.offer import Observation
from whichgpu.catalog.store import Catalog
from whichgpu.price.asof import price_on_day

LISTED = Path(__file__).parent / "price_disagreements.csv"
TOLERANCE = Decimal("0.002")  # the same price rounded differently

Row = dict[str, str]
Compared = list[tuple[Claim, Decimal | None]]


class Ours:
    """Our own prices by offer and day; a price without a region counts for all regions."""

    def __init__(self, catalog: Catalog) -> None:
        self._runs: dict[tuple[str, str, str, str, str | None], list[Observation]] = defaultdict(list)
        self._machines = {
            (row.provider, name): row.instance for row in catalog.instances for name in (row.instance, *row.aliases)
        }
        for row in catalog.prices():
            for run in row.observations():
                self._runs[run.provider, run.instance, run.region, run.term, run.payment].append(run)

    def price(self, claim: Claim) -> Decimal | None:
        """Our price of that offer on that day; None where we hold there was none."""
        return self._price(claim, claim.region)

    def has_price(self, claim: Claim) -> bool:
        """Whether we have any price of that offer, at any time."""
        return (claim.provider, self._name(claim), claim.region, claim.term, claim.payment) in self._runs

    def _name(self, claim: Claim) -> str:
        return self._machines.get((claim.provider, claim.instance), claim.instance)

    def _price(self, claim: Claim, region: str) -> Decimal | None:
        runs = self._runs[claim.provider, self._name(claim), region, claim.term, claim.payment]
        price = price_on_day(runs, date.fromisoformat(claim.day))
        return None if price is None else price.observation.price


@pytest.fixture(scope="module")
def compared(evidence: Path, catalog: Catalog) -> Compared:
    """Every claim about an offer that we have too, with our price on that day."""
    ours = Ours(catalog)
    return [(claim, ours.price(claim)) for claim in all_claims(evidence / "prices") if ours.has_price(claim)]


@pytest.fixture(scope="module")
def listed() -> list[Row]:
    with LISTED.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def agrees(claim: Claim, ours: Decimal | None) -> bool:
    return ours is not None and abs(claim.price - ours) <= ours * TOLERANCE + claim.slack


def explains(row: Row, claim: Claim) -> bool:
    """Whether a listed disagreement is about this claim; `*` matches anything, also the rest of a name."""
    return (
        row["source"] == claim.source
        and _like(row["machine"], f"{claim.provider}/{claim.instance}")
        and _like(row["region"], claim.region)
        and row["term"] in ("*", claim.term)
        and row["first"] <= claim.day <= row["last"]
    )


def _like(pattern: str, text: str) -> bool:
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


def test_every_claim_agrees_or_is_listed(compared: Compared, listed: list[Row]) -> None:
    differing = [(claim, ours) for claim, ours in compared if not agrees(claim, ours)]
    assert [(claim, ours) for claim, ours in differing if not any(explains(row, claim) for row in listed)] == []


def test_every_listed_disagreement_still_occurs_as_often(compared: Compared, listed: list[Row]) -> None:
    differing = [claim for claim, ours in compared if not agrees(claim, ours)]
    met = Counter(next(i for i, row in enumerate(listed) if explains(row, claim)) for claim in differing)
    assert [(row["machine"], row["claims"], met[i]) for i, row in enumerate(listed) if int(row["claims"]) != met[i]] == []


def test_each_is_listed_with_a_reason_and_none_is_ours_to_correct(listed: list[Row]) -> None:
    assert [row for row in listed if row["side"] != "ours"] == []
    assert [row for row in listed if len(row["why"]) < 20] == []


def test_enough_was_compared(compared: Compared) -> None:
    by_source = Counter(claim.source for claim, _ in compared)
    minimum = {"vantage": 700, "karpenter": 150, "tsaol": 1500, "skypilot": 15000, "fullstack": 50}
    assert {source: n for source, n in by_source.items() if n < minimum[source]} == {}
    assert len({claim.provider for claim, _ in compared}) >= 20
    assert sum(agrees(claim, ours) for claim, ours in compared) / len(compared) > 0.95
