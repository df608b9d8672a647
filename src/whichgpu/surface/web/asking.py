"""A command asked in this process, as a program would ask it: what it prints and how it ends, as an HTTP reply."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import click

from whichgpu.base.codec import to_json_line
from whichgpu.base.errors import DataError, NoAnswer, UsageError, WhichGpuError
from whichgpu.base.messages import Language, msg
from whichgpu.catalog.store import Catalog
from whichgpu.surface.cli.main import root, usage_error
from whichgpu.surface.cli.session import Catalogs, Session
from whichgpu.surface.replies import error_body, error_document
from whichgpu.surface.web.private import without_paths

NO_ANSWER = 422  # a valid question that nothing answers, and why
NOT_FOUND = ("unknown-page", "unknown-chart")
Progress = Callable[[float], None]
CONTENT = {"json": "application/json", "csv": "text/csv; charset=utf-8", "markdown": "text/markdown; charset=utf-8"}


catalogs = Catalogs()
_folder: list[str] = []


@dataclass(frozen=True, slots=True)
class Told:
    """A reply: its status, what it is, and its bytes."""

    status: int
    content: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def ask(argv: Sequence[str], form: str, language: Language, progress: Progress | None = None) -> Told:
    """What a command prints in a form; a refusal is told as JSON in the one shape errors have."""
    session = Session(language, format="json", out=io.StringIO(), err=io.StringIO(), catalogs=catalogs, progress=progress)
    try:
        code = _run(_formed(argv, form), session)
    except WhichGpuError as error:
        return refused(error, session.language)
    except click.UsageError as error:
        return refused(usage_error(error, session), session.language)
    out = session.out.getvalue()  # type: ignore[attr-defined]
    return Told(200 if code == 0 else NO_ANSWER, CONTENT[form], out.encode("utf-8", "backslashreplace"))


def _formed(argv: Sequence[str], form: str) -> list[str]:
    """The form goes before any `--`, after which all words are names."""
    end = argv.index("--") if "--" in argv else len(argv)
    folder = [f"--catalog={_folder[0]}"] if _folder else []
    return [*argv[:end], f"--{form}", *folder, *argv[end:]]


def _run(argv: list[str], session: Session) -> int:
    """The command alone: no config file and no variable changes what an address means."""
    above = click.Context(root, info_name="whichgpu", obj=session)
    found: click.Command | None = root
    while isinstance(found, click.Group):
        session.command = (*session.command, argv[0])
        found = found.get_command(above, argv.pop(0))
    assert found is not None
    with found.make_context(session.command[-1], argv, parent=above) as ctx:
        result = found.invoke(ctx)
    return result if isinstance(result, int) else 0


def status_of(error: WhichGpuError) -> int:
    """The HTTP status of an error: the same three kinds the exit codes tell apart."""
    if error.kind in NOT_FOUND:
        return 404
    if isinstance(error, UsageError):
        return 400
    return NO_ANSWER if isinstance(error, NoAnswer) else 500


def refused(error: WhichGpuError, language: Language) -> Told:
    """An error in the one shape errors have."""
    return Told(status_of(error), CONTENT["json"], to_json_line(error_document(without_paths(error), language)).encode())


def client_error(error: WhichGpuError, language: Language) -> dict[str, Any]:
    """The body of an error that a client is sent: no path of this machine is in it."""
    return error_body(without_paths(error), language)


def internal(problem: Exception, language: Language) -> Told:
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
