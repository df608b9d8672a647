"""An observed price: an instance in a region on a term, on a day, as a source states it."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal, NamedTuple

import msgspec

TERMS = ("on-demand", "spot", "reserved-1y", "reserved-3y", "committed-1y", "committed-3y", "sustained", "owned")
PAYMENTS = ("no-upfront", "partial-upfront", "all-upfront")
INCLUDES = ("gpu+host", "gpu")
STALE_DAYS = 30  # Age in days above which a price is marked as stale (set by judgement).
ANY_REGION = "any"  # Region of an offer that is the same in all regions or names none.
Standing = Literal["list", "discounted", "contract", "owned"]
KEPT_OFFERS = 50  # Cheapest offers read of a group alike in all but name (set by judgement: more than a page shows).


class Observation(msgspec.Struct, frozen=True):
    """A price as observed; dates are ISO texts. Prices are per hour for the whole instance, in their native currency."""

    provider: str
    instance: str
    region: str
    gpu: str  # id of the variant
    gpus: int | float  # number of GPUs; below 1: a slice of one GPU
    term: str  # one of TERMS
    payment: str | None  # one of PAYMENTS; None if the term has no such choice
    price: Decimal  # per hour if all hours of the term are used, including the upfront payment
    currency: str
    upfront: Decimal | None  # amount paid once at the start, already included in `price`
    includes: str  # what the price covers, one of INCLUDES
    observed: str  # first day this price was seen
    last_observed: str  # last day it was seen unchanged
    ended: str | None  # first day the offer was no longer listed or had another price; None if still listed
    source: str  # id of a source in the catalog, or the name of a live source
    recorded: str  # day the price was added to this catalog or price store
    note: str | None = None  # what the source says about availability, or a note in the user's price file
    standing: Standing = "list"  # list price, or the kind of entry in the user's own price file
    discount: Decimal | None = None  # share taken off the list price

    @property
    def price_per_gpu(self) -> Decimal:
        """Return the price per GPU and hour: that of the instance divided by its number of GPUs."""
        return self.price / Decimal(str(self.gpus))

    @property
    def key(self) -> tuple[str, str, str, str, int | float, str, str | None, str]:
        """Return the fields that identify the offer: equal for observations of the same machine, region and term."""
        return (self.provider, self.instance, self.region, self.gpu, self.gpus, self.term, self.payment, self.includes)


class OfferGroup(NamedTuple):
    """What offers that differ only in the name of the machine have in common."""

    gpu: str
    provider: str
    region: str
    gpus: int | float
    term: str
    payment: str | None
    includes: str
    currency: str
