"""Chart of prices over time: a step line for each provider and term."""

from __future__ import annotations

from decimal import Decimal

from whichgpu.api.prices.history import HistoryAnswer
from whichgpu.base.messages import Language
from whichgpu.surface.charts.parts import MAX_LINES, Spec, coloured, dashed, file_chart, picture, quantity, tips


def history_chart(answer: HistoryAnswer, language: Language) -> Spec:
    """Return the chart of `catalog history --plot`: lowest prices per GPU hour over time, by provider and term."""
    names = ", ".join(dict.fromkeys(row.gpu_name for row in answer.history))
    return file_chart((language.text("chart.history", gpu=names), history_picture(answer, names, language)))


def history_picture(answer: HistoryAnswer, gpu: str, language: Language) -> Spec:
    """Return a chart of the lowest price per GPU hour by provider and term; at most MAX_LINES.

    Half of the lines are those with the lowest latest price, the others those with the most changes.
    """
    text = language.text
    lines: dict[str, list[Spec]] = {}
    for row in answer.history:
        name = language.listed((row.provider, text(f"term.{row.term}")))
        price = float(row.price_per_gpu_hour.amount.quantize(Decimal("0.0001")))
        days = dict.fromkeys((row.observed, row.last_observed))
        lines.setdefault(name, []).extend({"line": name, "day": day, "date": day, "price": price} for day in days)
    cheapest = sorted(lines, key=lambda name: (_latest_price(lines[name]), name))
    changing = sorted(lines, key=lambda name: (-len(lines[name]), name))
    names = list(dict.fromkeys((*cheapest[: MAX_LINES // 2], *changing)))[:MAX_LINES]
    values = [point for name in names for point in sorted(lines[name], key=lambda point: str(point["day"]))]
    axis = {"tickCount": 6, "title": None, "format": "%Y-%m"}
    x = {"field": "day", "type": "temporal", "title": text("web.tip-day"), "axis": axis}
    y = quantity("price", text("web.axis-gpu-hour", currency="USD"))
    return picture(
        text("web.described-history", gpu=gpu, n=len(names)),
        320,
        data={"values": values},
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        encoding={
            "x": x, "y": y,
            "color": coloured("line", names, legend={"columns": 3}), "strokeDash": dashed("line", names),
            "tooltip": tips(("line", text("web.tip-line")), ("date", text("web.tip-day")), ("price", y["title"])),
        },
    )  # fmt: skip


def _latest_price(points: list[Spec]) -> float:
    """Return the lowest price on the last day of a line."""
    last = max(str(point["day"]) for point in points)
    return min(float(point["price"]) for point in points if point["day"] == last)
