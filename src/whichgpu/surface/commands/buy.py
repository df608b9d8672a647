"""`whichgpu buy`: cost of owning against renting, with every input."""

from __future__ import annotations

from whichgpu.api.prices import buy as verbs
from whichgpu.api.prices.buy import BuyAnswer, BuyRow
from whichgpu.api.request.offers import BuyRequest
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount, significant
from whichgpu.price.own import HOST_SHARE, MIN_HOST_PRICE
from whichgpu.surface.candidate_cells import cost_parts, money_text
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.listing import say_sources
from whichgpu.surface.commands.session import Session

COLUMNS = ("gpu", "price", "hour", "rent", "use", "months")
MAX_SOURCES = 6  # Sources listed under an answer.


@command("buy", BuyRequest, verbs.buy)
def show(session: Session, answer: BuyAnswer) -> None:
    """Print the cost of owning against renting: a sentence for each GPU, the table, and every input."""
    if session.show_data(answer, answer.rows):
        return
    for row in answer.rows:
        session.say(row_sentence(row, answer))
    text = session.language.text
    session.table([text(f"buy.column-{name}") for name in COLUMNS], [_cells(row) for row in answer.rows])
    for row in answer.rows:
        for line in row_lines(row, answer):
            session.say(line)
    for assumption in answer.assumptions:
        session.say(msg("recommend.assumed", what=assumption))
    default = text("buy.default")
    inputs = tuple(f"{name} {value}{' ' + default if name in answer.defaults else ''}" for name, value in answer.inputs.items())
    session.say(msg("buy.inputs", what=inputs))
    say_sources(session, answer.sources, MAX_SOURCES)


def row_sentence(row: BuyRow, answer: BuyAnswer) -> Message:
    """Return what a GPU costs to own and to rent, in one sentence."""
    values = {
        "gpus": row.gpus, "gpu": row.gpu_name, "price": format_amount(row.purchase.amount + row.host.amount),
        "currency": row.purchase.currency, "hour": format_amount(row.own_per_hour.amount), "use": f"{answer.inputs['use']:.0%}",
        "day": answer.as_of,
    }  # fmt: skip
    if row.rent is None or row.rent_per_hour is None:
        return msg("buy.sentence-alone", **values)
    rent, machine = format_amount(row.rent_per_hour.amount), f"{row.rent.provider} {row.rent.instance}"
    return msg("buy.sentence", rent=rent, machine=machine, seen=row.rent.observed_at, **values)


def _cells(row: BuyRow) -> list[str]:
    return [
        f"{row.gpus}x {row.gpu_name}",
        money_text(row.purchase),
        format_amount(row.own_per_hour.amount),
        format_amount(row.rent_per_hour.amount) if row.rent_per_hour else "",
        _share(row.break_even_use),
        significant(row.break_even_months) if row.break_even_months else "",
    ]


def row_lines(row: BuyRow, answer: BuyAnswer) -> list[Message]:
    """Return messages with cost parts, host, break-even and its sensitivity for one GPU."""
    hour = format_amount(row.own_per_hour.amount)
    lines = [msg("buy.parts", gpu=row.gpu_name, hour=hour, what=cost_parts("buy.part-", row.hour_lines))]
    if "host_price" in answer.defaults:
        values = {"share": f"{HOST_SHARE:.0%}", "least": f"{MIN_HOST_PRICE:g} USD"}
        lines.append(msg("recommend.assumed", what=msg("buy.host-usual", price=money_text(row.host), **values)))
    if row.rent is not None and row.rent_host is not None:
        machine = f"{row.rent.provider} {row.rent.instance}"
        lines.append(msg("recommend.assumed", what=msg("buy.rent-host", machine=machine, host=money_text(row.rent_host))))
    if row.rent is not None and row.rent.stale:
        lines.append(msg("recommend.lacks", what=msg("recommend.stale", day=row.rent.observed_at, n=row.rent.age_days)))
    lines += _break_even(row, answer)
    for name, (low, high) in row.sensitivity.items():
        lines.append(msg("buy.moves", name=msg(f"buy.input-{name}"), low=_share(low), high=_share(high)))
    return lines + [msg("recommend.host", what=advice) for advice in row.host_advice]


def _break_even(row: BuyRow, answer: BuyAnswer) -> list[Message]:
    years, months = f"{answer.inputs['years']:g}", row.break_even_months
    if row.break_even_use is None or row.break_even_hours is None:
        return [msg("buy.never", years=years)] if row.rent is not None else []
    values = {"use": _share(row.break_even_use), "hours": significant(row.break_even_hours), "years": years}
    if not months:  # At the given use the rent saved never pays for the GPUs.
        return [msg("buy.even-unused", **values)]
    lines = [msg("buy.even", months=significant(months), **values)]
    if months > 12 * float(answer.inputs["years"]) and answer.inputs["residual"]:
        lines.append(msg("buy.even-resale", years=years, value=money_text(row.residual_value)))
    return lines


def _share(value: float | None) -> str:
    return ">100%" if value is None else f"{value:.0%}"  # None: not even at full use.
