"""Text of an estimate under a request load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from whichgpu.estimate.serving.serving_answer import ServingAnswer


def figures(answer: EstimateAnswer) -> list[tuple[str, Figure]]:
    """Return the figures of serving under load (latency percentiles, request rates) with their names, in display order."""
    serving = answer.serving
    if serving is None:
        return []
    between = () if has_single_token_answers(serving) else ("tpot",)
    figures = [("ttft_no_load", serving.ttft_no_load), *(("tpot_no_load", serving.tpot_no_load) for _ in between)]
    for name in ("ttft", *between, "latency"):
        figures += [(f"{name}_{at}", figure) for at, figure in getattr(serving, name).items()]
    figures += [("answered_rate", serving.answered_rate), ("sustainable_rate", serving.sustainable_rate)]
    more = (("goodput", serving.goodput), ("allowed_rate", serving.allowed_rate))
    return [*figures, *((name, figure) for name, figure in more if figure is not None)]


def has_single_token_answers(serving: ServingAnswer | None) -> bool:
    """Whether responses have only one token, so that there is no time between tokens."""
    return serving is not None and serving.load.mean_output <= 1.0


def overload(answer: EstimateAnswer, serving: ServingAnswer) -> Message:
    """Return a message which says that the request rate exceeds the capacity."""
    capacity = significant(serving.sustainable_rate.value)
    values = {"gpus": answer.request["gpus"], "gpu": answer.request["gpu"], "rate": significant(serving.load.rate)}
    return msg("web.saturated", most=capacity, **values)


def say_load(session: Session, answer: EstimateAnswer) -> None:
    """Print latencies, capacity and engine limits under the load; on a terminal also the throughput-latency curve."""
    serving = answer.serving
    if serving is None:
        return
    load, text = serving.load, session.language.text
    session.say(
        msg(
            "serving.sentence-first" if has_single_token_answers(serving) else "serving.sentence",
            rate=f"{load.rate:.3g}", simulated=load.requests, copies=serving.copies,
            ttft=format_seconds(serving.ttft["p50"].value), ttft_late=format_seconds(serving.ttft["p99"].value),
            tpot=format_seconds(serving.tpot["p50"].value), tpot_late=format_seconds(serving.tpot["p99"].value),
        )
    )  # fmt: skip
    rate = serving.sustainable_rate
    session.say(msg("serving.sustains", rate=significant(rate.value), low=significant(rate.low), high=significant(rate.high)))
    if serving.allowed_rate is not None:
        allowed = serving.allowed_rate
        ends = {"low": significant(allowed.low), "high": significant(allowed.high)}
        session.say(msg("serving.allows", rate=significant(allowed.value), **ends))
    limits = serving.limits
    session.say(
        msg(
            "serving.limits", tokens=limits.max_batched_tokens, sequences=limits.max_sequences, block=limits.block_tokens,
            cache=f"{limits.cache_tokens:,}", share=f"{100 * limits.memory_share:.0f}",
        )
    )  # fmt: skip
    if serving.cached_share > 0:
        session.say(msg("serving.cached", share=f"{100 * serving.cached_share:.0f}"))
    if session.format is None and session.out.isatty():
        from whichgpu.surface.charts.serving import curve_lines

        for line in curve_lines(serving.curve, text):
            session.note(line)
