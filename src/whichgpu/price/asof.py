"""Which price was valid on a day, and how certain that is.

The latest observation not after the day decides, if the offer was still listed; before the first, nothing is known. The price is
`observed` on a day it was seen, `bracketed` between two observations of the same price, else `carried` from the last one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Literal

import msgspec

from whichgpu.base.dates import first_day, last_day
from whichgpu.catalog.offer import STALE_DAYS, Observation

Confidence = Literal["observed", "bracketed", "carried"]
RECENT_DAYS = (90, 180, 365)  # If all prices are stale, the cheapest within these numbers of days is looked for.


class PriceOnDay(msgspec.Struct, frozen=True):
    """A price valid on a day: when it was last seen by then, how long ago, and with what confidence."""

    observation: Observation
    observed_at: str
    age_days: int
    confidence: Confidence

    @property
    def stale(self) -> bool:
        """Return whether the price was last seen more than STALE_DAYS before the day."""
        return self.confidence == "carried" and self.age_days > STALE_DAYS


def price_on_day(runs: Iterable[Observation], day: date) -> PriceOnDay | None:
    """Return the price of one offer on a day, from its observations in any order and from any source; None if not offered."""
    best: tuple[date, str, Observation] | None = None
    for run in runs:
        last_known_day = _known_until(run, day)
        if last_known_day is not None and (best is None or (last_known_day, run.observed) > best[:2]):
            best = last_known_day, run.observed, run
    if best is None or _gone(best[2], day):
        return None
    return _price_on_day(best[2], day)


def prices_on_day(observations: Iterable[Observation], day: date) -> Iterator[PriceOnDay]:
    """Yield the price on a day of each offer (machine, region, term) among these observations."""
    offers: dict[object, list[Observation]] = defaultdict(list)
    for run in observations:
        offers[run.key].append(run)
    for runs in offers.values():
        if (day_price := price_on_day(runs, day)) is not None:
            yield day_price


def _price_on_day(run: Observation, day: date) -> PriceOnDay:
    first, last = _date(run.observed), _last(run)
    observed = last if last <= day else first
    text = run.last_observed if last <= day else run.observed
    confidence: Confidence = "observed" if day in (first, last) else "bracketed" if first < day < last else "carried"
    return PriceOnDay(run, text, (day - observed).days, confidence)


def _known_until(run: Observation, day: date) -> date | None:
    """Return the latest day, not after `day`, for which the observation is evidence of its price; None if it begins later."""
    if _date(run.observed) > day:
        return None
    return _date(run.ended) if run.ended and _gone(run, day) else min(_last(run), day)


def _gone(run: Observation, day: date) -> bool:
    return run.ended is not None and _date(run.ended) <= day


def _last(run: Observation) -> date:
    """Return the last day the price was seen; for one dated by month only, the last day of that month."""
    return _date(run.last_observed, whole=True)


def _date(text: str, whole: bool = False) -> date:
    if len(text) == 10:
        return date.fromisoformat(text)
    return last_day(text) if whole else first_day(text)
