"""Progress of each price source on stderr: bars on a terminal, lines elsewhere."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from whichgpu.base.messages import Language, msg
from whichgpu.catalog.live.refresh import RefreshProgress
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


def progress_for(session: Session) -> RefreshProgress:
    """Return a display of the progress of price sources: bars on a terminal, lines elsewhere, nothing for JSON."""
    if session.format == "json":
        return RefreshProgress()
    return ProgressBars(session) if session.err.isatty() else ProgressLines(session)


class ProgressLines(RefreshProgress):
    """Prints a line when a request to a price source starts and one when it has answered, for logs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = Lock()  # Sources are requested in parallel.

    def began(self, source: str) -> None:
        with self._lock:
            self._session.say(msg("progress.asked", name=source))

    def ended(self, source: str, failed: bool) -> None:
        with self._lock:
            self._session.say(msg("progress.unanswered" if failed else "progress.answered", name=source))


class ProgressBars(RefreshProgress):
    """Progress bars of price sources (by Rich), updated from any thread and removed when the last source is done."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._language: Language = session.language
        self._progress: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._open = 0

    def began(self, source: str) -> None:
        progress = self._bars()
        self._open += 1
        self._tasks[source] = progress.add_task(source, total=None, words=self._language.text("progress.asking"))

    def went_on(self, source: str, done: int, total: int | None) -> None:
        """Update the bar of a price source to `done` of `total` parts; `total` is None if unknown."""
        self._bars().update(self._tasks[source], completed=done, total=total, words=f"{done / 2**20:.1f} MiB")

    def ended(self, source: str, failed: bool) -> None:
        """Fill the bar of a price source that is done; after the last source, remove all bars."""
        words = self._language.text("progress.failed" if failed else "progress.done")
        progress = self._bars()
        progress.update(self._tasks[source], total=1, completed=1, words=words)
        self._open -= 1
        if not self._open:
            progress.stop()

    def _bars(self) -> RichProgress:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as RichProgress

            columns = (TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.fields[words]}"))
            console = Console(file=self._session.err, emoji=False, highlight=False)
            self._progress = RichProgress(*columns, console=console, transient=True)
            self._progress.start()
        return self._progress
