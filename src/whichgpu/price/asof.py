"""Which price held on a day, and how sure that is.

The latest sighting not after the day decides, while the offer was listed; nothing is known before the first. On a day it was
seen, a price is `observed`; between two sightings of one price `bracketed`; after the last one, or before another, `carried`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Literal

from whichgpu.base.dates import first_day, last_day
from whichgpu.catalog.offer import STALE_DAYS, Observation

Confidence = Literal["observed", "bracketed", "carried"]
RECENT_DAYS = (90, 180, 365)  # days in which a price is looked for where all are stale


@dataclass(frozen=True, slots=True)
class PriceOnDay:
    """A price valid on a day: when it was last seen by then, how long ago, and with what confidence."""

    observation: Observation
    observed_at: str
    age_days: int
    confidence: Confidence

    @property
    def stale(self) -> bool:
        """Whether it was last seen more than STALE_DAYS ago."""
        return self.confidence == "carried" and self.age_days > STALE_DAYS


def price_on_day(runs: Iterable[Observation], day: date) -> PriceOnDay | None:
    """The price of one offer on a day, from all that was seen of it, in whatever order and by whatever sources."""
    best: tuple[date, str, Observation] | None = None
    for run in runs:
        last_known_day = _known_until(run, day)
        if last_known_day is not None and (best is None or (last_known_day, run.observed) > best[:2]):
            best = last_known_day, run.observed, run
    if best is None or _gone(best[2], day):
        return None
    return _standing(best[2], day)


def prices_on_day(observations: Iterable[Observation], day: date) -> Iterator[PriceOnDay]:
    """The price of each offer among these on a day."""
    offers: dict[object, list[Observation]] = defaultdict(list)
    for run in observations:
        offers[run.key].append(run)
    for runs in offers.values():
        if (day_price := price_on_day(runs, day)) is not None:
            yield day_price


def _standing(run: Observation, day: date) -> PriceOnDay:
    first, last = _date(run.observed), _last(run)
    observed = last if last <= day else first
    text = run.last_observed if last <= day else run.observed
    confidence: Confidence = "observed" if day in (first, last) else "bracketed" if first < day < last else "carried"
    return PriceOnDay(run, text, (day - observed).days, confidence)


def _known_until(run: Observation, day: date) -> date | None:
    """The latest day, not after this one, that the run says something about; None where it begins later."""
    if _date(run.observed) > day:
        return None
    return _date(run.ended) if run.ended and _gone(run, day) else min(_last(run), day)


def _gone(run: Observation, day: date) -> bool:
    return run.ended is not None and _date(run.ended) <= day


def _last(run: Observation) -> date:
    """A price seen in a month was seen on its last day at the latest."""
    return _date(run.last_observed, whole=True)


def _date(text: str, whole: bool = False) -> date:
    if len(text) == 10:
        return date.fromisoformat(text)
    return last_day(text) if whole else first_day(text)
