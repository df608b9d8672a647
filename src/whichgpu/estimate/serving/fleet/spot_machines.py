"""Machines that come and go: those on spot are taken away by chance, others stand in for them; all are paid for while held."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappush
from typing import Protocol

import numpy as np

from whichgpu.estimate.serving.fleet.pools import Interruptions

HOUR = 3600.0


@dataclass(slots=True)
class ReplicaMachine:
    """One copy's GPUs. Open: it takes requests. Held: it is paid for."""

    station: int
    lanes: range
    spot: bool
    open: bool
    since: float | None = None
    held: list[tuple[float, float]] = field(default_factory=list)

    def start(self, now: float) -> None:
        """Held from now on."""
        if self.since is None:
            self.since = now

    def stop(self, now: float) -> None:
        """No more."""
        if self.since is not None:
            self.held.append((self.since, now))
            self.since = None

    def seconds(self, end: float) -> float:
        """For which it was held until then."""
        open_ = [] if self.since is None else [(self.since, end)]
        return sum(max(0.0, min(high, end) - min(low, end)) for low, high in (*self.held, *open_))


class Turn(IntEnum):
    """What happens to a place for a machine; in this order where at once."""

    TOLD = 0  # it will be taken away
    GONE = 1
    SPARE = 2  # the one that stands in is warm
    BACK = 3  # spot machines are to be had again
    WARM = 4


@dataclass(slots=True)
class SpotSlot:
    """A place for a machine on spot, with the machine that stands in for it, if any."""

    machine: int
    spare: int | None
    chance: np.random.Generator
    here: bool = True
    asked: int = 0  # times a spare was asked for


class LifecycleHandler(Protocol):
    """Who acts on it: the event loop."""

    machines: list[ReplicaMachine]
    events: list[tuple[float, int, int, int]]

    def opened(self, machine: int, now: float) -> None:
        """It takes requests."""

    def closed(self, machine: int, now: float) -> None:
        """It takes no more; what it has it may finish."""

    def gone(self, machine: int, now: float) -> None:
        """What it had is lost."""


LIFECYCLE_EVENT = 2  # kind of event
TURNS = len(Turn)


class SpotLifecycle:
    """The lives of machines on spot."""

    def __init__(self, asked: Interruptions, slots: list[SpotSlot], keeper: LifecycleHandler) -> None:
        self.asked, self.slots, self.keeper = asked, slots, keeper
        self.taken = 0  # times a machine was
        for place, slot in enumerate(slots):
            self._next_loss(place, slot, 0.0)

    def turn(self, place: int, code: int, now: float) -> None:
        """One of the events made here."""
        slot, (asked, kind) = self.slots[place], divmod(code, TURNS)
        machines, keeper = self.keeper.machines, self.keeper
        if kind == Turn.TOLD:
            slot.here = False
            keeper.closed(slot.machine, now)
            self._push(now + self.asked.notice, place, Turn.GONE)
            if slot.spare is not None:
                self._stand_in(place, slot, slot.spare, now)
        elif kind == Turn.GONE:
            self.taken += 1
            keeper.gone(slot.machine, now)
            machines[slot.machine].stop(now)
            self._push(now + self._chance(slot, self.asked.outage), place, Turn.BACK)
        elif kind == Turn.SPARE:
            if not slot.here and asked == slot.asked and slot.spare is not None:
                keeper.opened(slot.spare, now)
        elif kind == Turn.BACK:
            machines[slot.machine].start(now)
            self._push(now + self.asked.warm_up, place, Turn.WARM)
        else:
            slot.here = True
            keeper.opened(slot.machine, now)
            if slot.spare is not None:
                keeper.closed(slot.spare, now)
            self._next_loss(place, slot, now)

    def _stand_in(self, place: int, slot: SpotSlot, spare: int, now: float) -> None:
        machine = self.keeper.machines[spare]
        if machine.since is not None:  # still finishing what it had: it is warm
            self.keeper.opened(spare, now)
            return
        machine.start(now)
        slot.asked += 1
        self._push(now + self.asked.warm_up, place, Turn.SPARE, slot.asked)

    def _next_loss(self, place: int, slot: SpotSlot, now: float) -> None:
        if self.asked.rate > 0:
            self._push(now + self._chance(slot, HOUR / self.asked.rate), place, Turn.TOLD)

    def _chance(self, slot: SpotSlot, mean: float) -> float:
        return float(slot.chance.exponential(mean)) if mean > 0 else 0.0

    def _push(self, time: float, place: int, kind: Turn, asked: int = 0) -> None:
        heappush(self.keeper.events, (time, LIFECYCLE_EVENT, place, asked * TURNS + kind))
