"""Resolution of a source's GPU name to a variant; ambiguous names are reported, never guessed.

In this order: an instance of the catalog; an instance that a marketplace resells; a rule of `data/names.csv`; a name that matches
one variant only, by itself or with the stated memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.names import split_count, squash
from whichgpu.base.units import MIB
from whichgpu.catalog.currency import DollarRates
from whichgpu.catalog.find import count_in_name, gpus_named
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.catalog.live.references import ReferencePrices
from whichgpu.catalog.live.rows import OfferRow
from whichgpu.catalog.live.source_tables import name_rules, upstreams
from whichgpu.catalog.store import Catalog

MEMORY_TOLERANCE = 0.12  # Tolerance between marketed, reported and decimal sizes; the next memory size is at least a third away.
MAX_CACHED = 200_000  # Resolved names kept in memory (set by judgement).
MIN_GPUS, MAX_GPUS = 0.001, 100_000  # GPUs of one offer (assumed); the smallest slice sold is a sixteenth of a GPU.

_MODEL_NUMBER = re.compile(r"\d{4,}")


class ResolvedGpu(msgspec.Struct, frozen=True):
    """GPU variant of a price row and the number of GPUs; below 1 it is a slice of one."""

    gpu: Gpu
    gpus: float


class Rejection(msgspec.Struct, frozen=True):
    """Why a price row's GPU name matches no catalog variant: `unknown-gpu`, `other-gpu`, `gpus`, `count` or `memory`."""

    reason: str
    detail: str


