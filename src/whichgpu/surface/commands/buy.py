"""`whichgpu buy`: owning against renting, with all that was put in."""

from __future__ import annotations

from whichgpu.api.prices import buy as verbs
from whichgpu.api.prices.buy import BuyAnswer, BuyRow
from whichgpu.api.request.offers import BuyRequest
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount, significant
from whichgpu.price.own import HOST_LEAST, HOST_SHARE
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.sources import say_sources
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document

HEADS = ("gpu", "price", "hour", "rent", "use", "months")


@command("buy", BuyRequest, has_examples=True)
def buy(session: Session, request: Request) -> BuyAnswer:
    """Own or rent."""
    return verbs.buy(request, session.context())  # type: ignore[arg-type]


@buy.shows
def show(session: Session, answer: BuyAnswer) -> None:
    """A sentence for each, the table, and all that was put in."""
    if session.format == "json":
        session.emit(document(answer, session.language))
        return
    if session.format == "csv" or session.columns:
        session.show(answer, [document(row, session.language) for row in answer.rows], ())
        return
    for row in answer.rows:
        session.say(_sentence(row, answer))
    text = session.language.text
    session.table([text(f"buy.column-{name}") for name in HEADS], [_cells(row) for row in answer.rows])
    for line in _lines(answer, session):
        session.say(line)
    say_sources(session, answer.sources, 6)


def _sentence(row: BuyRow, answer: BuyAnswer) -> Message:
    values = {
        "gpus": row.gpus, "gpu": row.gpu_name, "price": format_amount(row.purchase.amount + row.host.amount),
        "currency": row.purchase.currency, "hour": format_amount(row.own_per_hour.amount), "use": f"{answer.inputs['use']:.0%}",
        "day": answer.as_of,
    }  # fmt: skip
    if row.rent is None or row.rent_per_hour is None:
        return msg("buy.sentence-alone", **values)
    return msg(
        "buy.sentence", rent=format_amount(row.rent_per_hour.amount), machine=f"{row.rent.provider} {row.rent.instance}",
        seen=row.rent.observed_at, **values
    )  # fmt: skip


def _cells(row: BuyRow) -> list[str]:
    return [
        f"{row.gpus}x {row.gpu_name}",
        f"{format_amount(row.purchase.amount)} {row.purchase.currency}",
        format_amount(row.own_per_hour.amount),
        format_amount(row.rent_per_hour.amount) if row.rent_per_hour else "",
        _share(row.break_even_use),
        significant(row.break_even_months) if row.break_even_months else "",
    ]


def _lines(answer: BuyAnswer, session: Session) -> list[Message]:
    said = []
    for row in answer.rows:
        parts = tuple(
            msg("recommend.cost-line", name=msg(f"buy.part-{name}"), cost=format_amount(one.amount), currency=one.currency)
            for name, one in row.hour_lines.items()
        )
        said.append(msg("buy.parts", gpu=row.gpu_name, hour=format_amount(row.own_per_hour.amount), what=parts))
        if "host_price" in answer.defaults:
            values = {"share": f"{HOST_SHARE:.0%}", "least": f"{HOST_LEAST:g} USD"}
            host = f"{format_amount(row.host.amount)} {row.host.currency}"
            said.append(msg("recommend.assumed", what=msg("buy.host-usual", price=host, **values)))
        if row.rent is not None and row.rent_host is not None:
            host = f"{format_amount(row.rent_host.amount)} {row.rent_host.currency}"
            machine = f"{row.rent.provider} {row.rent.instance}"
            said.append(msg("recommend.assumed", what=msg("buy.rent-host", machine=machine, host=host)))
        if row.rent is not None and row.rent.stale:
            said.append(msg("recommend.lacks", what=msg("recommend.stale", day=row.rent.observed_at, n=row.rent.age_days)))
        years = f"{answer.inputs['years']:g}"
        if row.break_even_use is not None and row.break_even_hours is not None:
            months = significant(row.break_even_months) if row.break_even_months else "-"
            said.append(
                msg(
                    "buy.even",
                    use=_share(row.break_even_use),
                    hours=significant(row.break_even_hours),
                    years=years,
                    months=months,
                )
            )
            if row.break_even_months and row.break_even_months > 12 * float(answer.inputs["years"]) and answer.inputs["residual"]:
                value = f"{format_amount(row.residual_value.amount)} {row.residual_value.currency}"
                said.append(msg("buy.even-resale", years=years, value=value))
        elif row.rent is not None:
            said.append(msg("buy.never", years=years))
        for name, (low, high) in row.sensitivity.items():
            said.append(msg("buy.moves", name=msg(f"buy.input-{name}"), low=_share(low), high=_share(high)))
        said += [msg("recommend.host", what=one) for one in row.host_advice]
    said += [msg("recommend.assumed", what=one) for one in answer.assumptions]
    default = session.language.text("buy.default")
    told = tuple(f"{name} {value}{' ' + default if name in answer.defaults else ''}" for name, value in answer.inputs.items())
    return [*said, msg("buy.inputs", what=told)]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
