"""Modes of a service as people state them: one user, a team of people, or a request rate."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant
from whichgpu.decide.requirements import Requirements
from whichgpu.decide.work import SERVICE_RATE
from whichgpu.workload.workload import Workload

Mode = Literal["me", "team", "service"]
MODES: tuple[Mode, ...] = ("me", "team", "service")
TEAM_PEOPLE = 10  # Default number of people of a team (assumed).
REQUESTS_PER_PERSON_HOUR = 20.0  # Requests that one person sends in the busiest hour, one every three minutes (assumed).


def mode_of(workload: Workload, query: Requirements) -> Mode | None:
    """Return the mode of a service: the user's, else team if people are given, me without rate and batch; None for runs."""
    if not workload.serving:
        return None
    if query.mode is not None:
        return query.mode
    if query.people is not None:
        return "team"
    return "me" if workload.rate is None and workload.batch is None else "service"


def team_rate(people: int | None) -> float:
    """Return the requests per second of a team in its busiest hour.

    >>> team_rate(90)
    0.5
    """
    return (people or TEAM_PEOPLE) * REQUESTS_PER_PERSON_HOUR / 3600.0


def with_mode(workload: Workload, query: Requirements, stated: Collection[str]) -> tuple[Workload, frozenset[str]]:
    """Return the workload with the batch or rate of its mode, and the stated fields; a batch of one user counts as stated."""
    mode = mode_of(workload, query)
    _check(mode, query, stated)
    if mode == "me":
        return replace(workload, batch=1), frozenset(stated) | {"batch"}
    if mode == "team":
        return replace(workload, rate=team_rate(query.people)), frozenset(stated)
    if mode == "service" and workload.rate is None and workload.batch is None:
        return replace(workload, rate=SERVICE_RATE), frozenset(stated)
    return workload, frozenset(stated)


def _check(mode: Mode | None, query: Requirements, stated: Collection[str]) -> None:
    """Raise an error if a mode is given for a run, or contradicts the rate, the batch or the number of people."""
    if mode is None and (query.mode is not None or query.people is not None):
        raise UsageError("contradiction", msg("error.mode-of-run"), msg("hint.mode-of-run"), ("--mode", "--people"))
    flags = tuple(f"--{name}" for name in ("rate", "batch") if name in stated) if mode in ("me", "team") else ()
    flags += ("--people",) if query.people is not None and mode != "team" and mode is not None else ()
    if flags:
        assert mode is not None
        raise UsageError("contradiction", msg("error.mode-and-load", mode=mode, flags=flags), msg("hint.mode-and-load"), flags)


def sentence_of_mode(what: Message, mode: Mode | None, query: Requirements, tokens_per_second: float | None) -> Message:
    """Return the answer's sentence that begins with whom it is for: one user, or a team and its request rate."""
    if mode == "team":
        people, rate = query.people or TEAM_PEOPLE, significant(team_rate(query.people), 2)
        return msg("recommend.sentence-team", n=people, rate=rate, what=what)
    if mode == "me" and tokens_per_second is not None:
        return msg("recommend.sentence-me-chat", speed=significant(tokens_per_second, 2), what=what)
    return msg("recommend.sentence-me", what=what) if mode == "me" else what


def mode_assumptions(mode: Mode | None, query: Requirements) -> tuple[Message, ...]:
    """Return messages on the mode that was assumed and on how a team's rate follows from its people."""
    if mode == "team":
        each = f"{REQUESTS_PER_PERSON_HOUR:g}"
        return (msg("assumed.team", n=query.people or TEAM_PEOPLE, each=each, rate=significant(team_rate(query.people), 2)),)
    return (msg("assumed.mode-me"),) if mode == "me" and query.mode is None else ()
