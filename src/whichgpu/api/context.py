"""What each function of the API takes beside its request: the catalog, the day and a progress callback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from whichgpu.catalog.store import Catalog

if TYPE_CHECKING:
    from whichgpu.estimate.lookup_cache import LookupCache


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a call needs beside its request. `spell` names a field of the request in errors, as a flag or as it is."""

    catalog: Catalog = field(default_factory=Catalog)
    as_of: date | None = None
    today: date = field(default_factory=date.today)
    spell: Callable[[str], str] = str
    progress: Callable[[str, float], None] | None = None  # called with the stage and the share of it done
    lookups: LookupCache | None = None  # Lookups shared by several requests.
    wants_remedies: bool = True  # Whether `fit` computes remedies for GPUs the request does not name.

    def lookups_for(self, own_measurements: bool) -> LookupCache:
        """Return the cache of models and GPUs; `own_measurements` says whether the user's own measurements correct it."""
        from whichgpu.api.lookup_cache import lookup_cache  # This import is deferred, since verbs about facts do without it.

        if self.lookups is not None and self.lookups.own == own_measurements:
            return self.lookups
        return lookup_cache(self.catalog, own=own_measurements, as_of=self.as_of)
