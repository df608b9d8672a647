"""An observed price: an instance in a region on a term, on a day, as a source states it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

TERMS = ("on-demand", "spot", "reserved-1y", "reserved-3y", "committed-1y", "committed-3y", "sustained", "owned")
PAYMENTS = ("no-upfront", "partial-upfront", "all-upfront")
INCLUDES = ("gpu+host", "gpu")
STALE_DAYS = 30  # Age in days above which a price is marked as stale (set by judgement).
ANY_REGION = "any"  # Region of an offer that is the same in all regions or names none.
Standing = Literal["list", "discounted", "contract", "owned"]


@dataclass(frozen=True, slots=True)
class Observation:
    """A price as observed; dates are ISO texts. Prices are per hour for the whole instance, in their native currency."""

    provider: str
    instance: str
    region: str
    gpu: str  # id of the variant
    gpus: int | float  # below 1: a slice of one
    term: str  # one of TERMS
    payment: str | None  # one of PAYMENTS; None if the term has no such choice
    price: Decimal  # per hour if all hours are used, the upfront part spread over them
    currency: str
    upfront: Decimal | None  # the part of it paid once at the start
    includes: str  # one of INCLUDES
    observed: str  # first day this price was seen
    last_observed: str  # last day it was seen unchanged
    ended: str | None  # first day it was no longer listed, or had another price
    source: str  # id of a source in the catalog, or the name of a live source
    recorded: str  # day it entered this catalog or store
    note: str | None = None  # text of the source on availability, or of the user's own file
    standing: Standing = "list"  # a list price, or its kind in the user's own price file
    discount: Decimal | None = None  # share taken off the list price

    @property
    def price_per_gpu(self) -> Decimal:
        """Return the price per GPU hour."""
        return self.price / Decimal(str(self.gpus))

    @property
    def key(self) -> tuple[str, str, str, str, int | float, str, str | None, str]:
        """Return the fields that identify the offer."""
        return (self.provider, self.instance, self.region, self.gpu, self.gpus, self.term, self.payment, self.includes)
