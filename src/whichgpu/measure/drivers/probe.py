"""Interface to the drivers: all readings come through a `Probe`, so that tests can replay them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from whichgpu.base.messages import Message
from whichgpu.measure.drivers.card import Card, Sample


class MissingVendor(msgspec.Struct, frozen=True):
    """The reason why a vendor's GPUs are not in the report: `kind` for programs, `message` for people."""

    vendor: str
    kind: str
    message: Message


class VendorUnavailable(Exception):
    """Raised if a vendor's GPUs cannot be read on this machine; `missing` says why."""

    def __init__(self, vendor: str, kind: str, message: Message) -> None:
        super().__init__(vendor, kind)
        self.missing = MissingVendor(vendor, kind, message)


class DriverUnavailable(Exception):
    """Raised if the GPU driver does not answer a reading; it may answer the next one."""


class Probe(Protocol):
    """Interface that reads the GPUs of one vendor; reading never allocates memory on them."""

    def cards(self) -> tuple[Card, ...]:
        """Return the constant properties of every GPU."""

    def samples(self, traffic: bool = False) -> tuple[Sample, ...]:
        """Return one reading of every GPU, with PCIe traffic on request, which takes longer. May raise DriverUnavailable."""

    def processes(self) -> tuple[tuple[int, ...], ...]:
        """Return the ids of visible processes on each GPU; they are used to read /proc and never displayed."""

    def close(self) -> None:
        """Release the driver."""


class CombinedProbe:
    """Reads the GPUs of several vendors' probes as if of one, numbered consecutively."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._probes = tuple(probes)
        self._counts = [0] * len(self._probes)

    def cards(self) -> tuple[Card, ...]:
        cards: list[Card] = []
        for place, probe in enumerate(self._probes):
            own = probe.cards()
            self._counts[place] = len(own)
            cards += [_renumbered(card, len(cards)) for card in own] if cards else own
        return tuple(cards)

    def samples(self, traffic: bool = False) -> tuple[Sample, ...]:
        """Return one reading of all GPUs; those of a failing probe are marked as lost. Raise DriverUnavailable if all fail."""
        samples: list[Sample] = []
        failures = 0
        for place, probe in enumerate(self._probes):
            try:
                own = probe.samples(traffic)
            except DriverUnavailable:
                failures += 1
                own = tuple(Sample(index, lost=True) for index in range(self._counts[place]))
            self._counts[place] = max(self._counts[place], len(own))
            samples += [replace(sample, index=sample.index + len(samples)) for sample in own] if samples else own
        if failures == len(self._probes):
            raise DriverUnavailable
        return tuple(samples)

    def processes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(ids for probe in self._probes for ids in probe.processes())

    def close(self) -> None:
        for probe in self._probes:
            probe.close()


def _renumbered(card: Card, first: int) -> Card:
    peers = tuple(replace(peer, index=peer.index + first) for peer in card.peers)
    return replace(card, index=card.index + first, now=replace(card.now, index=card.index + first), peers=peers)
