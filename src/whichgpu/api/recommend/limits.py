"""Wishes that cannot be meant: said at once, with what would work."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from math import floor
from typing import TYPE_CHECKING, Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import parse_seconds
from whichgpu.workload.workload import Parallel, Workload

if TYPE_CHECKING:
    from whichgpu.api.recommend.offers import Requirements

MOST_SHOWN = 1000
LASTING = ("checkpoint_every", "deadline", "duration", "max_age")  # durations that cannot be nothing
DURATIONS = (*LASTING, "startup", "max_latency")
MOST_YEARS = 100
YEAR = 365.25 * 86400.0


def refuse(query: Requirements) -> None:
    """Raise where a wish is out of range or two of them contradict each other."""
    if query.max_latency is not None and query.near is None:
        raise UsageError("no-near", msg("error.no-near"), msg("hint.no-near"))
    if query.buy and query.owned:
        raise UsageError("contradiction", msg("error.buy-and-owned"), msg("hint.buy-and-owned"))
    if query.gpus is not None and query.gpus[1] <= 0:
        raise invalid_value("gpus", f"{query.gpus[1]:g}", msg("wants.counts"))
    if query.idle is not None and not 0 <= query.idle < 1:
        raise invalid_value("idle", query.idle, msg("wants.share"))
    if query.limit is not None and not 1 <= query.limit <= MOST_SHOWN:
        raise invalid_value("limit", query.limit, msg("wants.whole", low=1, high=f"{MOST_SHOWN:,}"))
    for name in DURATIONS:
        value = getattr(query, name)
        seconds = parse_seconds(value) if isinstance(value, str) else value
        if seconds is not None and seconds <= 0 and name in LASTING:
            raise invalid_value(name, value, msg("wants.lasting"))
        if seconds is not None and seconds > MOST_YEARS * YEAR:
            raise invalid_value(name, value, msg("wants.years", most=MOST_YEARS))


def refuse_for_task(query: Requirements, workload: Workload, given: Collection[str], speaking: bool) -> None:
    """Raise where a wish has no meaning for what is asked, rather than pass it by."""
    if query.deadline is not None and workload.serving:
        raise UsageError("contradiction", msg("error.deadline-service"), msg("hint.deadline-service"), ("--deadline",))
    if "parallel" not in given or (workload.training and speaking):
        return
    usual = Parallel(tp=workload.parallel.tp) if speaking else Parallel()
    asked = tuple(f"--{one.name}" for one in fields(Parallel) if getattr(workload.parallel, one.name) != getattr(usual, one.name))
    if asked:
        hint = "hint.layout-service" if speaking else "hint.layout-passes"
        raise UsageError("contradiction", msg("error.layout-recommend", flags=asked, task=workload.task), msg(hint), asked)


def refuse_percentile(percentile: float) -> None:
    """Raise where no request of those simulated lies beyond it."""
    from whichgpu.decide.configurations.simulate import REQUESTS
    from whichgpu.estimate.serving.summary import WARM_UP_SHARE

    counted = int(REQUESTS * (1.0 - WARM_UP_SHARE))
    if counted * (100.0 - percentile) / 100.0 < 1.0:
        values = {"percentile": f"{percentile:g}", "n": f"{counted:,}"}
        hint = msg("hint.percentile-recommend", most=f"{floor(1e4 * (1.0 - 1.0 / counted)) / 100.0:g}", **values)
        raise UsageError("bad-field", msg("error.percentile-beyond", **values), hint, ("--percentile",))


def invalid_value(name: str, value: Any, wants: Message) -> UsageError:
    """The error of a flag's value."""
    return UsageError("bad-field", msg("error.bad-field", name=f"--{name.replace('_', '-')}", value=str(value)), wants)
