"""Progress of a long answer, on a terminal or to whoever follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from whichgpu.base.messages import Language
from whichgpu.surface.commands.session import Session

StageShares = Mapping[str, tuple[float, float]]  # of the whole: where a stage begins, and how long it takes


@contextmanager
def progress(
    session: Session, stages: StageShares, describe: Callable[[str, Language], str]
) -> Iterator[Callable[[str, float], None] | None]:
    """Yield a callback that takes a stage and its share done; None where nobody would see it."""
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
            if current != [stage]:  # The time left is that of the stage, by its own speed.
                current[:] = [stage]
                bar.reset(task, total=1.0, description=describe(stage, session.language))
            bar.update(task, completed=done)

        yield update
