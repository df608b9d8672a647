"""Observed prices, and SkyPilot's price history as such observations."""

from __future__ import annotations

import csv
import gzip
import io
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import msgspec

Row = dict[str, str]
Key = tuple[str, str, str, str]  # instance, accelerator and count (where there is no instance), region


class Observation(msgspec.Struct, frozen=True):
    """A price of an offer from the first to the last day it was seen; `ended` is the first day it was not."""

    provider: str
    instance: str
    region: str
    term: str
    payment: str
    price: Decimal
    first: str
    last: str
    ended: str
    source: str
    currency: str = "USD"
    includes: str = "gpu+host"
    gpu: str = ""  # only if instances.csv has no such instance
    gpus: str = ""

    @property
    def offer(self) -> tuple[str, ...]:
        """Fields that identify the offer."""
        return (self.provider, self.instance, self.region, self.term, self.payment, self.currency, self.includes)


def table(path: Path) -> list[Row]:
    """Rows of a CSV file, compressed or not."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


class Sky:
    """SkyPilot's catalog: monthly changes, the period each offer was listed, and the newest files."""

    NEWEST = "2026-08-22"

    def __init__(self, prices: Path) -> None:
        self._prices = prices
        self.swapped = 0
        self.changes: dict[str, dict[Key, list[Row]]] = defaultdict(lambda: defaultdict(list))
        self.named: dict[str, dict[Key, tuple[str, str]]] = defaultdict(dict)  # accelerator and count as last stated
        for row in table(prices / "skypilot_gpu_price_history_2021_2026.csv"):
            key = _key(row["instance_type"], row["accelerator"], row["count"], row["region"])
            if row["cloud"] == "runpod" and _is_higher(row["spot_price_min"], row["price"]):
                row["price"], row["spot_price_min"] = row["spot_price_min"], row["price"]  # The columns are swapped.
                self.swapped += 1
            self.changes[row["cloud"]][key].append(row)
            self.named[row["cloud"]][key] = row["accelerator"], f"{float(row['count'] or 0):g}"
        self.listed: dict[str, dict[Key, str]] = defaultdict(dict)
        for row in table(prices / "skypilot_gpu_offer_first_last_seen.csv"):
            key = _key(row["instance_type"], row["accelerator"], row["count"], row["region"])
            self.listed[row["cloud"]][key] = max(row["last_seen"], self.listed[row["cloud"]].get(key, ""))

    def newest(self, cloud: str) -> list[Row]:
        """Rows of a cloud's newest file."""
        folder = self._prices / f"skypilot_catalog_{self.NEWEST}"
        path = folder / f"{cloud}.csv"
        return table(path if path.exists() else folder / f"{cloud}.csv.gz")

    def newest_lowest(self, cloud: str) -> dict[Key, tuple[str, str]]:
        """Lowest price and lowest spot price over the zones of each offer in the newest file."""
        lowest_by_key: dict[Key, tuple[str, str]] = {}
        for row in self.newest(cloud):
            key = _key(row["InstanceType"], row["AcceleratorName"], row["AcceleratorCount"], row["Region"])
            have = lowest_by_key.get(key, ("", ""))
            lowest_by_key[key] = (lowest(have[0], row["Price"]), lowest(have[1], row["SpotPrice"]))
        return lowest_by_key

    def days(self, cloud: str) -> list[str]:
        """Days on which an offer of a cloud changed or ended."""
        changed = {row["as_of"] for rows in self.changes[cloud].values() for row in rows}
        return sorted(changed | set(self.listed[cloud].values()))

    def runs(self, cloud: str, column: str, live: bool) -> Iterator[tuple[Key, str, str, str, str]]:
        """Yield the price intervals of each offer: key, price, first and last day seen, and the day it ended.

        If a cloud's file is downloaded every month (`live`), an unchanged price was seen on every day and in the newest file;
        otherwise only up to the day anything in the file last changed.
        """
        days = self.days(cloud)
        last_change = max(row["as_of"] for rows in self.changes[cloud].values() for row in rows)
        newest = self.newest_lowest(cloud) if live else {}
        for key, rows in self.changes[cloud].items():
            runs: list[list[str]] = []
            for row in rows:
                price = _plain(row[column])
                if runs and runs[-1][0] == price:
                    continue
                runs.append([price, row["as_of"], ""])
            until = self.listed[cloud].get(key, rows[-1]["as_of"])
            if not live:
                until = max(min(until, last_change), rows[-1]["as_of"])
            gone = next((day for day in days if day > self.listed[cloud].get(key, until)), "")
            for index, run in enumerate(runs):
                following = runs[index + 1][1] if index + 1 < len(runs) else None
                run[2] = days[bisect_left(days, following) - 1] if following else until
            if live:
                now = _plain(newest[key][0 if column == "price" else 1]) if key in newest else ""
                gone = "" if now else gone or self.NEWEST
                if not now:
                    pass
                elif runs[-1][0] and same(Decimal(now), Decimal(runs[-1][0])):
                    runs[-1][0], runs[-1][2] = finer(runs[-1][0], now), self.NEWEST
                else:
                    runs.append([now, self.NEWEST, self.NEWEST])
            for index, (price, first, last) in enumerate(runs):
                ended = gone if index + 1 == len(runs) else runs[index + 1][1] if not runs[index + 1][0] else ""
                if price and Decimal(price) > 0:
                    yield key, price, first, last, ended

    def at(self, cloud: str, chosen: list[str], column: str) -> Iterator[tuple[Key, str, str, str, str]]:
        """Yield prices on chosen days, equal neighbours merged: key, price, first and last of those days, and the end."""
        days, newest = self.days(cloud), self.newest_lowest(cloud)
        for key, rows in self.changes[cloud].items():
            until = self.listed[cloud].get(key, rows[-1]["as_of"])
            gone = "" if key in newest else next((day for day in days if day > until), self.NEWEST)
            dates = [row["as_of"] for row in rows]
            run: list[str] | None = None
            for day in chosen:
                if not dates[0] <= day <= until:
                    continue
                price = _plain(rows[bisect_right(dates, day) - 1][column])
                if run and run[0] == price:
                    run[2] = day
                    continue
                if run and run[0]:
                    yield key, run[0], run[1], run[2], ""
                run = [price, day, day]
            if run and run[0]:
                yield key, run[0], run[1], run[2], gone


def _key(instance: str, accelerator: str, count: str, region: str) -> Key:
    """Key of an offer: the instance, since the name of its accelerator changes from month to month."""
    return (instance, "", "", region) if instance else ("", accelerator, f"{float(count or 0):g}", region)


def same(a: Decimal, b: Decimal) -> bool:
    """Whether two prices are the same up to rounding.

    >>> same(Decimal("21.9576"), Decimal("21.957642")), same(Decimal("2.934"), Decimal("2.933908")), same(Decimal(3), Decimal(4))
    (True, True, False)
    """
    return abs(a - b) <= max(a, b) * Decimal("0.002")


def finer(a: str, b: str) -> str:
    """Return the price with more decimals."""
    return b if len(b.partition(".")[2]) > len(a.partition(".")[2]) else a


def _is_higher(a: str, b: str) -> bool:
    return bool(a and b) and Decimal(a) > Decimal(b)


def lowest(a: str, b: str) -> str:
    """Lower of two prices, either of which may be missing."""
    return min((cell for cell in (a, b) if cell), key=Decimal, default="")


def _plain(cell: str) -> str:
    if not cell:
        return ""
    text = f"{Decimal(cell):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
