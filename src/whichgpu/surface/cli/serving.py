"""Flags of a load on a server, and how an answer under load is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichgpu.api.estimates import EstimateAnswer
from whichgpu.api.requests import MOST_COUNT
from whichgpu.base.errors import UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.surface.cli.frame import option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.settings import user_path
from whichgpu.workload.kinds import Kind, Number, Refused, Whole

if TYPE_CHECKING:
    from whichgpu.api.serving import Asked
    from whichgpu.estimate.serving.answer import ServingAnswer

SWITCHES = ("chunked_prefill", "mixed_steps", "prefix_caching")
LIMITS: dict[str, Kind] = {
    "max_batched_tokens": Whole(1, 1 << 18),
    "max_sequences": Whole(1, 8192),
    "block_tokens": Whole(1, 4096),
    "memory_share": Number(high=1.0),
}
NUMBERS: dict[str, Kind] = {
    "count": Whole(1, MOST_COUNT),
    "seed": Whole(0, 2**31 - 1),
    "burstiness": Number(high=1000.0),
    "in_spread": Number(high=5.0),
    "out_spread": Number(high=5.0),
}
HISTOGRAMS = ("in_histogram", "out_histogram")
FLAGS = ("trace", "plot", *NUMBERS, *HISTOGRAMS, *LIMITS, *SWITCHES)
_PART = re.compile(r"\s*(\d{1,8})\s*:\s*(\d{1,12}(?:\.\d{1,12})?)\s*")


def load_options(function: Any) -> Any:
    """Add a flag for everything about a load that is no field of a workload."""
    for name in reversed(SWITCHES):
        dashed = name.replace("_", "-")
        function = option(f"--{dashed}/--no-{dashed}", name, default=None, help=f"option.serving-{dashed}")(function)
    for name in reversed((*NUMBERS, *HISTOGRAMS, *LIMITS)):
        dashed = name.replace("_", "-")
        metavar = "TOKENS:WEIGHT,…" if name in HISTOGRAMS else "N"
        function = option(f"--{dashed}", name, metavar=metavar, help=f"option.serving-{dashed}")(function)
    function = option("--plot", metavar="FILE", help="option.serving-plot")(function)
    return option("--trace", metavar="FILE", help="option.serving-trace")(function)


def taken(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags of a load, out of all flags; only those given."""
    found = {name: flags.pop(name) for name in FLAGS}
    return {name: value for name, value in found.items() if value is not None}


def asked(given: dict[str, Any]) -> Asked:
    """The load these flags spell."""
    from whichgpu.api.serving import Asked
    from whichgpu.estimate.serving.limits import Overrides

    values = {name: _read(name, kind, given[name]) for name, kind in (*NUMBERS.items(), *LIMITS.items()) if name in given}
    histograms: dict[str, Any] = {name: _histogram(name, given[name]) for name in HISTOGRAMS if name in given}
    limits = {name: value for name, value in values.items() if name in LIMITS}
    limits |= {name: given[name] for name in SWITCHES if name in given}
    own = {name: value for name, value in values.items() if name in NUMBERS and name != "count"}
    trace: Path | None = user_path(given["trace"]) if "trace" in given else None
    return Asked(trace=trace, requests=values.get("count"), limits=Overrides(**limits), **own, **histograms)


def _read(name: str, kind: Kind, text: str) -> Any:
    try:
        return kind.read_text(text)
    except Refused as refused:
        raise _bad(name, text, refused.wants) from refused


def _histogram(name: str, text: str) -> dict[float, float]:
    parts = [_PART.fullmatch(part) for part in text.split(",")]
    found = {float(part[1]): float(part[2]) for part in parts if part}
    if len(found) != len(parts) or min(found, default=0) < 1 or sum(found.values()) <= 0:
        raise _bad(name, text, msg("wants.histogram"))
    return found


def _bad(name: str, text: str, wants: Message) -> UsageError:
    flag = "--" + name.replace("_", "-")
    return UsageError(
        "bad-field", msg("error.bad-field", name=flag, value=repr(text[:60])), msg("hint.bad-field", name=flag, wants=wants)
    )


def figures(answer: EstimateAnswer) -> list[tuple[str, Figure]]:
    """Every figure of a load, in the order it is shown."""
    serving = answer.serving
    if serving is None:
        return []
    between = () if of_one_token(serving) else ("tpot",)
    shown = [("ttft_no_load", serving.ttft_no_load), *(("tpot_no_load", serving.tpot_no_load) for _ in between)]
    for name in ("ttft", *between, "latency"):
        shown += [(f"{name}_{at}", figure) for at, figure in getattr(serving, name).items()]
    shown += [("answered_rate", serving.answered_rate), ("sustainable_rate", serving.sustainable_rate)]
    more = (("goodput", serving.goodput), ("allowed_rate", serving.allowed_rate))
    return [*shown, *((name, figure) for name, figure in more if figure is not None)]


def of_one_token(serving: ServingAnswer | None) -> bool:
    """Whether answers end with their first token: nothing lies between tokens then, and nothing is told of it."""
    return serving is not None and serving.load.mean_output <= 1.0


def overloaded(answer: EstimateAnswer, serving: ServingAnswer) -> Message:
    """That more comes than can be borne, before anything else is said."""
    most = significant(serving.sustainable_rate.value)
    values = {"gpus": answer.request["gpus"], "gpu": answer.request["gpu"], "rate": significant(serving.load.rate)}
    return msg("web.saturated", most=most, **values)


def tell(session: Session, answer: EstimateAnswer) -> None:
    """The load in sentences, and its curve where people read."""
    serving = answer.serving
    if serving is None:
        return
    load, text = serving.load, session.language.text
    session.say(
        msg(
            "serving.sentence-first" if of_one_token(serving) else "serving.sentence",
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
        from whichgpu.surface.servingchart import curve_lines

        for line in curve_lines(serving.curve, text):
            session.note(line)


@contextmanager
def progress(session: Session) -> Iterator[Callable[[float], None] | None]:
    """A bar on a terminal's stderr, or whoever follows; None where nobody would see it."""
    if session.progress is not None:
        yield session.progress
        return
    if session.format == "json" or not session.err.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(file=session.err, emoji=False, highlight=False)
    with Progress(TextColumn("{task.description}"), BarColumn(), console=console, transient=True) as bar:
        task = bar.add_task(session.language.text("serving.progress"), total=1.0)
        yield lambda done: bar.update(task, completed=done)
