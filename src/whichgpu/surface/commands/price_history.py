"""`whichgpu catalog history` and `diff`: prices over time."""

from __future__ import annotations

from whichgpu.api.prices.changes import ChangeRow, DiffAnswer
from whichgpu.api.prices.changes import diff as answer_diff
from whichgpu.api.prices.history import HistoryAnswer, HistoryRow, Trend
from whichgpu.api.prices.history import history as answer_history
from whichgpu.api.request.catalog import DiffRequest, HistoryRequest
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.base.units import significant
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.session import Columns, Session

KINDS = ("new", "gone", "up", "down")


@command("catalog history", HistoryRequest, answer_history, chart="prices.history_chart")
def show_history(session: Session, answer: HistoryAnswer) -> None:
    """Print a GPU's prices over time: every price, or the lowest of each provider."""
    rows = answer.history
    headline = msg("history.lowest" if answer.summary else "history.every", n=len(rows), first=rows[0].observed)
    columns: Columns = [
        ("gpu_name", lambda row: row.gpu_name),
        ("provider", lambda row: row.provider),
        ("machine", lambda row: f"{row.instance} {row.region}"),
        ("term", _term),
        ("price_per_gpu_hour", lambda row: money_text(row.price_per_gpu_hour)),
        ("change", lambda row: percent(row.change)),
        ("observed", lambda row: row.observed),
        ("last_observed", lambda row: row.last_observed),
    ]
    session.show_columns(answer, rows, "history.", columns, headline)
    for trend in answer.trends:
        session.say(_trend(trend))
    say_without_rate(session, answer.without_rate)
    if plot := session.request.get("plot"):
        session.say(msg("history.plotted", name=plot))


@command("catalog diff", DiffRequest, answer_diff, undated="hint.no-as-of-diff")
def show_diff(session: Session, answer: DiffAnswer) -> int:
    """Print each price change; exit code 1 if there is none."""
    counts = {kind: sum(row.kind == kind for row in answer.changes) for kind in KINDS}
    session.say(msg("diff.sentence", a=answer.a, b=answer.b, same=answer.same, **counts))
    show_changes(session, answer, answer.changes)
    return 0 if answer.changes else 1


def _trend(trend: Trend) -> Message:
    """Return a message with a term's lowest price when first and last seen, and the change between them."""
    first, last = trend.first, trend.last
    values = {"before": money_text(first.price_per_gpu_hour), "after": money_text(last.price_per_gpu_hour)}
    sellers = {"seller": f"{first.gpu_name}, {first.provider}", "other": f"{last.gpu_name}, {last.provider}"}
    change = percent(trend.change) or "0%"
    return msg(
        "history.trend", term=trend.term, first=first.observed, last=last.last_observed, change=change, **values, **sellers
    )


def say_without_rate(session: Session, without_rate: dict[str, int]) -> None:
    """Print how many prices were left out because no exchange rate is known, by currency."""
    for code, count in without_rate.items():
        session.say(msg("history.without-rate", n=count, currency=code))


def show_changes(session: Session, answer: object, changes: tuple[ChangeRow, ...]) -> None:
    """Print price changes, one per row."""
    if not changes and session.format not in ("json", "csv"):
        return
    text = session.language.text
    columns: Columns = [
        ("kind", lambda row: text(f"change.{row.kind}")),
        ("machine", lambda row: f"{row.provider} {row.instance} {row.region}"),
        ("gpus", lambda row: f"{row.gpus:g}x {row.gpu_name}"),
        ("term", _term),
        ("before", lambda row: money_text(row.before) if row.before else ""),
        ("after", lambda row: money_text(row.after) if row.after else ""),
        ("change", lambda row: percent(row.change)),
    ]
    session.show_columns(answer, changes, "history.", columns)


def _term(row: HistoryRow | ChangeRow) -> str:
    return ", ".join(filter(None, (row.term, row.payment)))


def money_text(money: Money) -> str:
    """Return an amount of money as text with at most four decimals.

    >>> from decimal import Decimal
    >>> money_text(Money(Decimal("1.50000"), "USD")), money_text(Money(Decimal("12345.678"), "KRW"))
    ('1.5 USD', '12,345.678 KRW')
    """
    amount = round(money.amount, 4)
    text = f"{amount:,f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {money.currency}"


def percent(share: float | None) -> str:
    """Return a price change, given as a share of the old price, as text with its sign: +12%, -3.5%."""
    if share is None:
        return ""
    return f"{'+' if share > 0 else '-' if share < 0 else ''}{significant(abs(share) * 100)}%"
