"""Cities of users in several places, with the share of requests from each, and the regions near enough to them."""

from __future__ import annotations

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.units import parse_seconds
from whichgpu.catalog.places.distance import RoundTrips, round_trips
from whichgpu.catalog.store import Catalog


class UserPlace(msgspec.Struct, frozen=True):
    """A city and the share of all requests that its users send."""

    name: str
    share: float


class Reach(msgspec.Struct, frozen=True):
    """Cities of users, round trips in seconds from each to every region, and the longest round trip allowed."""

    places: tuple[UserPlace, ...]
    trips: tuple[RoundTrips, ...]
    limit: float

    def of(self, provider: str, region: str) -> tuple[bool, ...]:
        """Return, for each city, whether a region of a provider is near enough to it."""
        return tuple(trips.get((provider, region), float("inf")) <= self.limit for trips in self.trips)


def user_places(near: str | None) -> tuple[UserPlace, ...]:
    """Return cities with the share of requests from each, parsed from a text; empty if it names one city without a weight.

    >>> [(one.name, one.share) for one in user_places("Seoul:3,Paris:1")], user_places("Seoul")
    ([('Seoul', 0.75), ('Paris', 0.25)], ())
    """
    if near is None or ":" not in near:
        return ()
    weights = {}
    for part in near.split(","):
        name, _, weight = part.partition(":")
        try:
            weights[name.strip()] = float(weight)
        except ValueError:
            weights[name.strip()] = 0.0
    if not all(0 < weight < float("inf") for weight in weights.values()) or len(weights) < len(near.split(",")):
        raise UsageError("bad-places", msg("error.bad-places", text=near[:80]), msg("hint.places"))
    return tuple(UserPlace(name, weight / sum(weights.values())) for name, weight in weights.items())


def reach_of(near: str | None, max_latency: str | None, catalog: Catalog) -> Reach | None:
    """Return which regions are near enough to each of several cities of users; None if they are not in several."""
    places = user_places(near)
    if not places:
        return None
    if max_latency is None:
        raise UsageError("no-max-latency", msg("error.no-max-latency"), msg("hint.places"))
    trips = tuple(round_trips(one.name, catalog.regions, catalog.latencies) for one in places)
    return Reach(places, trips, parse_seconds(max_latency))
