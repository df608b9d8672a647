"""Cities by name in any language: 서울, 首尔 and Seoul are the same."""

from __future__ import annotations

from collections.abc import Iterable

from whichgpu.base.messages import SOURCE_LANGUAGE, language, languages
from whichgpu.base.names import normalized_name, squash, unaccented


def find_city(cities: Iterable[str], typed: str) -> str | None:
    """Return the city of that name, with or without accents; None if there is none.

    >>> find_city(("São Paulo", "Seoul"), "sao paulo"), find_city(("São Paulo", "Seoul"), "서울"), find_city((), "Seoul")
    ('São Paulo', 'Seoul', None)
    """
    names = tuple(cities)
    plain, normalized = squash(unaccented(typed)), normalized_name(typed)
    match = next((name for name in names if squash(unaccented(name)) == plain), None) if plain else None
    if match or normalized.isascii():
        return match
    others = [language(code) for code in languages() if code != SOURCE_LANGUAGE]
    return next((name for name in names if any(normalized_name(other.fact(name)) == normalized for other in others)), None)
