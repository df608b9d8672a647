"""Progress of a long computation, on a terminal or to a callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from whichgpu.base.messages import Language
from whichgpu.surface.commands.session import Session

StageShares = Mapping[str, tuple[float, float]]  # Start and length of each stage, as shares of the whole time.


@contextmanager
def progress(
    session: Session, stages: StageShares, describe: Callable[[str, Language], str]
) -> Iterator[Callable[[str, float], None] | None]:
    """Yield a callback that displays progress, given a stage and the share of it done; None if progress is not displayed."""
    if session.progress is not None:
        report = session.progress
        yield lambda stage, done: report(stages[stage][0] + stages[stage][1] * done)
        return
    if session.format == "json" or not session.err.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(file=session.err, emoji=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        current: list[str] = []
        task = bar.add_task("", total=1.0)

        def update(stage: str, done: float) -> None:
            if current != [stage]:  # The remaining time is that of the current stage, at its own speed.
                current[:] = [stage]
                bar.reset(task, total=1.0, description=describe(stage, session.language))
            bar.update(task, completed=done)

        yield update
