"""`whichgpu catalog watch`: exit 0 if a GPU is offered below a price."""

from __future__ import annotations

from typing import Any

import click

from whichgpu.api.request.catalog import TERM_LIST
from whichgpu.api.request.kinds import File, Names, Parsed
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.money import Money, parse_money
from whichgpu.surface.cli.click_parts import command, option, value_type
from whichgpu.surface.commands.price_history import money_text, say_without_rate, show_changes
from whichgpu.surface.commands.session import Columns, Session


def parse_limit(text: str) -> Money:
    """Return a price per GPU hour, parsed from text such as `2usd/h` or `2 usd`."""
    money, period = parse_money(text)
    if period not in (None, "hour"):
        raise UsageError("bad-limit", msg("error.bad-limit", text=text), msg("hint.bad-limit"))
    return money


@command("watch", epilog=True, id="catalog-watch", undated="hint.no-as-of-watch")
@option("--gpu", type=value_type(Names("gpus", many=False)), metavar="NAME")
@option("--below", type=value_type(Parsed(parse_limit)), metavar="MONEY")
@option("--provider", type=value_type(Names("providers", many=False)), metavar="NAME")
@option("--region", metavar="NAME", help="option.region-exact")
@option("--term", type=value_type(TERM_LIST), metavar="TERMS")
@option("--max-age", type=click.IntRange(0, 36500), metavar="DAYS", default=30)
@option("--prices", "overlay", type=value_type(File()), metavar="FILE")
def watch(session: Session, below: Money | None, term: tuple[str, ...] | None, **filters: Any) -> int:
    """Exit 0 with the offers below a price; otherwise print the changes since the last snapshot and exit 1."""
    from whichgpu.api.prices.changes import catalog_watch

    answer = catalog_watch(
        below=below, terms=term or ("on-demand", "spot"), today=session.today, catalog=session.catalog, **filters
    )
    say_without_rate(session, answer.without_rate)
    if answer.met and below is not None:
        session.say(msg("watch.met", n=len(answer.offers), limit=money_text(below)))
        text = session.language.text
        columns: Columns = [
            ("price_per_gpu_hour", lambda row: money_text(row.price_per_gpu_hour)),
            ("machine", lambda row: f"{row.provider} {row.instance} {row.region}"),
            ("gpus", lambda row: f"{row.gpus:g}x {row.gpu_name}"),
            ("term", lambda row: row.term),
            ("observed_at", lambda row: row.observed_at),
            ("availability", lambda row: row.availability or "" if row.standing == "list" else text(f"standing.{row.standing}")),
        ]
        session.show_columns(answer, answer.offers, "history.", columns)
        session.say(msg("watch.no-promise"))
        return 0
    if below is not None:
        session.say(msg("watch.unmet", n=answer.compared, limit=money_text(below)))
    if answer.too_old:
        session.say(msg("watch.too-old", n=answer.too_old, days=filters["max_age"]))
    if not answer.compared and not answer.too_old:
        session.say(msg("watch.none-known"))
    session.say(msg("watch.first") if answer.first else msg("watch.changes", n=len(answer.changes)))
    show_changes(session, answer, answer.changes)
    return 0 if below is None and answer.changes else 1
