"""The seam between a driver and the rest: all that is known of GPUs comes through a `Probe`, so that answers can be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from whichgpu.base.messages import Message
from whichgpu.measure.drivers.card import Card, Sample


class VendorUnavailable(Exception):
    """A vendor's GPUs cannot be asked here; `kind` for programs, `message` for people."""

    def __init__(self, vendor: str, kind: str, message: Message) -> None:
        super().__init__(vendor, kind)
        self.vendor = vendor
        self.kind = kind
        self.message = message


class DriverUnavailable(Exception):
    """The driver did not answer this time; it may the next."""


class Probe(Protocol):
    """GPUs of one vendor. Reading never allocates memory on them."""

    def cards(self) -> tuple[Card, ...]:
        """Everything about every GPU."""
        ...

    def samples(self, traffic: bool = False) -> tuple[Sample, ...]:
        """What changes, of every GPU; with the PCIe traffic where asked, which takes longer. May raise `Hiccup`."""
        ...

    def processes(self) -> tuple[tuple[int, ...], ...]:
        """Ids of the processes on each GPU, as far as they can be seen from here. Never shown, only followed in /proc."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


@dataclass(frozen=True, slots=True)
class MissingVendor:
    """Why a vendor's GPUs are not in the report."""

    vendor: str
    kind: str
    message: Message


class CombinedProbe:
    """Several probes as one, their GPUs numbered through."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._probes = tuple(probes)
        self._counts = [0] * len(self._probes)

    def cards(self) -> tuple[Card, ...]:
        """All GPUs."""
        found: list[Card] = []
        for place, probe in enumerate(self._probes):
            own = probe.cards()
            self._counts[place] = len(own)
            found += [_renumbered(card, len(found)) for card in own] if found else own
        return tuple(found)

    def samples(self, traffic: bool = False) -> tuple[Sample, ...]:
        """All readings; a probe that fails leaves its GPUs lost, and only if all fail it is a hiccup."""
        found: list[Sample] = []
        failures = 0
        for place, probe in enumerate(self._probes):
            try:
                own = probe.samples(traffic)
            except DriverUnavailable:
                failures += 1
                own = tuple(Sample(index, lost=True) for index in range(self._counts[place]))
            self._counts[place] = max(self._counts[place], len(own))
            found += [replace(sample, index=sample.index + len(found)) for sample in own] if found else own
        if failures == len(self._probes):
            raise DriverUnavailable
        return tuple(found)

    def processes(self) -> tuple[tuple[int, ...], ...]:
        """All process ids by GPU."""
        return tuple(ids for probe in self._probes for ids in probe.processes())

    def close(self) -> None:
        """Close all."""
        for probe in self._probes:
            probe.close()


def _renumbered(card: Card, first: int) -> Card:
    peers = tuple(replace(peer, index=peer.index + first) for peer in card.peers)
    return replace(card, index=card.index + first, now=replace(card.now, index=card.index + first), peers=peers)
