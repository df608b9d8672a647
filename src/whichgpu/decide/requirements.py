"""A user's requirements for a recommendation, as typed, and errors for values out of range or in contradiction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from math import floor
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import parse_seconds
from whichgpu.decide.constraints import Quality, Rank, Risk
from whichgpu.workload.parallel import LAYOUT_FIELDS
from whichgpu.workload.spelling import ParsedWorkload
from whichgpu.workload.workload import Parallel, Workload

MAX_ROWS = 1000  # Most candidates one answer may list (assumed).
POSITIVE_DURATIONS = ("checkpoint_every", "deadline", "duration", "max_age")
DURATIONS = (*POSITIVE_DURATIONS, "startup", "max_latency")
MAX_PUE = 10.0  # Largest power usage effectiveness accepted; rooms of 3 are rare (set by judgement).
MAX_YEARS = 100  # Longest duration accepted.
YEAR = 365.25 * 86400.0  # seconds


class Requirements(msgspec.Struct, frozen=True):
    """A user's filters, limits and ranking as typed texts, several values with commas; None and () require nothing."""

    gpu: Sequence[str] | str = ()
    instance: Sequence[str] | str = ()
    provider: Sequence[str] | str = ()
    exclude_provider: Sequence[str] | str = ()
    sellers: Sequence[str] | str = ()
    region: Sequence[str] | str = ()
    term: Sequence[str] | str = ()
    needs: Sequence[str] | str = ()
    gpus: tuple[float, float] | None = None
    min_memory: int | str | None = None
    near: str | None = None
    max_latency: float | str | None = None
    budget: str | None = None
    api_price: str | None = None  # prices at an API of a million input, output and cached input tokens: "0.6usd,0.9usd"
    max_power: float | str | None = None  # most watts of GPUs at their power limit and of their machines
    pue: float | None = None  # power usage effectiveness: power of the room over that of its machines
    deadline: float | str | None = None
    rank: Rank | None = None
    risk: Risk | None = None
    currency: str | None = None
    exchange_rate: Mapping[str, Decimal] | str | None = None
    owned: str | None = None
    quota_file: Path | None = None  # a cloud account's quotas
    buy: bool = False
    price: str | None = None  # price of cards to buy: "RTX 3090=700usd, …"
    duration: float | str | None = None
    startup: float | str | None = None
    checkpoint_every: float | str | None = None
    interruptions: float | str | None = None
    idle: float | None = None
    disk: int | str | None = None
    egress: int | str | None = None
    power_price: str | None = None
    max_age: float | str | None = None  # largest age of prices
    quality: Quality | None = None  # least quality of the precisions to choose from; None for the default
    mode: Literal["me", "team", "service"] | None = None  # whom a service is for, if no rate or batch is given
    people: int | None = None  # people of a team
    why_not: str | None = None
    limit: int | None = None

    def spelled(self) -> dict[str, str]:
        """Return the values the user gave, as texts of their flags."""
        values = asdict(self)
        return {name: _text(name, value) for name, value in values.items() if value is not None and value not in ((), False)}


def _text(name: str, value: Any) -> str:
    if name == "gpus":
        low, high = value
        return f"{low:g}..{high:g}" if low != high else f"{low:g}"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, float):
        return f"{value:g}s" if name in ("deadline", "duration", "startup", "checkpoint_every", "max_latency") else f"{value:g}"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return "true" if value is True else str(value)


def states_limits_only(parsed: ParsedWorkload, query: Requirements) -> bool:
    """Return whether a question states what a service may cost an hour or month, or draw, but not whom it serves."""
    has_load = {"rate", "batch"} & parsed.user_fields or query.mode is not None or query.people is not None
    has_limit = query.max_power is not None or "/" in (query.budget or "")
    return has_limit and not has_load and not query.buy


def check_requirements(query: Requirements) -> None:
    """Raise an error if a value is out of range or two of them contradict each other."""
    if query.max_latency is not None and query.near is None:
        raise UsageError("no-near", msg("error.no-near"), msg("hint.no-near"))
    if query.buy and query.owned:
        raise UsageError("contradiction", msg("error.buy-and-owned"), msg("hint.buy-and-owned"))
    if query.gpus is not None and query.gpus[1] <= 0:
        raise invalid_value("gpus", f"{query.gpus[1]:g}", msg("wants.counts"))
    if query.idle is not None and not 0 <= query.idle < 1:
        raise invalid_value("idle", query.idle, msg("wants.share-below-one"))
    if query.pue is not None and not 1 <= query.pue <= MAX_PUE:
        raise invalid_value("pue", query.pue, msg("wants.pue"))
    if query.limit is not None and not 1 <= query.limit <= MAX_ROWS:
        raise invalid_value("limit", query.limit, msg("wants.whole", low=1, high=f"{MAX_ROWS:,}"))
    for name in DURATIONS:
        value = getattr(query, name)
        seconds = parse_seconds(value) if isinstance(value, str) else value
        if seconds is not None and seconds <= 0 and name in POSITIVE_DURATIONS:
            raise invalid_value(name, value, msg("wants.lasting"))
        if seconds is not None and seconds > MAX_YEARS * YEAR:
            raise invalid_value(name, value, msg("wants.years", most=MAX_YEARS))


def check_against_task(query: Requirements, workload: Workload, stated: Collection[str], has_layouts: bool) -> None:
    """Raise an error if a value has no meaning for the task, such as a deadline of a service or a layout that is not searched.

    `has_layouts` says whether layouts are searched for the task: in training of transformers and in text generation.
    """
    if query.deadline is not None and workload.serving:
        raise UsageError("contradiction", msg("error.deadline-service"), msg("hint.deadline-service"), ("--deadline",))
    if "parallel" not in stated or (workload.training and has_layouts):
        return
    allowed = Parallel(tp=workload.parallel.tp) if has_layouts else Parallel()
    flags = tuple(f"--{name}" for name in LAYOUT_FIELDS if getattr(workload.parallel, name) != getattr(allowed, name))
    if flags:
        hint = "hint.layout-service" if has_layouts else "hint.layout-passes"
        raise UsageError("contradiction", msg("error.layout-recommend", flags=flags, task=workload.task), msg(hint), flags)


def check_percentile(percentile: float) -> None:
    """Raise an error if the percentile is so high that no request of a simulation would lie beyond it."""
    from whichgpu.decide.configurations.replica_simulation import REQUESTS
    from whichgpu.estimate.serving.summary import WARM_UP_SHARE

    requests = int(REQUESTS * (1.0 - WARM_UP_SHARE))
    if requests * (100.0 - percentile) / 100.0 < 1.0:
        values = {"percentile": f"{percentile:g}", "n": f"{requests:,}"}
        hint = msg("hint.percentile-recommend", most=f"{floor(1e4 * (1.0 - 1.0 / requests)) / 100.0:g}", **values)
        raise UsageError("bad-field", msg("error.percentile-beyond", **values), hint, ("--percentile",))


def invalid_value(name: str, value: Any, accepted: Message) -> UsageError:
    """Return the error for a flag's invalid value; `accepted` says which values are valid."""
    return UsageError("bad-field", msg("error.bad-field", name=f"--{name.replace('_', '-')}", value=str(value)), accepted)
