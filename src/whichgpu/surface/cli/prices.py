"""`whichgpu catalog refresh`, `import` and `export`: move prices into and out of the user's store."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from whichgpu.api.request.kinds import Names, Words
from whichgpu.base.dates import parse_as_of
from whichgpu.base.files import user_path
from whichgpu.base.messages import msg
from whichgpu.catalog.live.sources import source_names
from whichgpu.surface.cli.click_parts import command, option, value_type
from whichgpu.surface.cli.progress import progress_for
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document

if TYPE_CHECKING:
    from whichgpu.api.prices.store import PriceImportAnswer, SnapshotRow

COLUMNS = ("source", "scope", "rows", "prices", "kept", "quarantined", "unknown", "offers", "changed", "content")
UNTRIED_MESSAGE = "error.http-still-unreachable"
MAX_NAMED_COUNT = 12  # Largest number of unknown GPUs or files that a summary lists.


@command("refresh", epilog=True, undated="hint.no-as-of-now")
@click.argument("sources", nargs=-1, type=value_type(Words("source", source_names)), metavar="[SOURCE…]")
@option("--region", type=value_type(Names()), metavar="NAMES", help="option.refresh-region")
@option("--currency", metavar="CODE", help="option.refresh-currency")
@option("--accept", "--trust", is_flag=True)
def refresh(
    session: Session, sources: tuple[str, ...], region: tuple[str, ...] | None, currency: str | None, accept: bool
) -> int:
    """Fetch prices from sources into the user's price store and print what was stored; return the exit code."""
    from whichgpu.api.prices.store import catalog_refresh

    answer = catalog_refresh(
        sources,
        catalog=session.catalog,
        today=session.today,
        regions=region or (),
        currency=(currency or "USD").upper(),
        progress=progress_for(session),
        trusting=accept,
    )
    return _show_summary(session, answer)


@command("import", epilog=True, undated="hint.no-as-of-import")
@click.argument("path", metavar="FILE|FOLDER")
@option("--date", metavar="DATE")
@option("--accept", "--trust", is_flag=True)
def import_(session: Session, path: str, date: str | None, accept: bool) -> int:
    """Import prices from files into the user's price store and print what was stored; return the exit code."""
    from whichgpu.api.prices.store import catalog_import

    day = None if date is None else parse_as_of(date, session.today)
    answer = catalog_import(user_path(path), observed_on=day, catalog=session.catalog, today=session.today, trusting=accept)
    return _show_summary(session, answer)


@command("export", epilog=True)
@click.argument("file", required=False, metavar="[FILE]")
@option("--gpu", type=value_type(Names("gpus", many=False)), metavar="NAME")
def export(session: Session, file: str | None, gpu: str | None) -> None:
    """Write the prices of the user's price store to a file or standard output, for other tools."""
    from whichgpu.api.prices.store import catalog_export

    form = ".json" if session.format == "json" else ".csv"
    count = catalog_export(
        file, session.out, form=form, gpu=gpu, as_of=session.as_of, known_by=session.as_known, catalog=session.catalog
    )
    if file is not None:
        session.say(msg("prices.exported", n=count, name=file))


@command("forget", epilog=True, undated="hint.no-as-of-now")
@click.argument("name", metavar="SOURCE[/PART]")
def forget(session: Session, name: str) -> None:
    """Delete all prices of a source, or of one part of it, from the user's price store."""
    from whichgpu.api.prices.store import catalog_forget

    snapshots, offers = catalog_forget(name)
    if session.format == "json":
        session.show({"forgotten": name, "snapshots": snapshots, "offers": offers}, [], ())
        return
    session.say(msg("prices.forgotten", n=snapshots, name=name, offers=offers))


def _show_summary(session: Session, answer: PriceImportAnswer) -> int:
    """Print how many prices were stored and rejected, why, and which GPUs are unknown; return 3 if no source was readable."""
    good = [row for row in answer.snapshots if row.problem is None]
    code = 0 if good or not answer.failed else 3
    if session.format == "json":
        session.show(document(answer, session.language), [], ())
        return code
    sums = {"prices": answer.prices, "kept": answer.kept, "quarantined": answer.quarantined, "unknown": answer.unknown}
    if good or not answer.snapshots:
        session.say(msg("prices.taken" if good else "prices.unchanged", n=len(good), store=answer.store, **sums))
    else:
        session.say(msg("prices.nothing-taken", store=answer.store))
    if good:
        session.show(answer, good, COLUMNS)
    for reason, count in answer.reasons.items():
        session.say(msg("prices.reason", n=count, what=msg(f"quarantine.{reason}")))
    if answer.unknown_gpus:
        names = tuple(f"{name} ({count})" for name, count in list(answer.unknown_gpus.items())[:MAX_NAMED_COUNT])
        session.say(msg("prices.unknown", n=answer.unknown, names=names))
    if stale := [row for row in good if row.stale]:
        oldest = tuple(f"{row.scope} {row.content}" for row in sorted(stale, key=lambda row: row.content or "")[:MAX_NAMED_COUNT])
        session.say(msg("prices.stale", n=len(stale), names=oldest))
    if answer.passed_over:
        session.say(msg("prices.passed-over", names=answer.passed_over[:MAX_NAMED_COUNT]))
    _say_problems(session, [row for row in answer.snapshots if row.problem is not None])
    return code


def _say_problems(session: Session, failed: list[SnapshotRow]) -> None:
    """Print why each price source failed; sources skipped because their host had already failed are only counted."""
    untried = Counter(row.source for row in failed if row.problem and row.problem.id == UNTRIED_MESSAGE)
    for row in failed:
        if row.problem and row.problem.id != UNTRIED_MESSAGE:
            name = f"{row.source}/{row.scope}" if row.scope else row.source
            session.say(msg("prices.problem", name=name, what=row.problem))
    for source, count in untried.items():
        session.say(msg("prices.untried", n=count, name=source))
