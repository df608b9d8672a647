"""Sum of host and GPU prices for providers that list them separately, such as GCP, by the table `hosts.csv`.

A fixed instance type (a2-highgpu-1g) is the sum of its host's line and its GPUs' line in the same zone. A GPU for any host (N1)
is an offer by itself (`includes` gpu), and another with the host the table names. Local disks are listed nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import msgspec

from whichgpu.catalog.live.rows import InstanceLookup, OfferRow, RejectedRow, parse_price, row_at_price
from whichgpu.catalog.live.source_tables import rows

Prices = dict[str, Decimal]


class HostRule(msgspec.Struct, frozen=True):
    """Rule on which host prices belong to a GPU's price: all of an instance type with that GPU count, or one type for a count."""

    accelerator: str
    count: float | None
    host: re.Pattern[str]
    included: bool  # whether the GPU's price includes the host


def host_rules(provider: str) -> tuple[HostRule, ...]:
    """Return the rules that join a provider's host prices with its GPU prices; () if it lists whole instances."""
    return tuple(
        HostRule(
            row["accelerator"], float(row["count"]) if row["count"] else None, re.compile(row["host"]), row["included"] == "yes"
        )
        for row in rows("hosts")
        if row["provider"] == provider
    )


class Joiner(msgspec.Struct):
    """Collects the separate host and GPU prices of one provider, and adds them up to prices of whole instances."""

    provider: str
    machine_of: InstanceLookup
    _rules: tuple[HostRule, ...] = ()
    _hosts: dict[str, list[tuple[str, Prices]]] = msgspec.field(default_factory=dict)
    _gpus: list[tuple[OfferRow, Prices]] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        self._rules = host_rules(self.provider)

    def collect(self, row: OfferRow, prices: Prices) -> bool:
        """Store a price line that is only a part of an instance; return False for a line that is an offer by itself."""
        if not self._rules:
            return False
        if row.accelerator:
            if row.instance or not any(rule.accelerator == row.accelerator for rule in self._rules):
                return False
            self._gpus.append((row, prices))
            return True
        if any(rule.host.fullmatch(row.instance) for rule in self._rules):
            self._hosts.setdefault(row.zone, []).append((row.instance, prices))
            return True
        return False

    def join(self) -> Iterator[OfferRow | RejectedRow]:
        """Yield instances with their summed prices; a GPU without a host in its zone is rejected."""
        for row, prices in self._gpus:
            if not prices:
                yield RejectedRow("no-price", f"{row.accelerator} x {row.count:g} {row.zone}")
                continue
            rules = [rule for rule in self._rules if rule.accelerator == row.accelerator and rule.count in (None, row.count)]
            machines = list(self._machines(row, prices, rules))
            any_host = bool(rules) and rules[0].count is not None
            if any_host:
                name = f"n1+{row.count:g}x{row.accelerator.lower()}"
                yield from (row_at_price(row, term, price, name, "gpu") for term, price in prices.items())
            elif not machines:
                yield RejectedRow("no-host", f"{row.accelerator} x {row.count:g} {row.zone}")
            yield from machines

    def _machines(self, row: OfferRow, prices: Prices, rules: list[HostRule]) -> Iterator[OfferRow]:
        for rule in rules:
            for host, host_prices in self._hosts.get(row.zone, ()):
                if rule.host.fullmatch(host) is None or not self._carries(host, row, rule):
                    continue
                name = host if rule.count is None else f"{host}+{row.count:g}x{row.accelerator.lower()}"
                for term, price in prices.items():
                    share = Decimal(0) if rule.included else host_prices.get(term)
                    if share is not None:  # With a host price of 0, the sum would be the GPU's price alone.
                        total = parse_price(price + share) if share or rule.included else Decimal(0)
                        yield row_at_price(row, term, total, name, "gpu+host")

    def _carries(self, host: str, row: OfferRow, rule: HostRule) -> bool:
        if rule.count is not None:
            return True
        machine = self.machine_of(self.provider, host)
        return machine is not None and machine.gpus == row.count
