"""Countries by code, name and short name (`DE`, `Germany`, `UK`) in any language; continents and unions of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec

from whichgpu.base.messages import SOURCE_LANGUAGE, language, languages
from whichgpu.base.names import normalized_name, squash
from whichgpu.catalog.csvfile import read_cells
from whichgpu.catalog.schema import DATA_DIR


class Country(msgspec.Struct, frozen=True):
    """A country with its ISO 3166 code, other names, continent and union."""

    code: str
    name: str
    also: tuple[str, ...]
    continent: str
    union: str


@cache
def countries() -> tuple[Country, ...]:
    """Return all bundled countries, whatever data folder the user names."""
    _, rows = read_cells(DATA_DIR / "countries.csv")
    return tuple(Country(code, name, tuple(also.split(";")) if also else (), *where) for _, (code, name, also, *where) in rows)


def countries_named(name: str) -> tuple[str, ...]:
    """Return the codes of the countries that a name means; () if it is no country or group.

    >>> countries_named("uk"), countries_named("Holland"), countries_named("Oceania"), countries_named("us-east-1")
    (('GB',), ('NL',), ('AU', 'NZ'), ())
    >>> countries_named("한국"), countries_named("美国"), countries_named("Mỹ")
    (('KR',), ('US',), ('US',))
    """
    normalized = normalized_name(name)
    codes = () if normalized.isascii() else _by_spoken_name().get(normalized, ())
    return codes or _by_name().get(squash(name), ())


def is_group(name: str) -> bool:
    """Whether a name means a continent or a union, so that an answer should list its countries."""
    normalized = normalized_name(name)
    if not normalized.isascii():
        return any(normalized in _spoken(group) for group in groups())
    return squash(name) in {squash(group) for group in groups()}


@cache
def groups() -> dict[str, tuple[str, ...]]:
    """Return, by name of a continent or other group, the names of the countries, unions or continents it consists of."""
    _, rows = read_cells(DATA_DIR / "country_groups.csv")
    return {name: tuple(parts.split(";")) for _, (name, parts) in rows}


@cache
def _by_name() -> dict[str, tuple[str, ...]]:
    codes = {squash(group): _codes(parts) for group, parts in groups().items()}
    for one in countries():
        codes |= {squash(text): (one.code,) for text in (one.code, one.name, *one.also) if text.isascii()}
    return codes


@cache
def _by_spoken_name() -> dict[str, tuple[str, ...]]:
    """Return country codes by names in other scripts or with accents: 한국, 韩国, Hàn Quốc."""
    codes = {text: _codes(parts) for group, parts in groups().items() for text in _spoken(group)}
    for one in countries():
        codes |= dict.fromkeys((*_spoken(one.name), *map(normalized_name, one.also)), (one.code,))
    return codes


def _spoken(name: str) -> tuple[str, ...]:
    """Return the names of a country or group of countries in all languages but English."""
    return tuple(normalized_name(language(code).fact(name)) for code in languages() if code != SOURCE_LANGUAGE)


def _codes(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(one.code for one in countries() if {one.code, one.continent, one.union} & set(parts))
