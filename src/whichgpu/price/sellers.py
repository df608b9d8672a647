"""Origin of the prices in an answer: sellers that the catalog does not know, and price lists that the user supplied."""

from __future__ import annotations

from collections.abc import Iterable

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.host import Source
from whichgpu.catalog.live.overlay import NAME as OVERLAY
from whichgpu.catalog.live.stored_offers import live_sources
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.store import Catalog

NOT_SOLD = ("owned", "buy")  # providers of the user's own machines and of cards to buy


def unknown_seller(catalog: Catalog, provider: str, source: str) -> Message | None:
    """Return a warning about the price of a seller that the catalog does not know, with its source; None if it is known."""
    if not provider or provider in NOT_SOLD or catalog.is_seller(provider):
        return None
    return msg("offers.unknown-seller", provider=provider, source=source)


def cite_sources(catalog: Catalog, prices: Iterable[str], *groups: tuple[str, ...]) -> tuple[Source, ...]:
    """Return the documents with these ids; those of `prices` may be the user's own price lists, which come first."""
    ids = tuple(dict.fromkeys(prices))
    supplied = [id for id in ids if id not in catalog.sources]
    own = live_sources(supplied) if supplied and catalog.folder == DATA_DIR else ()
    overlay = (Source(OVERLAY, "Contracts, discounts and own machines of the user", "user", OVERLAY, None, None, ""),)
    return (*own, *(overlay if OVERLAY in ids else ()), *catalog.cited_sources(ids, *groups))
