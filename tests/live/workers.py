"""Run as a process of its own: refreshes that are killed, and refreshes concurrent with readers.

It forks from one warmed process without threads, so that a kill falls into the work and not into the start of Python.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

from whichgpu.catalog.live.price_store import open_for_reading
from whichgpu.catalog.live.queries import OfferQuery, offers_on
from whichgpu.catalog.live.refresh import refresh
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts, SourceRequest
from whichgpu.catalog.store import Catalog

TODAY = date(2026, 11, 15)
OFFERS = 1500


class Flip:
    """A source whose every offer costs what the server says, another price at each request."""

    key = None
    heavy = False

    def __init__(self, url: str, name: str = "flip") -> None:
        self.name = name
        self._url = url

    def batches(self, source_request: SourceRequest) -> Iterator[PriceBatch]:
        price = Decimal(source_request.client.get(self._url, conditional=False).bytes().decode())
        rows = (
            OfferRow(self.name, f"machine-{number}", "north", "L4", 1.0, None, "on-demand", price) for number in range(OFFERS)
        )
        yield PriceBatch(self.name, "all", rows, source_request.today, read=ReadCounts(OFFERS))


def store_state(folder: Path) -> tuple[str, int, int]:
    """The one price all offers have, how many there are, and how many snapshots there were; wrong if they differ."""
    with open_for_reading(folder) as connection:
        if connection is None:
            return "none", 0, 0
        offers = offers_on(connection, None, None, OfferQuery(provider="flip"))
        prices = {str(offer.price) for offer in offers}
        check = connection.execute("PRAGMA integrity_check").fetchone()[0]
        looks = connection.execute("SELECT count(*) FROM batch").fetchone()[0]
    if check != "ok" or len(prices) > 1 or len(offers) not in (0, OFFERS):
        return f"wrong: {check} {sorted(prices)} {len(offers)}", len(offers), looks
    return next(iter(prices), "none"), len(offers), looks


def once(catalog: Catalog, url: str, folder: Path, name: str = "flip") -> int:
    """One refresh in a child that ends by itself; its exit code."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    (outcome,) = refresh([Flip(url, name)], catalog, TODAY, folder=folder, keys={})
    os._exit(1 if outcome.problems else 0)


def killed(url: str, folder: Path, times: int, seed: int) -> None:
    """Refreshes, each killed at a random moment; what the store holds after each, one line of JSON."""
    catalog, chance = _warmed(), random.Random(seed)
    assert once(catalog, url, folder) == 0
    began = time.monotonic()
    assert once(catalog, url, folder) == 0
    length = time.monotonic() - began
    for _ in range(times):
        before = store_state(folder)
        pid = os.fork()
        if pid == 0:
            refresh([Flip(url)], catalog, TODAY, folder=folder, keys={})
            os._exit(0)
        time.sleep(chance.uniform(0, length))
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        after = store_state(folder)
        again = once(catalog, url, folder)
        final = store_state(folder)
        line = {"killed": os.WIFSIGNALED(status), "before": before, "after": after, "again": again, "final": final}
        print(json.dumps(line), flush=True)


def together(url: str, folder: Path, writers: int, rounds: int) -> None:
    """Writers of one series and of their own, with concurrent readers."""
    catalog = _warmed()
    assert once(catalog, url, folder) == 0
    children = []
    for number in range(writers):
        pid = os.fork()
        if pid == 0:
            bad = 0
            for _ in range(rounds):
                sources = [Flip(url), Flip(url, f"own{number}")]
                bad += sum(bool(outcome.problems) for outcome in refresh(sources, catalog, TODAY, folder=folder, keys={}))
            os._exit(min(bad, 100))
        children.append(pid)
    looked, wrong = 0, []
    running = set(children)
    codes = []
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            running.discard(pid)
            codes.append(os.waitstatus_to_exitcode(status))
        price, count, _ = store_state(folder)
        looked += 1
        if price.startswith("wrong") or count != OFFERS:
            wrong.append(price)
    with open_for_reading(folder) as connection:
        assert connection is not None
        own = connection.execute("SELECT count(DISTINCT provider), count(*) FROM offer WHERE provider LIKE 'own%'").fetchone()
        looks = connection.execute("SELECT count(*) FROM batch").fetchone()[0]
    print(
        json.dumps({"codes": codes, "looked": looked, "wrong": wrong, "own": own, "looks": looks, "final": store_state(folder)})
    )


def _warmed() -> Catalog:
    import httpx  # noqa: F401 - loaded before any child is made

    catalog = Catalog()
    assert catalog.instances
    assert catalog.gpu_by_id
    return catalog


if __name__ == "__main__":
    task, url, folder, *numbers = sys.argv[1:]
    {"killed": killed, "together": together}[task](url, Path(folder), *map(int, numbers))
