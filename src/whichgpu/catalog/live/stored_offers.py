"""Offers in the user's price store, read by the rest of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from whichgpu.catalog.host import Source
from whichgpu.catalog.live.rows import OWN_LIST
from whichgpu.catalog.offer import Observation, OfferGroup

MAX_NAMED_PARTS = 8  # Price lists of one source that its title names.


class StoredOffers(msgspec.Struct, frozen=True):
    """Offers read from the user's price store, and the number left out of each group of offers alike in all but name."""

    offers: tuple[Observation, ...]
    left_out: Mapping[OfferGroup, int]


def live_offers(
    as_of: date | None = None,
    known_by: date | int | None = None,
    *,
    gpus: frozenset[str] | None = None,
    folder: Path | None = None,
) -> tuple[Observation, ...]:
    """Return the last observation of each stored offer up to the day `as_of`, from snapshots recorded up to `known_by`.

    Offers no longer listed are included with the day they ended, so that callers do not use an older price of them instead.
    """
    from whichgpu.catalog.live.price_store import open_for_reading

    with open_for_reading(folder) as connection:
        if connection is None:
            return ()
        from whichgpu.catalog.live.queries import OfferQuery, offers_on

        return _without_zones(offers_on(connection, as_of, known_by, OfferQuery(gpus=gpus), also_ended=True))


def cheapest_live_offers(
    as_of: date,
    known_by: date | int | None = None,
    *,
    gpus: frozenset[str] | None = None,
    instances: Iterable[str] = (),
    folder: Path | None = None,
) -> StoredOffers:
    """Return stored offers without the dearer of many alike in all but name; machines named in `instances` are never left out.

    Small stores and past days are read whole.
    """
    from whichgpu.catalog.live.price_store import open_for_reading

    with open_for_reading(folder) as connection:
        if connection is None:
            return StoredOffers((), {})
        from whichgpu.catalog.live.alike import has_ranks, left_out
        from whichgpu.catalog.live.queries import OfferQuery, offers_on

        newest = connection.execute("SELECT max(seen) FROM batch").fetchone()[0]
        if known_by is not None or newest > as_of.toordinal() or not has_ranks(connection):
            return StoredOffers(live_offers(as_of, known_by, gpus=gpus, folder=folder), {})
        offers = offers_on(connection, as_of, None, OfferQuery(gpus=gpus), also_ended=True, cheapest=True)
        for name in instances:
            offers += offers_on(connection, as_of, None, OfferQuery(gpus=gpus, instance=name), also_ended=True)
        return StoredOffers(_without_zones(offers), left_out(connection, gpus))


def _without_zones(offers: Iterable[Observation]) -> tuple[Observation, ...]:
    """Return offers without the notes that list their zones."""
    return tuple(replace(one, note=None) if one.note and one.note.startswith("zones: ") else one for one in offers)


class StoredOfferName(NamedTuple):
    """Provider, instance, region and GPU of a stored offer, by name."""

    provider: str
    instance: str
    region: str
    gpu: str


def live_names(what: str, name: str, folder: Path | None = None) -> tuple[StoredOfferName, ...]:
    """Return stored offers whose `provider`, `instance` or `region` has that name, in any case."""
    from whichgpu.catalog.live.price_store import open_for_reading

    assert what in StoredOfferName._fields
    with open_for_reading(folder) as connection:
        if connection is None:
            return ()
        query = f"SELECT DISTINCT provider, instance, region, gpu FROM offer WHERE {what} = ? COLLATE NOCASE"
        return tuple(StoredOfferName(*row) for row in connection.execute(query, (name.strip(),)))


def last_snapshot(known_by: date | int | None = None, folder: Path | None = None) -> int | None:
    """Return the number of the newest price snapshot recorded up to the day (or number) `known_by`; None if there is none."""
    from whichgpu.catalog.live.price_store import open_for_reading

    with open_for_reading(folder) as connection:
        if connection is None:
            return None
        from whichgpu.catalog.live.queries import snapshot_horizon

        newest = connection.execute("SELECT max(id) FROM batch WHERE id <= ?", (snapshot_horizon(connection, known_by),))
        number: int | None = newest.fetchone()[0]
        return number


def live_sources(ids: Iterable[str], folder: Path | None = None) -> tuple[Source, ...]:
    """Return the sources with these names in the user's price store, with the names of their lists and the last day of each."""
    from whichgpu.catalog.live.price_store import NAME, open_for_reading

    with open_for_reading(folder) as connection:
        if connection is None:
            return ()
        sources = []
        for id in ids:
            rows = connection.execute(
                "SELECT s.scope, max(b.seen), max(b.recorded) FROM series s JOIN batch b ON b.series = s.id WHERE s.source = ? "
                "GROUP BY s.id ORDER BY max(b.id) DESC",
                (id,),
            ).fetchall()
            if rows:
                parts = ", ".join(scope for scope, *_ in rows[:MAX_NAMED_PARTS]) + (", …" if len(rows) > MAX_NAMED_PARTS else "")
                observed, recorded = (date.fromordinal(max(row[at] for row in rows)).isoformat() for at in (1, 2))
                title = f"{'Price lists of the user' if id == OWN_LIST else f'Prices fetched from {id}'}: {parts}"
                sources.append(Source(id, title, "user" if id == OWN_LIST else id, NAME, observed, None, recorded))
        return tuple(sources)
