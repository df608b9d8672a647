"""A command asked in this process, as a program would ask it: what it prints and how it ends, as an HTTP reply."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from whichgpu.base.codec import to_json_line
from whichgpu.base.errors import DataError, NoAnswer, UsageError, WhichGpuError
from whichgpu.base.messages import Language, msg
from whichgpu.catalog.store import Catalog
from whichgpu.surface.commands.command import command_named
from whichgpu.surface.commands.session import Catalogs, Session
from whichgpu.surface.documents import error_body, error_document
from whichgpu.surface.web.hide_paths import without_paths

NO_ANSWER = 422  # a valid question that nothing answers, and why
NOT_FOUND = ("unknown-page", "unknown-chart")
Progress = Callable[[float], None]
CONTENT = {"json": "application/json", "csv": "text/csv; charset=utf-8", "markdown": "text/markdown; charset=utf-8"}


catalogs = Catalogs()
_folder: list[str] = []


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A reply: its status, what it is, and its bytes."""

    status: int
    content: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Collected(Session):
    """A session whose JSON document is kept as a value instead of being printed."""

    document: Any = None

    def emit(self, document: object) -> None:
        """Keep the whole answer."""
        self.document = document


def answered(name: str, request: Mapping[str, Any], language: Language, progress: Progress | None = None) -> tuple[int, Any]:
    """The HTTP status and the JSON document of a command's answer to a request."""
    session = _session(Collected, language, "json", progress)
    code = _shown(name, request, session)
    return 200 if code == 0 else NO_ANSWER, session.document


def ask(name: str, request: Mapping[str, Any], form: str, language: Language) -> HttpReply:
    """A command's answer to a request in a form; a refusal comes as JSON in the one shape errors have."""
    session = _session(Session, language, form)
    try:
        code = _shown(name, request, session)
    except WhichGpuError as error:
        return refused(error, language)
    out: str = session.out.getvalue()  # type: ignore[attr-defined]
    return HttpReply(200 if code == 0 else NO_ANSWER, CONTENT[form], out.encode("utf-8", "backslashreplace"))


S = TypeVar("S", bound=Session)


def _session(kind: type[S], language: Language, form: str, progress: Progress | None = None) -> S:
    session = kind(language, format=form, out=io.StringIO(), err=io.StringIO(), catalogs=catalogs, progress=progress)
    session.catalog_folder = Path(_folder[0]) if _folder else None
    return session


def _shown(name: str, request: Mapping[str, Any], session: Session) -> int:
    """Ask and show a command: no config file and no variable changes what an address means."""
    command = command_named(name)
    session.command = tuple(name.split())
    rest = {field: value for field, value in request.items() if field != "columns"}
    if columns := request.get("columns"):
        session.columns = columns if isinstance(columns, str) else ",".join(columns)
    return command.show(session, command.answer(session, rest)) or 0


def status_of(error: WhichGpuError) -> int:
    """The HTTP status of an error: the same three kinds the exit codes tell apart."""
    if error.kind in NOT_FOUND:
        return 404
    if isinstance(error, UsageError):
        return 400
    return NO_ANSWER if isinstance(error, NoAnswer) else 500


def refused(error: WhichGpuError, language: Language) -> HttpReply:
    """An error in the one shape errors have."""
    return HttpReply(status_of(error), CONTENT["json"], to_json_line(error_document(without_paths(error), language)).encode())


def client_error(error: WhichGpuError, language: Language) -> dict[str, Any]:
    """The body of an error that a client is sent: no path of this machine is in it."""
    return error_body(without_paths(error), language)


def internal(problem: Exception, language: Language) -> HttpReply:
    """A fault of ours, told without a traceback."""
    message = msg("error.internal", what=f"{type(problem).__name__}")
    return refused(DataError("internal", message, msg("hint.internal")), language)


def forget() -> None:
    """Read everything anew: what the user's own store holds has changed."""
    catalogs.clear()


def catalog(as_known: date | int | None = None) -> Catalog:
    """The catalog as it is today, or the one that a command asked as known then uses; kept by this process."""
    key = (Path(_folder[0]) if _folder else None, as_known)
    if key not in catalogs:
        catalogs[key] = Catalog(*key)
    return catalogs[key]


def use(folder: str | None) -> None:
    """Facts of another folder than the bundled one, from the start of this process."""
    _folder[:] = [folder] if folder else []
