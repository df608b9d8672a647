"""Test harness: a price store and requests of sources to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from tests.live import answers
from tests.live.server import Answer, ReceivedRequest, Server
from whichgpu.catalog.live.price_store import open_for_reading
from whichgpu.catalog.live.queries import OfferQuery, offers_on, quarantined_rows
from whichgpu.catalog.live.refresh import RefreshOutcome, refresh, select_sources
from whichgpu.catalog.live.rows import PriceSource
from whichgpu.catalog.live.sources import source_names
from whichgpu.catalog.offer import Observation
from whichgpu.catalog.store import Catalog

TODAY = date(2026, 11, 15)
NO_ANSWERS = {
    "gone": Answer(404),
    "failing": Answer(500),
    "busy": Answer(429, b"", {"Retry-After": "1"}),
    "wrong-types": Answer(body=b'{"Items": 7, "skus": "x", "data": 5, "offers": "none", "regions": [1]}'),
    "a-list": Answer(body=b'[1, "two", null]'),
    "elsewhere": Answer(302, b"", {"Location": "file:///etc/passwd"}),
    "binary": Answer(body=b"\xff\xfe\x00 not text"),
    "nested": Answer(body=b"{" * 5000),
    "truncated": Answer(body=b"half", length=10_000),
    "endless": Answer(body=b"{", endless=True),
}


class SourceHarness:
    """A price store, and requests of sources to it."""

    def __init__(self, catalog: Catalog, folder: Path, server: Server) -> None:
        self.catalog, self.folder, self.server = catalog, folder, server
        self.keys = {"GOOGLE_API_KEY": "google-key", "LAMBDA_API_KEY": "lambda-key"}
        for name in source_names():
            self.keys[f"WHICHGPU_URL_{name.upper()}"] = f"{server.url}/{name}"

    def refresh(self, *names: str, day: date = TODAY, **settings: object) -> tuple[RefreshOutcome, ...]:
        chosen: Sequence[PriceSource] = select_sources(names, self.keys)
        return refresh(chosen, self.catalog, day, folder=self.folder, keys=self.keys, **settings)  # type: ignore[arg-type]

    def offers(self, day: date | None = None) -> list[Observation]:
        with open_for_reading(self.folder) as connection:
            return [] if connection is None else offers_on(connection, day, None, OfferQuery())

    def refused(self) -> dict[str, int]:
        with open_for_reading(self.folder) as connection:
            rows = [] if connection is None else quarantined_rows(connection)
        return {reason: sum(row["reason"] == reason for row in rows) for reason in {row["reason"] for row in rows}}


def only(harness: SourceHarness, **fields: object) -> Observation:
    offers = [offer for offer in harness.offers() if all(getattr(offer, name) == value for name, value in fields.items())]
    assert len(offers) == 1, offers
    return offers[0]


def good(outcome: RefreshOutcome) -> bool:
    for summary in outcome.batches:
        assert summary.prices == summary.kept + summary.quarantined + summary.unknown
    return not outcome.problems


def kinds(outcome: RefreshOutcome) -> set[str]:
    return {problem.kind for problem in outcome.problems}


def serve_azure(server: Server, *pages: list[object]) -> None:
    def route(request: ReceivedRequest) -> Answer:
        number = int(request.query.partition("skip=")[2] or 0)
        more = f"{server.url}/azure?skip={number + 1}" if number + 1 < len(pages) else None
        return Answer(body=answers.dumped(answers.azure_page(*pages[number], next=more)))

    server.on("/azure", route)
