"""What every verb is asked with beside its request: the catalog, the day, and who follows a long answer."""

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
    """One question's surroundings. `spell` names a field of the request in errors: as a flag, or as it is."""

    catalog: Catalog = field(default_factory=Catalog)
    as_of: date | None = None
    today: date = field(default_factory=date.today)
    spell: Callable[[str], str] = str
    progress: Callable[[str, float], None] | None = None  # stage and share done
    lookups: LookupCache | None = None  # what earlier questions looked up, kept by whoever answers many
    wants_remedies: bool = True  # whether all of an answer is wanted, remedies for GPUs nobody named among it

    def lookups_for(self, own_measurements: bool) -> LookupCache:
        """Return the cache of models and GPUs; `own_measurements` says whether the user's records count."""
        from whichgpu.api.lookup_cache import lookup_cache  # facts do without it

        if self.lookups is not None and self.lookups.own == own_measurements:
            return self.lookups
        return lookup_cache(self.catalog, own=own_measurements, as_of=self.as_of)
