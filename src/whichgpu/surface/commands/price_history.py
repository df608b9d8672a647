"""`whichgpu catalog history` and `diff`: prices over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichgpu.api.prices.changes import diff as answer_diff
from whichgpu.api.prices.history import history as answer_history
from whichgpu.api.request.catalog import DiffRequest, HistoryRequest
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.base.units import significant
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.plot_file import check_plot, plot_path
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from whichgpu.api.prices.changes import ChangeRow, DiffAnswer
    from whichgpu.api.prices.history import HistoryAnswer, Trend

KINDS = ("new", "gone", "up", "down")


@command("catalog history", HistoryRequest, has_examples=True)
def history(session: Session, request: Request) -> HistoryAnswer:
    """How prices went."""
    check_plot(request)
    answer = answer_history(request, session.context())  # type: ignore[arg-type]
    if path := plot_path(request):
        from whichgpu.surface.charts.price import history_chart
        from whichgpu.surface.charts.vega import write_chart

        write_chart(history_chart(answer, session.language, str(request["gpu"])), path)
    return answer


@history.shows
def show_history(session: Session, answer: HistoryAnswer) -> None:
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
    say_without_rate(session, answer.without_rate)
    if plot := session.asked.get("plot"):
        session.say(msg("history.plotted", name=plot))


@command("catalog diff", DiffRequest, has_examples=True, undated="hint.no-as-of-diff")
def diff(session: Session, request: Request) -> DiffAnswer:
    """What changed between two moments."""
    return answer_diff(request, session.context())  # type: ignore[arg-type]


@diff.shows
def show_diff(session: Session, answer: DiffAnswer) -> int:
    """Change by change; exit 1 where there is none."""
    counts = {kind: sum(row.kind == kind for row in answer.changes) for kind in KINDS}
    session.say(msg("diff.sentence", a=answer.a, b=answer.b, same=answer.same, **counts))
    show_changes(session, answer, answer.changes)
    return 0 if answer.changes else 1


def _trend(trend: Trend) -> Message:
    """The lowest then, now, and the change."""
    first, last = trend.first, trend.last
    values = {"before": words(first.price_per_gpu_hour), "after": words(last.price_per_gpu_hour)}
    sellers = {"seller": f"{first.gpu_name}, {first.provider}", "other": f"{last.gpu_name}, {last.provider}"}
    change = percent(trend.change) or "0%"
    return msg(
        "history.trend", term=trend.term, first=first.observed, last=last.last_observed, change=change, **values, **sellers
    )


def say_without_rate(session: Session, without_rate: dict[str, int]) -> None:
    """How many prices were left out for lack of an exchange rate, by currency."""
    for code, count in without_rate.items():
        session.say(msg("history.without-rate", n=count, currency=code))


def show_changes(session: Session, answer: object, changes: tuple[ChangeRow, ...]) -> None:
    """Changes of prices, one a row."""
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
