"""What every verb (public function) takes besides its request: the catalog, the day and a progress callback."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING

import msgspec

from whichgpu.catalog.store import Catalog

if TYPE_CHECKING:
    from whichgpu.estimate.lookup_cache import LookupCache


class Context(msgspec.Struct, frozen=True):
    """What every public function takes besides its request: catalog, day, callbacks; `spell` writes a field's name for errors."""

    catalog: Catalog = msgspec.field(default_factory=Catalog)
    as_of: date | None = None
    today: date = msgspec.field(default_factory=date.today)
    spell: Callable[[str], str] = str
    progress: Callable[[str, float], None] | None = None  # Called with the stage and the share of it that is done.
    lookups: LookupCache | None = None  # Models and GPUs already looked up, shared by several requests.
    wants_remedies: bool = True  # Whether `fit` computes remedies even if the request names no GPU.

    def lookups_for(self, own_measurements: bool) -> LookupCache:
        """Return the cache of looked-up models and GPUs; with `own_measurements`, estimates are corrected by the user's own."""
        from whichgpu.api.lookup_cache import lookup_cache  # Imported here: verbs about facts do not need it.

        if self.lookups is not None and self.lookups.own == own_measurements:
            return self.lookups
        return lookup_cache(self.catalog, own=own_measurements, as_of=self.as_of)
