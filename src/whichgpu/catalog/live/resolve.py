"""From what a source calls a GPU to the variant it is; what cannot be told apart is reported, never guessed.

In this order: the machine is in the catalog; the machine is another provider's, resold; a rule in `data/names.csv`;
a name that fits one variant only, by itself or with the memory the source states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from whichgpu.base.units import MIB
from whichgpu.catalog.currency import DollarRates
from whichgpu.catalog.find import gpus_named
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.catalog.live.references import ReferencePrices
from whichgpu.catalog.live.rows import OfferRow
from whichgpu.catalog.live.source_tables import name_rules, upstreams
from whichgpu.catalog.store import Catalog

TOLERANCE = 0.12  # between marketed, reported and decimal sizes of one memory; the next size is at least a third away
MOST_KEPT = 200_000
FEWEST_GPUS, MOST_GPUS = 0.001, 100_000  # of one offer: the smallest slice sold is a sixteenth


@dataclass(frozen=True, slots=True)
class ResolvedGpu:
    """What a row is about: a variant and how many of it; below 1 a slice."""

    gpu: Gpu
    gpus: float


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a row cannot be told to be about a variant: `unknown-gpu`, `gpus`, `count` or `memory`."""

    reason: str
    detail: str


class Resolver:
    """Variants by what sources say, each combination of words worked out once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._machines = {(row.provider, name.lower()): row for row in catalog.instances for name in (row.instance, *row.aliases)}
        # where the name of a machine may tell what is in it; elsewhere rows that differ in it alone are worked out once
        self._telling = {rule.provider for rule in name_rules() if rule.instance} | {market for market, _ in upstreams()}
        self._known: dict[tuple[object, ...], ResolvedGpu | Rejection] = {}
        self._named: dict[str, tuple[Gpu, ...]] = {}

    def resolve(self, row: OfferRow) -> ResolvedGpu | Rejection:
        """The variant of a row, or the doubt about it."""
        telling = not row.accelerator or row.provider in self._telling or (row.provider, row.instance.lower()) in self._machines
        key = (row.provider, row.instance if telling else "", row.accelerator, row.count, row.memory_mib, row.names)
        if row.count is not None and not FEWEST_GPUS <= row.count <= MOST_GPUS:  # nor is it where the count is no number
            return Rejection("gpus", f"{row.count:g}")
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            found = self._known[key] = self._in_reason(self._work_out(row))
        return found

    @cached_property
    def rates(self) -> DollarRates:
        """Exchange rates that prices are checked at."""
        return DollarRates(self._catalog.exchange)

    @cached_property
    def references(self) -> ReferencePrices:
        """Bundled prices that new offers are compared with."""
        return ReferencePrices(self._catalog, self.rates)

    def machine_of(self, provider: str, instance: str) -> Instance | None:
        """The machine as the catalog knows it, whatever the source says is in it."""
        return self._machines.get((provider, instance.lower()))

    def _work_out(self, row: OfferRow) -> ResolvedGpu | Rejection:
        machine = self._machines.get((row.provider, row.instance.lower())) or self._resold(row)
        if machine is not None:
            return self._of_machine(row, machine)
        found = self._by_rule(row) or self._by_name(row, (*row.names, row.accelerator), 1.0)
        if found is None:
            return Rejection("unknown-gpu", row.accelerator or row.instance)
        return self._checked(row, found)

    def _of_machine(self, row: OfferRow, machine: Instance) -> ResolvedGpu | Rejection:
        found = ResolvedGpu(self._catalog.gpu_in(machine), machine.gpus)
        whole = found.gpus >= 1
        if whole and row.count is not None and abs(row.count - found.gpus) > 0.001:
            return Rejection("count", f"{row.instance}: {row.count:g} / {found.gpus:g}")
        return self._checked(row, found)

    def _resold(self, row: OfferRow) -> Instance | None:
        """The machine of another provider that a marketplace lists under `prefix…instance` or names beside it."""
        prefix = re.match(r"[a-z0-9]+", row.instance.lower())
        upstream = upstreams().get((row.provider, prefix[0])) if prefix else None
        if upstream is None:
            return None
        candidates = [*row.names, re.sub(r"^[a-z0-9]+_+", "", row.instance, flags=re.IGNORECASE)]
        for name in candidates:
            found = self._machines.get((upstream, re.sub(r"_spot$", "", name.lower())))
            if found is not None:
                return found
        return None

    def _by_rule(self, row: OfferRow) -> ResolvedGpu | None:
        count = 1.0 if row.count is None else row.count
        for rule in name_rules():
            if rule.provider and rule.provider != row.provider:
                continue
            word = rule.accelerator.fullmatch(row.accelerator) if rule.accelerator else None
            place = rule.instance.search(row.instance) if rule.instance else None
            if (rule.accelerator and not word) or (rule.instance and not place):
                continue
            if rule.memory_gib is not None and not _fits(row.memory_mib, rule.memory_gib * 1024):
                continue
            groups = {**(word.groupdict() if word else {}), **(place.groupdict() if place else {})}
            if rule.gpu == "=":
                found = self._by_captured(row, groups["name"], count)
                if found is not None:
                    return found
            elif rule.gpus == "n/2":
                return ResolvedGpu(self._catalog.gpu_by_id[rule.gpu], count * int(groups["n"]) / 2)
            elif rule.gpus == "n":
                return ResolvedGpu(self._catalog.gpu_by_id[rule.gpu], count * int(groups["n"]))
            else:
                return ResolvedGpu(self._catalog.gpu_by_id[rule.gpu], count * float(rule.gpus or 1))
        return None

    def _by_captured(self, row: OfferRow, name: str, count: float) -> ResolvedGpu | None:
        """A name cut out of the instance's: as the catalog lists one such GPU, else by the name itself."""
        for key in (f"1x-{name}", f"1x_{name}", *(f"1x-{name}-{gib}GB" for gib in _sizes(row)), name):
            machine = self._machines.get((row.provider, key.lower()))
            if machine is not None:
                return ResolvedGpu(self._catalog.gpu_in(machine), machine.gpus * count)
        return self._by_name(row, (name.replace("_", " "),), 1.0)

    def _by_name(self, row: OfferRow, names: tuple[str, ...], share: float) -> ResolvedGpu | None:
        for name in names:
            found = self._candidates(name)
            if len(found) > 1 and row.memory_mib:
                found = tuple(gpu for gpu in found if _fits(row.memory_mib, gpu.memory_marketed_bytes / MIB))
            if len(found) == 1:
                return ResolvedGpu(found[0], (1.0 if row.count is None else row.count) * share)
        return None

    def _candidates(self, name: str) -> tuple[Gpu, ...]:
        if name not in self._named:
            self._named[name] = gpus_named(self._catalog, name, loosely=False) if name.strip() else ()
        return self._named[name]

    @staticmethod
    def _in_reason(found: ResolvedGpu | Rejection) -> ResolvedGpu | Rejection:
        """A name may multiply the count: `TPU v4-8` is four chips."""
        if isinstance(found, ResolvedGpu) and not FEWEST_GPUS <= found.gpus <= MOST_GPUS:
            return Rejection("gpus", f"{found.gpus:g}")
        return found

    def _checked(self, row: OfferRow, found: ResolvedGpu) -> ResolvedGpu | Rejection:
        """The memory a source states is a witness: where it speaks against the variant, neither is believed."""
        if not row.memory_mib:
            return found
        whole = found.gpu.memory_marketed_bytes / MIB
        if any(_fits(row.memory_mib, size) for size in _expected(row, found, whole)):
            return found
        return Rejection("memory", f"{row.accelerator or row.instance}: {row.memory_mib:g} / {whole:g} MiB")


def _expected(row: OfferRow, found: ResolvedGpu, whole: float) -> Iterator[float]:
    yield whole
    units = row.count or 1.0
    if found.gpus < units:  # a slice: its share of the memory
        yield whole * found.gpus / units
    if found.gpus < 1:
        yield whole * found.gpus


def _sizes(row: OfferRow) -> tuple[int, ...]:
    return tuple(gib for gib in (16, 32, 40, 80) if _fits(row.memory_mib, gib * 1024))


def _fits(stated_mib: float | None, expected_mib: float) -> bool:
    return bool(stated_mib) and abs((stated_mib or 0) / expected_mib - 1) <= TOLERANCE
