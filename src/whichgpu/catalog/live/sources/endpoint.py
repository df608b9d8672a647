"""Requests to a source: its URL, and parsing of its JSON with errors that name the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from whichgpu.base.errors import DataError, UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.live.rows import ReadCounts, RejectedRow

T = TypeVar("T")
MAX_QUOTED_BYTES = 500  # Bytes of a malformed row that are kept in quarantine (set by judgement).


def source_url(source: str, usual: str, environ: Mapping[str, str]) -> str:
    """Return the URL of a price source (`usual`), or of the mirror in WHICHGPU_URL_<SOURCE>, without a trailing slash."""
    mirror = environ.get(f"WHICHGPU_URL_{source.upper()}", "").strip()
    if mirror and not mirror.startswith(("https://", "http://")):
        raise UsageError("bad-address", msg("error.bad-address", name=mirror), msg("hint.bad-address"))
    return (mirror or usual).rstrip("/")


def malformed(source: str, why: str | Message) -> DataError:
    """Return the error for an HTTP answer that is not what the price source documents, with the reason."""
    return DataError("http-malformed", msg("error.http-malformed", name=source, why=why), msg("hint.http"))


def decode_body(source: str, body: bytes, kind: type[T]) -> T:
    """Decode the JSON body of a price source's answer to a type; raise an error that names the source."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        raise malformed(source, str(problem)) from problem


def decode_rows(raws: Iterable[msgspec.Raw], kind: type[T], read: ReadCounts) -> Iterator[T | RejectedRow]:
    """Decode and count JSON items of a price list; a malformed one becomes a rejected row."""
    for raw in raws:
        read.rows += 1
        try:
            yield msgspec.json.decode(raw, type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError):
            yield malformed_row(bytes(raw))


def malformed_row(raw: bytes) -> RejectedRow:
    """Return the rejected row for an item of a price list that cannot be parsed."""
    return RejectedRow("malformed", raw[:MAX_QUOTED_BYTES].decode("utf-8", "replace"))
