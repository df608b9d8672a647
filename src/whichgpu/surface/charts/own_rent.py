"""Chart of owning against renting: cost per hour of work by utilisation, with the rent of each GPU."""

from __future__ import annotations

from collections.abc import Mapping

from whichgpu.api.prices.buy import BuyAnswer
from whichgpu.base.messages import Language
from whichgpu.surface.charts.parts import Spec, coloured, picture, quantity, tips


def own_rent_picture(answers: Mapping[float, BuyAnswer], language: Language) -> Spec:
    """Return a chart of the cost per hour of use, owned (a falling line) and rented (a level one), by utilisation."""
    text = language.text
    points, names, currency = [], [], ""
    for use, answer in sorted(answers.items()):
        for row in answer.rows:
            currency, name = row.own_per_hour.currency, f"{row.gpus}× {row.gpu_name}"
            names.append(name)
            for kind, money in (("own", row.own_per_hour), ("rent", row.rent_per_hour)):
                if money is not None:
                    cost = round(float(money.amount), 3)
                    points.append({"gpu": name, "kind": text(f"web.cost-{kind}"), "use": round(100 * use, 1), "cost": cost})
    names = list(dict.fromkeys(names))
    kinds = [text("web.cost-own"), text("web.cost-rent")]
    x = quantity("use", text("web.axis-use"), scale={"domain": [0, 100]})
    y = quantity("cost", text("web.axis-hour-cost", currency=currency))
    dash = {
        "field": "kind",
        "type": "nominal",
        "title": None,
        "sort": kinds,
        "scale": {"domain": kinds, "range": [[1, 0], [5, 4]]},
    }
    titles = tips(("gpu", text("web.tip-gpu")), ("kind", text("web.tip-line")), ("use", x["title"]), ("cost", y["title"]))
    return picture(
        text("web.described-own-rent", n=len(names)), 300, data={"values": points},
        mark={"type": "line", "strokeWidth": 2, "point": {"size": 24}},
        encoding={"x": x, "y": y, "color": coloured("gpu", names), "strokeDash": dash, "tooltip": titles},
    )  # fmt: skip
