"""Distances and round trips."""

from __future__ import annotations

import pytest

from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.catalog.places.distance import city_point, distance_km, round_trip
from whichgpu.catalog.store import Catalog


def test_a_city_is_any_of_our_regions_or_a_point(catalog: Catalog) -> None:
    name, (latitude, longitude) = city_point(catalog.regions, "seoul")
    assert (name, round(latitude), round(longitude)) == ("Seoul", 38, 127)
    assert city_point(catalog.regions, "37.57, 126.98") == ("37.57, 126.98", (37.57, 126.98))


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Sao Paulo", "São Paulo"),
        ("Hà Nội", "Hanoi"),
        ("SÃO PAULO", "São Paulo"),
        ("서울", "Seoul"),
        ("东京", "Tokyo"),
        ("Luân Đôn", "London"),
    ],
)
def test_city_is_found_without_diacritics_and_in_other_languages(catalog: Catalog, typed: str, name: str) -> None:
    assert city_point(catalog.regions, typed)[0] == name


def test_unknown_places_are_refused_with_nearest_names(catalog: Catalog) -> None:
    with pytest.raises(UnknownName) as caught:
        city_point(catalog.regions, "Seol")
    assert "Seoul" in caught.value.choices
    with pytest.raises(UsageError):
        city_point(catalog.regions, "137.57,126.98")


def test_a_trip_is_never_faster_than_light_in_glass(catalog: Catalog) -> None:
    _, seoul = city_point(catalog.regions, "Seoul")
    for region in catalog.regions:
        trip = round_trip("Seoul", seoul, region, ())
        if trip is None:
            assert region.latitude is None
            continue
        assert region.latitude is not None
        assert region.longitude is not None
        light = 2 * distance_km(seoul, (region.latitude, region.longitude)) / 200_000
        assert light <= trip.low <= trip.value <= trip.high
        assert trip.basis == "modelled"


def test_measured_latency_takes_precedence_over_the_estimate(catalog: Catalog) -> None:
    _, seoul = city_point(catalog.regions, "Seoul")
    taiwan = next(row for row in catalog.regions if (row.provider, row.region) == ("gcp", "asia-east1"))
    trip = round_trip("Seoul", seoul, taiwan, catalog.latencies)
    assert trip is not None
    assert (trip.value, trip.basis, trip.sources) == (0.145619823, "measured", ("likejazz-gpu-2019",))
