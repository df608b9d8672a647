"""Parser of the query of a URL to names and values."""

from __future__ import annotations

from urllib.parse import parse_qsl

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

LANGUAGE_PARAMETER = "lang"  # Name of the URL parameter that every page and endpoint has.
MAX_PARAMETERS = 200  # Largest number of parameters in a URL (assumed).


def query_pairs(query: str) -> list[tuple[str, str]]:
    """Return names and values of a query; raise `UsageError` for too many of them or bytes that are not UTF-8."""
    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict")
    except ValueError as problem:
        raise UsageError("bad-query", msg("error.bad-query"), msg("hint.bad-query", n=MAX_PARAMETERS)) from problem
