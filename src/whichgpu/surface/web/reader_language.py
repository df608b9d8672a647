"""The reader's language: chosen by the URL or the browser, kept in the page's links, and offered in its header."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import SOURCE_LANGUAGE, Language, code_of, language, languages
from whichgpu.surface.commands.session import language_code
from whichgpu.surface.web.query import LANGUAGE_PARAMETER, query_pairs

# Each language's own name; a language without one here is displayed by its code.
OWN_NAMES = {"en": "English", "ko": "한국어", "vi": "Tiếng Việt", "zh": "中文"}
MAX_HEADER_CHARACTERS = 400  # Characters of the Accept-Language header that are parsed; the rest is ignored (assumed).


class LanguageChoice(msgspec.Struct, frozen=True):
    """A language to choose: its code, its own name, the URL that chooses it, and whether it is the present one."""

    code: str
    name: str
    url: str
    is_chosen: bool


def language_of(request: Request) -> Language:
    """Return the language of a request: the one its URL names, else the browser's first choice that exists."""
    code = code_of(request.query_params.get(LANGUAGE_PARAMETER, "")[:40])
    return language(code or preferred(request.headers.get("accept-language", "")))


def preferred(header: str) -> str:
    """Return the code of the language that an Accept-Language header prefers (RFC 9110, 12.5.4).

    >>> preferred("fr-CH, fr;q=0.9, en;q=0.8, *;q=0.5"), preferred("tlh"), preferred("")
    ('en', 'en', 'en')
    """
    weighted: list[tuple[float, str]] = []
    for part in header[:MAX_HEADER_CHARACTERS].split(","):
        name, _, rest = part.partition(";")
        code, weight = code_of(name), _weight(rest)
        if code and weight > 0:
            weighted.append((-weight, code))
    return min(weighted, key=lambda one: one[0])[1] if weighted else SOURCE_LANGUAGE


def _weight(text: str) -> float:
    name, _, number = text.replace(" ", "").partition("=")
    try:
        return float(number) if name == "q" else 1.0
    except ValueError:
        return 0.0


def language_in(query: str) -> str | None:
    """Return the code of the language that a query names, or None; raise `UnknownName` if there is no such language."""
    values = [value for name, value in _valid_pairs(query) if name == LANGUAGE_PARAMETER and value.strip()]
    return language_code(values[-1]) if values else None


def with_language(url: str, code: str | None) -> str:
    """Return a URL of this server that keeps the chosen language.

    >>> with_language("/gpus?name=t4", "ko"), with_language("/gpus", "ko"), with_language("/gpus", None)
    ('/gpus?name=t4&lang=ko', '/gpus?lang=ko', '/gpus')
    """
    return f"{url}{'&' if '?' in url else '?'}{LANGUAGE_PARAMETER}={code}" if code else url


def language_choices(query: str, present: str) -> list[LanguageChoice]:
    """Return all languages, each with the URL of the current page in it."""
    rest = [(name, value) for name, value in _valid_pairs(query) if name not in (LANGUAGE_PARAMETER, "token")]
    return [
        LanguageChoice(code, OWN_NAMES.get(code, code), f"?{urlencode([*rest, (LANGUAGE_PARAMETER, code)])}", code == present)
        for code in languages()
    ]


def headers_of(code: str) -> Mapping[str, str]:
    """Return the HTTP headers of a reply in a language: Content-Language and Vary."""
    return {"Content-Language": code, "Vary": "Accept-Encoding, Accept-Language"}


def _valid_pairs(query: str) -> list[tuple[str, str]]:
    """Return the parameters of a query; none if it is invalid, which is reported where the other parameters are parsed."""
    try:
        return query_pairs(query)
    except UsageError:
        return []
