"""Machines of a fleet: spot machines are interrupted at random, on-demand machines replace them; all cost money while rented."""

from __future__ import annotations

from enum import IntEnum
from heapq import heappush
from typing import Protocol

import msgspec
import numpy as np

from whichgpu.estimate.serving.fleet.pools import Interruptions

HOUR = 3600.0  # seconds
LIFECYCLE_EVENT = 2  # kind of event in the fleet's queue


class ReplicaMachine(msgspec.Struct):
    """GPUs of one replica: `open` if they accept requests, paid for between `start` and `stop`."""

    pool: int
    schedulers: range
    spot: bool
    open: bool
    since: float | None = None  # second at which the current rental began; None while not rented
    rented_spans: list[tuple[float, float]] = msgspec.field(default_factory=list)

    def start(self, now: float) -> None:
        """Start renting the machine at time `now`, in seconds."""
        if self.since is None:
            self.since = now

    def stop(self, now: float) -> None:
        """Stop renting the machine at time `now`, in seconds."""
        if self.since is not None:
            self.rented_spans.append((self.since, now))
            self.since = None

    def seconds(self, end: float) -> float:
        """Return the seconds for which the machine was rented until `end`."""
        current = [] if self.since is None else [(self.since, end)]
        return sum(max(0.0, min(high, end) - min(low, end)) for low, high in (*self.rented_spans, *current))


class SpotEvent(IntEnum):
    """Event of a spot machine or its on-demand fallback; of events at the same time the lower number comes first."""

    NOTICE = 0  # an interruption is announced
    INTERRUPTED = 1
    FALLBACK_READY = 2
    AVAILABLE = 3  # spot machines are available again
    READY = 4


class SpotSlot(msgspec.Struct):
    """A spot machine and the on-demand machine that replaces it during an outage, if any."""

    machine: int
    fallback: int | None
    random: np.random.Generator
    up: bool = True
    fallbacks_started: int = 0


class LifecycleHandler(Protocol):
    """Interface of the fleet's event loop: methods called when a machine opens, closes or is lost."""

    machines: list[ReplicaMachine]
    events: list[tuple[float, int, int, int]]

    def opened(self, machine: int, now: float) -> None:
        """Let a machine accept requests."""

    def closed(self, machine: int, now: float) -> None:
        """Let a machine accept no more requests; it may finish those it has."""

    def interrupted(self, machine: int, now: float) -> None:
        """Drop the requests and KV caches of a lost machine."""


class SpotLifecycle:
    """Schedules the interruption, return and on-demand fallback of every spot machine of a fleet."""

    def __init__(self, interruptions: Interruptions, slots: list[SpotSlot], handler: LifecycleHandler) -> None:
        self.interruptions, self.slots, self.handler = interruptions, slots, handler
        self.interrupted = 0  # number of interruptions so far
        for index, slot in enumerate(slots):
            self._schedule_notice(index, slot, 0.0)

    def process(self, index: int, code: int, now: float) -> None:
        """Apply an event to spot machine `index` at `now` seconds; `code` encodes its fallback's number and the SpotEvent."""
        slot, (fallback_number, kind) = self.slots[index], divmod(code, len(SpotEvent))
        machines, handler = self.handler.machines, self.handler
        if kind == SpotEvent.NOTICE:
            slot.up = False
            handler.closed(slot.machine, now)
            self._push(now + self.interruptions.notice, index, SpotEvent.INTERRUPTED)
            if slot.fallback is not None:
                self._start_fallback(index, slot, slot.fallback, now)
        elif kind == SpotEvent.INTERRUPTED:
            self.interrupted += 1
            handler.interrupted(slot.machine, now)
            machines[slot.machine].stop(now)
            self._push(now + self._draw(slot, self.interruptions.outage), index, SpotEvent.AVAILABLE)
        elif kind == SpotEvent.FALLBACK_READY:
            if not slot.up and fallback_number == slot.fallbacks_started and slot.fallback is not None:
                handler.opened(slot.fallback, now)
        elif kind == SpotEvent.AVAILABLE:
            machines[slot.machine].start(now)
            self._push(now + self.interruptions.warm_up, index, SpotEvent.READY)
        else:
            slot.up = True
            handler.opened(slot.machine, now)
            if slot.fallback is not None:
                handler.closed(slot.fallback, now)
            self._schedule_notice(index, slot, now)

    def _start_fallback(self, index: int, slot: SpotSlot, fallback: int, now: float) -> None:
        machine = self.handler.machines[fallback]
        if machine.since is not None:  # The fallback is still finishing earlier requests, so it is warm.
            self.handler.opened(fallback, now)
            return
        machine.start(now)
        slot.fallbacks_started += 1
        self._push(now + self.interruptions.warm_up, index, SpotEvent.FALLBACK_READY, slot.fallbacks_started)

    def _schedule_notice(self, index: int, slot: SpotSlot, now: float) -> None:
        if self.interruptions.rate > 0:
            self._push(now + self._draw(slot, HOUR / self.interruptions.rate), index, SpotEvent.NOTICE)

    def _draw(self, slot: SpotSlot, mean: float) -> float:
        return float(slot.random.exponential(mean)) if mean > 0 else 0.0

    def _push(self, time: float, index: int, kind: SpotEvent, fallback_number: int = 0) -> None:
        heappush(self.handler.events, (time, LIFECYCLE_EVENT, index, fallback_number * len(SpotEvent) + kind))
