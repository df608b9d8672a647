"""The reader's language: what a request asks for, what an address keeps, and the choice a page offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request

from whichgpu.base.errors import UnknownName
from whichgpu.base.messages import SOURCE_LANGUAGE, Language, code_of, language, languages, msg

PARAMETER = "lang"  # of every address, and no page's own
# What each language calls itself; one without a name here goes by its code.
OWN_NAMES = {"en": "English", "ko": "한국어", "vi": "Tiếng Việt", "zh": "中文"}
LONGEST_HEADER = 400


@dataclass(frozen=True, slots=True)
class Choice:
    """A language to choose: its code, its own name, the address that chooses it, and whether it is the present one."""

    code: str
    name: str
    url: str
    is_chosen: bool


def language_of(request: Request) -> Language:
    """The language asked for: by name, else the browser's first choice that there is."""
    named = code_of(request.query_params.get(PARAMETER, "")[:40])
    return language(named or preferred(request.headers.get("accept-language", "")))


def preferred(header: str) -> str:
    """The code of the language an Accept-Language header likes best (RFC 9110, 12.5.4).

    >>> preferred("fr-CH, fr;q=0.9, en;q=0.8, *;q=0.5"), preferred("tlh"), preferred("")
    ('en', 'en', 'en')
    """
    liked: list[tuple[float, str]] = []
    for part in header[:LONGEST_HEADER].split(","):
        name, _, rest = part.partition(";")
        code, weight = code_of(name), _weight(rest)
        if code and weight > 0:
            liked.append((-weight, code))
    return min(liked, key=lambda one: one[0])[1] if liked else SOURCE_LANGUAGE


def _weight(text: str) -> float:
    name, _, number = text.replace(" ", "").partition("=")
    try:
        return float(number) if name == "q" else 1.0
    except ValueError:
        return 0.0


def named_in(query: str) -> str | None:
    """The code of the language an address names; an error where there is no such language."""
    given = [value for name, value in _pairs(query) if name == PARAMETER and value.strip()]
    return chosen(given[-1]) if given else None


def chosen(named: str) -> str:
    """The code of a language somebody names."""
    code = code_of(named)
    if code is None:
        hint = msg("hint.choices", choices=languages())
        raise UnknownName("unknown-language", msg("error.unknown-language", name=named[:40]), hint, languages())
    return code


def kept(url: str, code: str | None) -> str:
    """An address of ours that keeps the chosen language.

    >>> kept("/gpus?name=t4", "ko"), kept("/gpus", "ko"), kept("/gpus", None)
    ('/gpus?name=t4&lang=ko', '/gpus?lang=ko', '/gpus')
    """
    return f"{url}{'&' if '?' in url else '?'}{PARAMETER}={code}" if code else url


def choices(query: str, present: str) -> list[Choice]:
    """The languages there are, each with what the present address would be in it."""
    rest = [(name, value) for name, value in _pairs(query) if name not in (PARAMETER, "token")]
    return [
        Choice(code, OWN_NAMES.get(code, code), f"?{urlencode([*rest, (PARAMETER, code)])}", code == present)
        for code in languages()
    ]


def headers_of(code: str) -> Mapping[str, str]:
    """What a reply in a language says of itself."""
    return {"Content-Language": code, "Vary": "Accept-Encoding, Accept-Language"}


def _pairs(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=200, errors="strict")
    except ValueError:  # told by whoever reads the rest of it
        return []
