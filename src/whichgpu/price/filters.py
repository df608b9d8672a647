"""Resolve the names in a price query to ids of the catalog and of the user's own price lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import msgspec

from whichgpu.base.errors import UnknownName
from whichgpu.base.names import split_count, squash, unknown_word
from whichgpu.catalog.find import exact_instances, find_gpus, find_instances, find_provider, find_regions, gpus_named
from whichgpu.catalog.live.stored_offers import StoredOfferName, live_names
from whichgpu.catalog.offer import TERMS
from whichgpu.catalog.places.country import countries_named, is_group
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.store import Catalog
from whichgpu.price.offers import OfferFilter
from whichgpu.price.terms import MONTH_HOURS

OWNED = "owned"  # The provider of the user's own machines.


class OffersQuery(msgspec.Struct, frozen=True):
    """A query of offers to list, in words as people type them: a list, or text with commas. None and () filter nothing."""

    gpu: Sequence[str] | str = ()  # names; `8xA100` asks for eight of them, a machine's name for that machine
    instance: Sequence[str] | str = ()
    gpus: tuple[float, float] | None = None
    min_memory: int | None = None  # least bytes of one GPU
    provider: Sequence[str] | str = ()
    exclude_provider: Sequence[str] | str = ()
    region: Sequence[str] | str = ()
    term: Sequence[str] | str = ()
    near: str | None = None
    max_latency: float | None = None  # longest round trip in seconds
    currency: str | None = None
    exchange_rate: Mapping[str, Decimal] | None = None  # units of each currency per US dollar
    hours: Decimal = Decimal(MONTH_HOURS)  # hours of use per month
    sort: str | None = None
    group_by: Sequence[str] | str = ()
    limit: int | None = None  # most offers returned


def offer_filter(catalog: Catalog, query: OffersQuery) -> OfferFilter:
    """Return a filter on offers by catalog ids for a query that uses names as people type them."""
    ids: set[str] = set()
    machines: set[tuple[str, str]] = set()
    counts: set[int] = set()
    for name in split_names(query.gpu):
        count, bare = split_count(name)
        if not gpus_named(catalog, name) and (exact_matches := exact_instances(catalog.instances, bare)):
            machines |= {(row.provider, row.instance) for row in exact_matches}
        elif count is not None and not gpus_named(catalog, bare):
            count = None  # The number is part of the name, as in 5700XT.
        if count:
            counts.add(count)
        ids |= {gpu.id for gpu in find_gpus(catalog, name)}
    for name in split_names(query.instance):
        matches = machines_named(catalog, name)
        machines |= {(provider, instance) for provider, instance, _ in matches}
        ids |= {gpu for _, _, gpu in matches}
    places = {place for name in split_names(query.region) for place in places_named(catalog, name)}
    terms = split_names(query.term)
    for term in terms:
        if term not in TERMS:
            raise unknown_word("term", term, TERMS)
    only = counts.pop() if len(counts) == 1 and len(split_names(query.gpu)) == 1 else None
    return OfferFilter(
        gpu_ids=frozenset(ids) if ids else None,
        instances=frozenset(machines) if machines else None,
        gpus=query.gpus or ((float(only), float(only)) if only else None),
        min_memory=query.min_memory,
        providers=tuple(provider_named(catalog, name) for name in split_names(query.provider)),
        excluded_providers=tuple(provider_named(catalog, name) for name in split_names(query.exclude_provider)),
        regions=frozenset(places) if split_names(query.region) else None,
        terms=terms,
        max_latency=query.max_latency,
    )


def provider_named(catalog: Catalog, name: str) -> str:
    """Return the id of a provider in the catalog, or of one that the user's own price list names."""
    try:
        return find_provider(catalog, name)
    except UnknownName:
        if squash(name) == OWNED:
            return OWNED
        if own := _own(catalog, "provider", name):
            return own[0].provider
        raise


def machines_named(catalog: Catalog, name: str) -> list[tuple[str, str, str]]:
    """Return (provider, instance name, GPU id) of the cloud machines that a name stands for."""
    try:
        return [(row.provider, row.instance, row.gpu) for row in find_instances(catalog, name)]
    except UnknownName:
        if own := _own(catalog, "instance", name):
            return [(row.provider, row.instance, row.gpu) for row in own]
        raise


def places_named(catalog: Catalog, name: str) -> set[tuple[str, str]]:
    """Return (provider, region) of the places a name stands for; the user's own price list may name a place by its city."""
    called = dict.fromkeys((name, *countries_named(name)))
    own = {(row.provider, row.region) for text in called for row in _own(catalog, "region", text)}
    try:
        return own | {(row.provider, row.region) for row in find_regions(catalog, name)}
    except UnknownName:
        if own:
            return own
        raise


def countries_meant(query: OffersQuery) -> dict[str, tuple[str, ...]]:
    """Return the country codes that each continent or union in a query stands for, by its name as typed."""
    return {name: countries_named(name) for name in split_names(query.region) if is_group(name)}


def _own(catalog: Catalog, what: str, name: str) -> tuple[StoredOfferName, ...]:
    return live_names(what, name) if catalog.folder == DATA_DIR else ()


def split_names(names: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return the names in a comma-separated text or list; an empty text stays as a name that matches nothing."""
    if not names and not isinstance(names, str):
        return ()
    text = names if isinstance(names, str) else ",".join(names or ())
    return tuple(part.strip() for part in text.split(",") if part.strip()) or ("",)