class Resolver:
    """Resolves the GPU names of price rows to catalog variants, with a cache."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._machines = {(row.provider, name.lower()): row for row in catalog.instances for name in (row.instance, *row.aliases)}
        self._regions = {(row.provider, row.region.lower()): row.region for row in catalog.regions}
        # Providers whose instance names may identify the GPU; for others the cache ignores the instance name.
        self._named_here = {rule.provider for rule in name_rules() if rule.instance} | {market for market, _ in upstreams()}
        self._known: dict[tuple[object, ...], ResolvedGpu | Rejection] = {}
        self._named: dict[str, tuple[Gpu, ...]] = {}
        self._counts: dict[str, int | None] = {}

    def with_catalog_names(self, row: OfferRow) -> OfferRow:
        """Return a price row with provider, instance and region spelled as in the catalog, if it has them in another case."""
        provider = row.provider if self.is_seller(row.provider) else self._catalog.provider_id(row.provider)
        if provider is None:
            return row
        machine = self._machines.get((provider, row.instance.lower()))
        is_same = machine is not None and machine.instance.lower() == row.instance.lower()  # An alias keeps its own prices.
        instance = machine.instance if machine is not None and is_same else row.instance
        region = self._regions.get((provider, row.region.lower()), row.region)
        if (provider, instance, region) == (row.provider, row.instance, row.region):
            return row
        return replace(row, provider=provider, instance=instance, region=region)

    def count_in_name(self, name: str) -> int | None:
        """Return the number of GPUs that a GPU's name states (8 in `8xH100`); None if it states none."""
        if name not in self._counts:
            if len(self._counts) >= MAX_CACHED:
                self._counts.clear()
            self._counts[name] = count_in_name(self._catalog, name)
        return self._counts[name]

    def resolve(self, row: OfferRow) -> ResolvedGpu | Rejection:
        """Return the GPU variant of a price row, or the reason for its rejection."""
        try:
            return self._resolve(row)
        except UsageError:  # A name states an impossible number of GPUs.
            return Rejection("gpus", f"{row.accelerator} {row.instance}")

    def _resolve(self, row: OfferRow) -> ResolvedGpu | Rejection:
        by_instance = (
            not row.accelerator or row.provider in self._named_here or (row.provider, row.instance.lower()) in self._machines
        )
        key = (row.provider, row.instance if by_instance else "", row.accelerator, row.count, row.memory_mib, row.names)
        if row.count is not None and not is_plausible_count(row.count):
            return Rejection("gpus", f"{row.count:g}")
        if row.count is not None and (stated := self._other_count(row)):
            return Rejection("count", stated)
        resolved = self._known.get(key)
        if resolved is None:
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            resolved = self._known[key] = self._with_plausible_count(self._resolve_uncached(row))
        return resolved

    @cached_property
    def rates(self) -> DollarRates:
        """Return the exchange rates to US dollars used in plausibility checks of prices."""
        return DollarRates(self._catalog.exchange)

    @cached_property
    def references(self) -> ReferencePrices:
        """Return the bundled price ranges with which new offers are compared."""
        return ReferencePrices(self._catalog, self.rates)

    def is_seller(self, provider: str) -> bool:
        """Whether the catalog knows the seller with this id."""
        return self._catalog.is_seller(provider)

    def machine_of(self, provider: str, instance: str) -> Instance | None:
        """Return the catalog's instance by provider and name; None if the catalog lacks it."""
        return self._machines.get((provider, instance.lower()))

    def _resolve_uncached(self, row: OfferRow) -> ResolvedGpu | Rejection:
        machine = self._machines.get((row.provider, row.instance.lower())) or self._resold(row)
        if machine is not None:
            return self._from_machine(row, machine)
        resolved = self._by_rule(row) or self._by_name(row, (*row.names, row.accelerator))
        if resolved is None:
            return Rejection("unknown-gpu", row.accelerator or row.instance)
        return self._with_matching_memory(row, resolved)

    def _from_machine(self, row: OfferRow, machine: Instance) -> ResolvedGpu | Rejection:
        resolved = ResolvedGpu(self._catalog.gpu_in(machine), machine.gpus)
        if resolved.gpus >= 1 and row.count is not None and abs(row.count - resolved.gpus) > 0.001:
            return Rejection("count", f"{row.instance}: {row.count:g} / {resolved.gpus:g}")
        if self._is_other_generation(row.accelerator, resolved.gpu):
            return Rejection("other-gpu", f"{row.instance}: {row.accelerator} / {resolved.gpu.name}")
        return self._with_matching_memory(row, resolved)

    def _is_other_generation(self, name: str, gpu: Gpu) -> bool:
        """Whether a row names a GPU of another architecture; clouds shorten names (RTX6000), so an equal model number is none."""
        architectures = {one.architecture for one in self._candidates(name)}
        numbers = set(_MODEL_NUMBER.findall(name)) & set(_MODEL_NUMBER.findall(gpu.name))
        return bool(architectures) and gpu.architecture not in architectures and not numbers

    def _other_count(self, row: OfferRow) -> str | None:
        """Return the name of GPU or instance that states another number of GPUs than the row, with both; None if none does."""
        in_gpu = self.count_in_name(row.accelerator)
        in_instance, bare = split_count(row.instance)
        if not _shares_name(bare, split_count(row.accelerator)[1]):
            in_instance = None
        for name, stated in ((row.accelerator, in_gpu), (row.instance, in_instance)):
            if stated is not None and stated != row.count:
                return f"{name}: {row.count:g} / {stated}"
        return None

    def _resold(self, row: OfferRow) -> Instance | None:
        """Return the instance of another provider that a marketplace lists as `prefix…instance` or by another name."""
        prefix = re.match(r"[a-z0-9]+", row.instance.lower())
        upstream = upstreams().get((row.provider, prefix[0])) if prefix else None
        if upstream is None:
            return None
        names = (*row.names, re.sub(r"^[a-z0-9]+_+", "", row.instance, flags=re.IGNORECASE))
        machines = (self._machines.get((upstream, re.sub(r"_spot$", "", name.lower()))) for name in names)
        return next((machine for machine in machines if machine is not None), None)

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
                resolved = self._by_name_in_instance(row, groups["name"], count)
                if resolved is not None:
                    return resolved
            else:
                scale = {"n": int(groups.get("n") or 0), "n/2": int(groups.get("n") or 0) / 2}.get(rule.gpus)
                return ResolvedGpu(self._catalog.gpu_by_id[rule.gpu], count * (float(rule.gpus or 1) if scale is None else scale))
        return None

    def _by_name_in_instance(self, row: OfferRow, name: str, count: float) -> ResolvedGpu | None:
        """Return the GPU variant for a GPU name within an instance name: by the catalog's one-GPU instance, or by name."""
        sizes_gib = [gib for gib in (16, 32, 40, 80) if _fits(row.memory_mib, gib * 1024)]
        for key in (f"1x-{name}", f"1x_{name}", *(f"1x-{name}-{gib}GB" for gib in sizes_gib), name):
            machine = self._machines.get((row.provider, key.lower()))
            if machine is not None:
                return ResolvedGpu(self._catalog.gpu_in(machine), machine.gpus * count)
        return self._by_name(row, (name.replace("_", " "),))

    def _by_name(self, row: OfferRow, names: tuple[str, ...]) -> ResolvedGpu | None:
        for name in names:
            candidates = self._candidates(name)
            if len(candidates) > 1 and row.memory_mib:
                candidates = tuple(gpu for gpu in candidates if _fits(row.memory_mib, gpu.memory_marketed_bytes / MIB))
            if len(candidates) == 1:
                return ResolvedGpu(candidates[0], 1.0 if row.count is None else row.count)
        return None

    def _candidates(self, name: str) -> tuple[Gpu, ...]:
        if name not in self._named:
            self._named[name] = gpus_named(self._catalog, name, loosely=False) if name.strip() else ()
        return self._named[name]

    @staticmethod
    def _with_plausible_count(resolved: ResolvedGpu | Rejection) -> ResolvedGpu | Rejection:
        """Reject a row with an implausible GPU count, since a name may multiply it: `TPU v4-8` is four chips."""
        if isinstance(resolved, ResolvedGpu) and not MIN_GPUS <= resolved.gpus <= MAX_GPUS:
            return Rejection("gpus", f"{resolved.gpus:g}")
        return resolved

    def _with_matching_memory(self, row: OfferRow, resolved: ResolvedGpu) -> ResolvedGpu | Rejection:
        """Return the matched GPU, or a rejection if the memory a price row states contradicts it."""
        if not row.memory_mib:
            return resolved
        whole = resolved.gpu.memory_marketed_bytes / MIB
        if any(_fits(row.memory_mib, size) for size in _expected_memory_mib(row, resolved, whole)):
            return resolved
        return Rejection("memory", f"{row.accelerator or row.instance}: {row.memory_mib:g} / {whole:g} MiB")


def _expected_memory_mib(row: OfferRow, resolved: ResolvedGpu, whole: float) -> Iterator[float]:
    yield whole
    units = row.count or 1.0
    if resolved.gpus < units:  # A slice of a GPU has only its share of the memory.
        yield whole * resolved.gpus / units
    if resolved.gpus < 1:
        yield whole * resolved.gpus


def is_plausible_count(gpus: float) -> bool:
    """Whether a price can be of this many GPUs: of a slice of one, or of a whole number.

    >>> is_plausible_count(0.125), is_plausible_count(8), is_plausible_count(8.5), is_plausible_count(float("nan"))
    (True, True, False, False)
    """
    return MIN_GPUS <= gpus <= MAX_GPUS and (gpus < 1 or gpus == int(gpus))


def _shares_name(one: str, other: str) -> bool:
    one, other = squash(one), squash(other)
    return bool(one and other) and (one in other or other in one)


def _fits(stated_mib: float | None, expected_mib: float) -> bool:
    return bool(stated_mib) and abs((stated_mib or 0) / expected_mib - 1) <= MEMORY_TOLERANCE
