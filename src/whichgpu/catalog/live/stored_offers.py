"""What the user's store adds to the bundled offers: the one function the rest of the catalog calls."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

from whichgpu.catalog.offer import Observation


def live_offers(
    as_of: date | None = None,
    known: date | int | None = None,
    *,
    gpus: frozenset[str] | None = None,
    provider: str | None = None,
    folder: Path | None = None,
) -> tuple[Observation, ...]:
    """The last runs of the user's store that had begun by a day, from looks recorded by `known`.

    Also those that had ended by then: a look that saw an offer gone speaks against an older sighting of it. Nothing, and nothing
    loaded, where there is no store.
    """
    from whichgpu.catalog.live.price_store import open_for_reading, store_path

    path = store_path(folder)
    if path is None or not path.exists():
        return ()
    from whichgpu.catalog.live.queries import OfferQuery, offers_on

    with open_for_reading(folder) as connection:
        if connection is None:
            return ()
        found = offers_on(connection, as_of, known, OfferQuery(gpus=gpus, provider=provider), also_ended=True)
        return tuple(replace(run, note=None) if run.note and run.note.startswith("zones: ") else run for run in found)


class StoredOfferName(NamedTuple):
    """What an offer of the store is called."""

    provider: str
    instance: str
    region: str
    gpu: str


def live_names(what: str, name: str, folder: Path | None = None) -> tuple[StoredOfferName, ...]:
    """The store's offers whose `provider`, `instance` or `region` is called so, in whatever letters."""
    from whichgpu.catalog.live.price_store import open_for_reading, store_path

    path = store_path(folder)
    if path is None or not path.exists():
        return ()
    assert what in StoredOfferName._fields
    with open_for_reading(folder) as connection:
        if connection is None:
            return ()
        asked = f"SELECT DISTINCT provider, instance, region, gpu FROM offer WHERE {what} = ? COLLATE NOCASE"
        return tuple(StoredOfferName(*row) for row in connection.execute(asked, (name.strip(),)))


def last_snapshot(known: date | int | None = None, folder: Path | None = None) -> int | None:
    """The number of the newest snapshot that counts; None where there is none."""
    from whichgpu.catalog.live.price_store import open_for_reading, store_path

    path = store_path(folder)
    if path is None or not path.exists():
        return None
    from whichgpu.catalog.live.queries import snapshot_horizon

    with open_for_reading(folder) as connection:
        if connection is None:
            return None
        found = connection.execute("SELECT max(id) FROM batch WHERE id <= ?", (snapshot_horizon(connection, known),)).fetchone()[
            0
        ]
        return None if found is None else int(found)
