"""Cities by their names in any of the languages: 서울, 首尔 and Seoul are one."""

from __future__ import annotations

from collections.abc import Iterable

from whichgpu.base.messages import SOURCE_LANGUAGE, language, languages
from whichgpu.base.names import normalized_name, squash, unaccented


def find_city(cities: Iterable[str], typed: str) -> str | None:
    """The one of these cities that is meant, with or without the marks on its letters; None where there is none such.

    >>> find_city(("São Paulo", "Seoul"), "sao paulo"), find_city(("São Paulo", "Seoul"), "서울"), find_city((), "Seoul")
    ('São Paulo', 'Seoul', None)
    """
    known = tuple(cities)
    plain, said = squash(unaccented(typed)), normalized_name(typed)
    found = next((name for name in known if squash(unaccented(name)) == plain), None) if plain else None
    if found or said.isascii():
        return found
    others = [language(code) for code in languages() if code != SOURCE_LANGUAGE]
    return next((name for name in known if any(normalized_name(other.fact(name)) == said for other in others)), None)
