"""Run a command in this process, and return its output and exit code as an HTTP reply."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from whichgpu.base.codec import to_json_line
from whichgpu.base.errors import DataError, NoAnswer, UsageError, WhichGpuError
from whichgpu.base.lru import LruCache
from whichgpu.base.messages import Language, msg
from whichgpu.catalog.store import Catalog
from whichgpu.surface.commands.command import command_named
from whichgpu.surface.commands.session import MAX_CATALOGS, Session
from whichgpu.surface.documents import error_body, error_document
from whichgpu.surface.web.field_names import error_texts, with_field_names, with_labels
from whichgpu.surface.web.hide_paths import without_paths

NO_ANSWER = 422  # HTTP status of a valid request without an answer
NOT_FOUND_KINDS = ("unknown-page", "unknown-chart")
Progress = Callable[[float], None]
CONTENT_TYPES = {"json": "application/json", "csv": "text/csv; charset=utf-8", "markdown": "text/markdown; charset=utf-8"}

catalogs = LruCache[Catalog](MAX_CATALOGS)
_folder: list[str] = []


class HttpReply(msgspec.Struct, frozen=True):
    """An HTTP reply: status, content type, body and headers."""

    status: int
    content_type: str
    body: bytes
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class DocumentSession(Session):
    """A command's session that keeps the JSON document of the answer as a value instead of printing it."""

    document: Any = None

    def emit(self, document: object) -> None:
        self.document = document


def command_document(
    name: str, request: Mapping[str, Any], language: Language, progress: Progress | None = None
) -> tuple[int, Any]:
    """Return HTTP status and JSON document of a command's answer."""
    session = _session(DocumentSession, language, "json", progress)
    code = _run(name, request, session)
    return 200 if code == 0 else NO_ANSWER, session.document


def command_reply(name: str, request: Mapping[str, Any], format: str, language: Language) -> HttpReply:
    """Return a command's answer as an HTTP reply in a format (json, csv, markdown); an error is JSON in every format."""
    session = _session(Session, language, format)
    try:
        code = _run(name, request, session)
    except WhichGpuError as error:
        return error_reply(error, language)
    out: str = session.out.getvalue()  # type: ignore[attr-defined]
    return HttpReply(200 if code == 0 else NO_ANSWER, CONTENT_TYPES[format], out.encode("utf-8", "backslashreplace"))


S = TypeVar("S", bound=Session)


def _session(kind: type[S], language: Language, format: str, progress: Progress | None = None) -> S:
    session = kind(language, format=format, out=io.StringIO(), err=io.StringIO(), catalogs=catalogs, progress=progress)
    session.catalog_folder = Path(_folder[0]) if _folder else None
    return session


def _run(name: str, request: Mapping[str, Any], session: Session) -> int:
    """Answer a request and print the answer to the session; no config file or variable changes what a URL means."""
    command = command_named(name)
    session.command = tuple(name.split())
    rest = {field: value for field, value in request.items() if field != "columns"}
    if columns := request.get("columns"):
        session.columns = columns if isinstance(columns, str) else ",".join(columns)
    return command.show(session, command.answer(session, rest)) or 0


def status_of(error: WhichGpuError) -> int:
    """Return the HTTP status for an error: 400 invalid, 404 unknown name, 422 no answer, 500 otherwise."""
    if error.kind in NOT_FOUND_KINDS:
        return 404
    if isinstance(error, UsageError):
        return 400
    return NO_ANSWER if isinstance(error, NoAnswer) else 500


def error_reply(error: WhichGpuError, language: Language) -> HttpReply:
    """Return the HTTP reply for an error, with a JSON body."""
    document = error_document(without_paths(error), language)
    body = to_json_line({**document, "error": error_texts(document["error"], with_field_names)}).encode()
    return HttpReply(status_of(error), CONTENT_TYPES["json"], body)


def client_error(error: WhichGpuError, language: Language) -> dict[str, Any]:
    """Return the body of an error for a page, without paths of this machine, and with labels of fields instead of flags."""
    return error_texts(error_body(without_paths(error), language), lambda text: with_labels(text, language))


def internal_error(problem: Exception) -> WhichGpuError:
    """Return the error for an unexpected exception, without its traceback."""
    return DataError("internal", msg("error.internal", what=f"{type(problem).__name__}"), msg("hint.internal"))


def forget_catalogs() -> None:
    """Drop cached catalogs, which are out of date once the user's price store has changed."""
    catalogs.clear()


def catalog(as_known: date | int | None = None) -> Catalog:
    """Return the catalog of this process, as known today or on another day."""
    key = (Path(_folder[0]) if _folder else None, as_known)
    return catalogs.get(key, lambda: Catalog(*key))


def use_catalog_folder(folder: str | None) -> None:
    """Use the catalog of a folder instead of the bundled one."""
    _folder[:] = [folder] if folder else []
