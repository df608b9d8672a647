"""The newest day on which any price was seen, in the bundled catalog or in the user's price store."""

from __future__ import annotations

from datetime import date
from functools import lru_cache

from whichgpu.base.dates import last_day
from whichgpu.catalog.live.price_store import open_for_reading
from whichgpu.catalog.live.queries import series_status
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.store import Catalog


@lru_cache(maxsize=2)
def newest_price_day(catalog: Catalog) -> date | None:
    """Return the newest day on which a price was seen; None if the catalog has no prices."""
    days = [row.last_observed or row.observed for row in catalog.prices()]
    if catalog.folder == DATA_DIR and catalog.known_by is None:
        with open_for_reading() as connection:
            if connection is not None:
                days += [one.last_look for one in series_status(connection, date.today())]
    return max(map(last_day, set(days)), default=None)
