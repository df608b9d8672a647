"""Distance from a city to regions, and the round-trip time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import asin, cos, radians, sin, sqrt

from whichgpu.base.errors import UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import msg
from whichgpu.base.names import nearest, squash, unknown_word
from whichgpu.catalog.host import Region
from whichgpu.catalog.places.city import find_city
from whichgpu.catalog.pricing import MeasuredLatency

EARTH_KM = 6371.0  # mean radius of the Earth (IUGG)
FIBRE_KM_S = 200_000.0  # speed of light in glass, two thirds of that in vacuum
# Cable length relative to the great circle, and seconds added by routers: low, typical and high (assumed).
DETOUR, ROUTERS_S = (1.1, 1.6, 2.5), (0.001, 0.003, 0.020)

Point = tuple[float, float]
RoundTrips = Mapping[tuple[str, str], float]  # round trip in seconds, by provider and region


def city_point(regions: Iterable[Region], city: str) -> tuple[str, Point]:
    """Return name and coordinates of a typed city that has a cloud region, or of coordinates such as `37.57,126.98`."""
    if (point := _coordinates(city)) is not None:
        return city.strip(), point
    points = {row.city: (row.latitude, row.longitude) for row in regions if row.city and row.latitude is not None}
    name = find_city(points, city)
    latitude, longitude = points.get(name or "", (None, None))
    if name and latitude is not None and longitude is not None:
        return name, (latitude, longitude)
    near = nearest(city, points)
    raise unknown_word("city", city, near or tuple(sorted(points))[:20])


def _coordinates(text: str) -> Point | None:
    latitude, comma, longitude = text.partition(",")
    try:
        point = float(latitude), float(longitude)
    except ValueError:
        return None
    if not comma or not (-90 <= point[0] <= 90 and -180 <= point[1] <= 180):
        raise UsageError("bad-coordinates", msg("error.bad-coordinates", text=text), msg("hint.bad-coordinates"))
    return point


def distance_km(a: Point, b: Point) -> float:
    """Return the great-circle distance in km.

    >>> round(distance_km((37.57, 126.98), (35.68, 139.77)))  # Seoul to Tokyo
    1160
    """
    (lat1, lon1), (lat2, lon2) = ((radians(p[0]), radians(p[1])) for p in (a, b))
    h = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_KM * asin(sqrt(h))


def round_trip(city: str, point: Point, region: Region, measured: Iterable[MeasuredLatency]) -> Figure | None:
    """Return the network round trip in seconds from a city: measured, else modelled by distance; None if the place is unknown."""
    for one in measured:
        if (squash(one.city), one.provider, one.region) == (squash(city), region.provider, region.region):
            return Figure.exact(float(one.milliseconds / 1000), "s", "measured", one.sources)
    if region.latitude is None or region.longitude is None:
        return None
    there_and_back = 2 * distance_km(point, (region.latitude, region.longitude)) / FIBRE_KM_S
    low, value, high = (round(there_and_back * detour + routers, 4) for detour, routers in zip(DETOUR, ROUTERS_S, strict=True))
    return Figure(value, low, high, "s", "modelled", region.sources)


def round_trips(near: str, regions: Sequence[Region], measured: Sequence[MeasuredLatency]) -> RoundTrips:
    """Return round trips in seconds from a typed city to every region whose place is known, by provider and region."""
    city, point = city_point(regions, near)
    trips = {(one.provider, one.region): round_trip(city, point, one, measured) for one in regions}
    return {key: trip.value for key, trip in trips.items() if trip is not None}
