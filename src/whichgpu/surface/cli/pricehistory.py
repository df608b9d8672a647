"""`whichgpu catalog history`, `diff` and `watch`: prices over time."""

from __future__ import annotations

from typing import Any

import click

from whichgpu import api
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money, parse_money
from whichgpu.base.units import significant
from whichgpu.catalog.offer import TERMS
from whichgpu.surface.cli.frame import GPU, SELLER, Parsed, Words, catalog_of, command, option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.settings import user_path

KINDS = ("new", "gone", "up", "down")


def parse_limit(text: str) -> Money:
    """A price per GPU and hour: `2usd/h`, or `2 usd`."""
    money, period = parse_money(text)
    if period not in (None, "hour"):
        raise UsageError("bad-limit", msg("error.bad-limit", text=text), msg("hint.bad-limit"))
    return money


@command("history", "[OPTIONS]", epilog=True)
@option("--gpu", type=GPU, metavar="NAME", required=True)
@option("--provider", type=SELLER, metavar="NAME")
@option("--region", metavar="NAME", help="option.region-exact")
@option("--instance", metavar="NAME", help="option.instance-exact")
@option("--term", type=Words("term", TERMS, many=True), metavar="TERMS")
@option("--every", is_flag=True)
@option("--plot", metavar="FILE", help="option.history-plot")
def history(
    session: Session, gpu: str, term: tuple[str, ...] | None, every: bool, plot: str | None, **place: Any
) -> api.HistoryAnswer:
    """How prices went."""
    if plot:
        from whichgpu.surface.charts import check_plot

        check_plot(plot)
    answer = api.catalog_history(
        gpu, terms=term or ("on-demand", "spot"), every=every, as_of=session.as_of, catalog=catalog_of(session), **place
    )
    if plot:
        from whichgpu.surface.charts import write_chart
        from whichgpu.surface.pricechart import history_chart

        write_chart(history_chart(answer, session.language, gpu), plot)
    return answer


@history.shows
def show_history(session: Session, answer: api.HistoryAnswer) -> None:
    """Price by price, or the lowest of each seller."""
    rows = answer.history
    headline = msg("history.lowest" if answer.summary else "history.every", n=len(rows), first=rows[0].observed)
    if session.format in ("json", "csv") or session.columns:
        session.show(answer, rows, (), headline)
    else:
        session.say(headline)
        names = ("gpu_name", "provider", "machine", "term", "price_per_gpu_hour", "change", "observed", "last_observed")
        cells = [
            [
                row.gpu_name,
                row.provider,
                f"{row.instance} {row.region}",
                ", ".join(filter(None, (row.term, row.payment))),
                words(row.price_per_gpu_hour),
                percent(row.change),
                row.observed,
                row.last_observed,
            ]
            for row in rows
        ]
        session.table([session.language.text(f"history.{name}") for name in names], cells)
    for trend in answer.trends:
        session.say(_trend(trend))
    _say_without_rate(session, answer.without_rate)
    if plot := session.asked.get("plot"):
        session.say(msg("history.plotted", name=plot))


@command("diff", "[OPTIONS]", epilog=True, undated="hint.no-as-of-diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@option("--gpu", type=GPU, metavar="NAME")
@option("--provider", type=SELLER, metavar="NAME")
def diff(session: Session, a: str, b: str, gpu: str | None, provider: str | None) -> api.DiffAnswer:
    """What changed between two moments."""
    return api.catalog_diff(a, b, gpu=gpu, provider=provider, today=session.today, catalog=catalog_of(session))


@diff.shows
def show_diff(session: Session, answer: api.DiffAnswer) -> int:
    """Change by change; exit 1 where there is none."""
    counts = {kind: sum(row.kind == kind for row in answer.changes) for kind in KINDS}
    session.say(msg("diff.sentence", a=answer.a, b=answer.b, same=answer.same, **counts))
    _show_changes(session, answer, answer.changes)
    return 0 if answer.changes else 1


@command("watch", "[OPTIONS]", epilog=True, id="catalog-watch", undated="hint.no-as-of-watch")
@option("--gpu", type=GPU, metavar="NAME")
@option("--below", type=Parsed("money", parse_limit), metavar="MONEY")
@option("--provider", type=SELLER, metavar="NAME")
@option("--region", metavar="NAME", help="option.region-exact")
@option("--term", type=Words("term", TERMS, many=True), metavar="TERMS")
@option("--max-age", type=click.IntRange(0, 36500), metavar="DAYS", default=30)
@option("--prices", "overlay", type=Parsed("path", user_path), metavar="FILE")
def watch(session: Session, below: Money | None, term: tuple[str, ...] | None, **wanted: Any) -> int:
    """Exit 0 with the offers below a price; otherwise tell what changed since the last look, and exit 1."""
    answer = api.catalog_watch(
        below=below, terms=term or ("on-demand", "spot"), today=session.today, catalog=catalog_of(session), **wanted
    )
    _say_without_rate(session, answer.without_rate)
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
    _show_changes(session, answer, answer.changes)
    return 0 if below is None and answer.changes else 1


def _trend(trend: api.Trend) -> Message:
    """The lowest then, now, and the change."""
    first, last = trend.first, trend.last
    values = {"before": words(first.price_per_gpu_hour), "after": words(last.price_per_gpu_hour)}
    sellers = {"seller": f"{first.gpu_name}, {first.provider}", "other": f"{last.gpu_name}, {last.provider}"}
    change = percent(trend.change) or "0%"
    return msg(
        "history.trend", term=trend.term, first=first.observed, last=last.last_observed, change=change, **values, **sellers
    )


def _say_without_rate(session: Session, without_rate: dict[str, int]) -> None:
    for code, count in without_rate.items():
        session.say(msg("history.without-rate", n=count, currency=code))


def _show_changes(session: Session, answer: object, changes: tuple[api.ChangeRow, ...]) -> None:
    if session.format in ("json", "csv") or (session.columns and changes):
        session.show(answer, changes, ())
        return
    if not changes:
        return
    text = session.language.text
    names = ("kind", "machine", "gpus", "term", "before", "after", "change")
    cells = [
        [
            text(f"change.{row.kind}"),
            f"{row.provider} {row.instance} {row.region}",
            f"{row.gpus:g}x {row.gpu_name}",
            ", ".join(filter(None, (row.term, row.payment))),
            words(row.before) if row.before else "",
            words(row.after) if row.after else "",
            percent(row.change),
        ]
        for row in changes
    ]
    session.table([text(f"history.{name}") for name in names], cells)


def words(money: Money) -> str:
    """Money as people read it, to four digits after the point.

    >>> from decimal import Decimal
    >>> words(Money(Decimal("1.50000"), "USD")), words(Money(Decimal("12345.678"), "KRW"))
    ('1.5 USD', '12,345.678 KRW')
    """
    amount = round(money.amount, 4)
    text = f"{amount:,f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {money.currency}"


def percent(share: float | None) -> str:
    """A change with its sign: +12%, -3.5%."""
    if share is None:
        return ""
    return f"{'+' if share > 0 else '-' if share < 0 else ''}{significant(abs(share) * 100)}%"
