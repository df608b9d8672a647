"""`whichgpu catalog watch`: exit 0 when a GPU can be had below a price."""

from __future__ import annotations

from typing import Any

import click

from whichgpu.base.errors import UsageError
from whichgpu.base.files import user_path
from whichgpu.base.messages import msg
from whichgpu.base.money import Money, parse_money
from whichgpu.catalog.offer import TERMS
from whichgpu.surface.cli.click_parts import GPU, SELLER, Parsed, Words, command, option
from whichgpu.surface.commands.price_history import say_without_rate, show_changes, words
from whichgpu.surface.commands.session import Session


def parse_limit(text: str) -> Money:
    """A price per GPU and hour: `2usd/h`, or `2 usd`."""
    money, period = parse_money(text)
    if period not in (None, "hour"):
        raise UsageError("bad-limit", msg("error.bad-limit", text=text), msg("hint.bad-limit"))
    return money


@command("watch", epilog=True, id="catalog-watch", undated="hint.no-as-of-watch")
@option("--gpu", type=GPU, metavar="NAME")
@option("--below", type=Parsed("money", parse_limit), metavar="MONEY")
@option("--provider", type=SELLER, metavar="NAME")
@option("--region", metavar="NAME", help="option.region-exact")
@option("--term", type=Words("term", TERMS, many=True), metavar="TERMS")
@option("--max-age", type=click.IntRange(0, 36500), metavar="DAYS", default=30)
@option("--prices", "overlay", type=Parsed("path", user_path), metavar="FILE")
def watch(session: Session, below: Money | None, term: tuple[str, ...] | None, **wanted: Any) -> int:
    """Exit 0 with the offers below a price; otherwise tell what changed since the last look, and exit 1."""
    from whichgpu.api.prices.changes import catalog_watch

    answer = catalog_watch(
        below=below, terms=term or ("on-demand", "spot"), today=session.today, catalog=session.catalog, **wanted
    )
    say_without_rate(session, answer.without_rate)
    if answer.met and below is not None:
        session.say(msg("watch.met", n=len(answer.offers), limit=words(below)))
        if session.format in ("json", "csv") or session.columns:
            session.show(answer, answer.offers, ())
        else:
            names = ("price_per_gpu_hour", "machine", "gpus", "term", "observed_at", "availability")
            cells = [
                [
                    words(row.price_per_gpu_hour),
                    f"{row.provider} {row.instance} {row.region}",
                    f"{row.gpus:g}x {row.gpu_name}",
                    row.term,
                    row.observed_at,
                    row.availability or "" if row.standing == "list" else session.language.text(f"standing.{row.standing}"),
                ]
                for row in answer.offers
            ]
            session.table([session.language.text(f"history.{name}") for name in names], cells)
        session.say(msg("watch.no-promise"))
        return 0
    if below is not None:
        session.say(msg("watch.unmet", n=answer.compared, limit=words(below)))
    if answer.too_old:
        session.say(msg("watch.too-old", n=answer.too_old, days=wanted["max_age"]))
    if not answer.compared and not answer.too_old:
        session.say(msg("watch.none-known"))
    session.say(msg("watch.first") if answer.first else msg("watch.changes", n=len(answer.changes)))
    show_changes(session, answer, answer.changes)
    return 0 if below is None and answer.changes else 1
