"""A cache of models and GPUs that applies the user's own measurements."""

from __future__ import annotations

from datetime import date

from whichgpu.api.measure.own_measurements import own_measurements
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache


def lookup_cache(
    catalog: Catalog | None = None, trusting: bool = True, own: bool = True, as_of: date | None = None
) -> LookupCache:
    """Return an empty cache; `own` corrects estimates by the user's measurements, `trusting` allows models' code to run."""
    return LookupCache(catalog, trusting, own_measurements if own else None, as_of)
