"""The part of the plan page about one server under a request load: latencies, capacity and throughput-latency curve."""

from __future__ import annotations

from typing import Any

from whichgpu.base.messages import Language
from whichgpu.base.units import format_seconds, significant
from whichgpu.estimate.serving.serving_answer import ServingAnswer
from whichgpu.estimate.serving.summary import PERCENTILES
from whichgpu.surface.charts.parts import Spec
from whichgpu.surface.charts.serving import METRICS, curve_picture
from whichgpu.surface.commands.render.serving import has_single_token_answers
from whichgpu.surface.web.panels.cards import Card, figure_card, range_text


def server_charts(serving: ServingAnswer, language: Language) -> dict[str, Spec]:
    """Return charts of time to first token and time between tokens against the request rate."""
    charted = [metric for metric in _metrics(serving) if metric != "latency"] if len(serving.curve) > 1 else []
    return {metric: curve_picture(serving, metric, language) for metric in charted}


def server_content(serving: ServingAnswer, language: Language) -> dict[str, Any]:
    """Return the template values of a server under load: cards, latency percentiles, and latencies by request rate."""
    times = [
        {
            "name": language.text(f"chart.serving-{metric}"),
            "at": [
                (format_seconds(figure.value), range_text(figure, format_seconds, language))
                for figure in (getattr(serving, metric)[f"p{one:g}"] for one in PERCENTILES)
            ],
        }
        for metric in _metrics(serving)
    ]
    curve = [
        {
            "rate": significant(point.rate), "throughput": significant(point.throughput), "saturated": point.saturated,
            "ttft": [format_seconds(seconds) for seconds in point.ttft],
            "tpot": [format_seconds(seconds) for seconds in point.tpot],
        }
        for point in serving.curve
    ]  # fmt: skip
    return {"cards": _cards(serving, language), "times": times, "curve": curve}


def _metrics(serving: ServingAnswer) -> tuple[str, ...]:
    """Return the names of the latencies to display: responses of one token have no time between tokens."""
    return tuple(metric for metric in METRICS if metric != "tpot" or not has_single_token_answers(serving))


def _cards(serving: ServingAnswer, language: Language) -> list[Card]:
    seconds = {"ttft-p50": serving.ttft["p50"], "ttft-p99": serving.ttft["p99"]}
    if not has_single_token_answers(serving):
        seconds["tpot-p50"] = serving.tpot["p50"]
    rates = {"sustains": (serving.sustainable_rate, "requests/s")}
    if serving.allowed_rate is not None:
        rates["allows"] = (serving.allowed_rate, "requests/s")
    rates["throughput"] = (serving.throughput, serving.throughput.unit)
    text = language.text
    return [
        *(figure_card(text(f"web.card-{name}"), figure, format_seconds, language) for name, figure in seconds.items()),
        *(figure_card(text(f"web.card-{name}"), figure, significant, language, unit) for name, (figure, unit) in rates.items()),
    ]
