"""Checks of the user's contracts against the catalog: the machine's GPUs, the provider's regions, and known prices."""

from __future__ import annotations

from collections.abc import Sequence

from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.money import Money
from whichgpu.base.names import unknown_word
from whichgpu.base.units import significant
from whichgpu.catalog.find import exact_instances, find_gpu, find_gpus, find_regions
from whichgpu.catalog.host import Instance
from whichgpu.catalog.live.references import ReferencePrices
from whichgpu.catalog.live.stored_offers import live_names
from whichgpu.catalog.offer import ANY_REGION, Observation
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.store import Catalog


def machine_named(catalog: Catalog, provider: str, name: str) -> Instance | None:
    """Return the provider's instance of that name; None if the catalog lacks it."""
    machines = exact_instances(catalog.instances, name) if name else ()
    return next((machine for machine in machines if machine.provider == provider), None)


def contract_gpu(catalog: Catalog, machine: Instance | None, name: str | None, gpus: float) -> str | None:
    """Return the id of a contract's GPU; raise if GPU or number are not those of the known machine; None if none is stated."""
    if machine is None:
        return None if name is None else find_gpu(catalog, name).id
    variants = None if name is None else find_gpus(catalog, name)
    if gpus != machine.gpus or (variants is not None and all(gpu.id != machine.gpu for gpu in variants)):
        gpu_name = (variants[0].name if len(variants) == 1 else name) if variants else catalog.gpu_in(machine).name
        message = msg(
            "error.contradicts-machine",
            name=f"{machine.provider} {machine.instance}",
            machine=f"{machine.gpus:g}x {catalog.gpu_in(machine).name}",
            given=f"{gpus:g}x {gpu_name}",
        )
        raise UsageError("bad-overlay", message, msg("hint.contradicts-machine"))
    return machine.gpu


def contract_regions(catalog: Catalog, provider: str, name: str) -> Sequence[str]:
    """Return the ids of the provider's regions that a name means; raise if the catalog and the price store know none."""
    ids = [region.region for region in catalog.regions if region.provider == provider]
    if name == ANY_REGION or not ids:
        return (name,)
    try:
        regions = [region.region for region in find_regions(catalog, name) if region.provider == provider]
    except UnknownName:
        regions = []
    stored = live_names("region", name) if not regions and catalog.folder == DATA_DIR else ()
    regions += [row.region for row in stored if row.provider == provider][:1]
    if not regions:
        raise unknown_word("region", f"{provider} {name}", ids)
    return regions


def check_against_known_prices(offer: Observation, references: ReferencePrices, dollars: float) -> None:
    """Raise for a contract price, in US dollars an hour, that is far from those of its machine, or below all of its GPU."""
    names = (offer.provider, offer.instance, offer.region, offer.term, offer.includes, offer.gpu)
    prices = references.find(*names)
    if prices is None:
        return
    if prices.machine_known:
        is_plausible = prices.plausible_low <= dollars / offer.gpus <= prices.plausible_high
    else:
        is_plausible = references.market_rejection(offer.gpu, offer.gpus, offer.term, dollars) is None
    if not is_plausible:
        message = msg(
            "error.contract-far-off",
            name=offer.instance,
            price=str(Money(offer.price, offer.currency)),
            dollars=significant(dollars),
            low=significant(prices.low * offer.gpus),
            high=significant(prices.high * offer.gpus),
        )
        raise UsageError("implausible-price", message, msg("hint.contract-far-off"))
