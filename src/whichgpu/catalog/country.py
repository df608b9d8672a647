"""Countries by code, name and short name (`DE`, `Germany`, `UK`), and continents and unions as the countries in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from whichgpu.base.names import squash
from whichgpu.catalog.csvfile import read_cells
from whichgpu.catalog.schema import DATA_DIR

# Names of groups of countries, and the continents or unions each is made of.
GROUPS: dict[str, tuple[str, ...]] = {
    "EU": ("EU",),
    "European Union": ("EU",),
    "Europe": ("Europe",),
    "Asia": ("Asia", "Middle East"),
    "Middle East": ("Middle East",),
    "Africa": ("Africa",),
    "North America": ("North America",),
    "South America": ("South America",),
    "Latin America": ("South America", "MX"),
    "Oceania": ("Oceania",),
    "Asia Pacific": ("Asia", "Oceania"),
    "APAC": ("Asia", "Oceania"),
    "EMEA": ("Europe", "Middle East", "Africa"),
}


@dataclass(frozen=True, slots=True)
class Country:
    """A country with its ISO 3166 code, what else it is called, and where it lies."""

    code: str
    name: str
    also: tuple[str, ...]
    continent: str
    union: str


@cache
def countries() -> tuple[Country, ...]:
    """All our regions lie in, and some more. Ours alone, as the schema is: a user's data folder cannot change them."""
    _, rows = read_cells(DATA_DIR / "countries.csv")
    return tuple(Country(code, name, tuple(also.split(";")) if also else (), *where) for _, (code, name, also, *where) in rows)


def countries_named(name: str) -> tuple[str, ...]:
    """Codes of the country or the countries a name means; () where it names none.

    >>> countries_named("uk"), countries_named("Holland"), countries_named("Oceania"), countries_named("us-east-1")
    (('GB',), ('NL',), ('AU', 'NZ'), ())
    """
    return _by_name().get(squash(name), ())


def is_group(name: str) -> bool:
    """Whether a name means a continent or a union, whose countries an answer should tell."""
    return squash(name) in {squash(group) for group in GROUPS}


@cache
def _by_name() -> dict[str, tuple[str, ...]]:
    known = {squash(group): _codes(parts) for group, parts in GROUPS.items()}
    for one in countries():
        known |= {squash(text): (one.code,) for text in (one.code, one.name, *one.also)}
    return known


def _codes(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(one.code for one in countries() if {one.code, one.continent, one.union} & set(parts))
