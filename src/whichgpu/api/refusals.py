"""Wishes that cannot be meant: said at once, with what would work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import parse_seconds

if TYPE_CHECKING:
    from whichgpu.api.shopping import Query

MOST_SHOWN = 1000
LASTING = ("checkpoint_every", "duration", "max_age")  # durations that cannot be nothing


def refuse(query: Query) -> None:
    """Raise where a wish is out of range or two of them contradict each other."""
    if query.max_latency is not None and query.near is None:
        raise UsageError("no-near", msg("error.no-near"), msg("hint.no-near"))
    if query.buy and query.owned:
        raise UsageError("contradiction", msg("error.buy-and-owned"), msg("hint.buy-and-owned"))
    if query.gpus is not None and query.gpus[1] <= 0:
        raise bad_wish("gpus", f"{query.gpus[1]:g}", msg("wants.counts"))
    if query.idle is not None and not 0 <= query.idle < 1:
        raise bad_wish("idle", query.idle, msg("wants.share"))
    if query.limit is not None and not 1 <= query.limit <= MOST_SHOWN:
        raise bad_wish("limit", query.limit, msg("wants.whole", low=1, high=f"{MOST_SHOWN:,}"))
    for name in LASTING:
        value = getattr(query, name)
        if value is not None and (parse_seconds(value) if isinstance(value, str) else value) <= 0:
            raise bad_wish(name, value, msg("wants.lasting"))


def bad_wish(name: str, value: Any, wants: Message) -> UsageError:
    """The error of a flag's value."""
    return UsageError("bad-field", msg("error.bad-field", name=f"--{name.replace('_', '-')}", value=str(value)), wants)
