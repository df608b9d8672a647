"""Constraints of a recommendation, resolved to ids and numbers, and the default ranking of its candidates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Literal

import msgspec

from whichgpu.base.money import Money
from whichgpu.price.own import USE
from whichgpu.price.quotas import AccountQuota
from whichgpu.price.run import RunSettings

Rank = Literal["cost", "time", "value", "balanced"]
RANKS: tuple[Rank, ...] = ("cost", "time", "value", "balanced")
Risk = Literal["low", "even"]  # low: limits hold with 90% probability if possible; even: at the estimated times
RISKS: tuple[Risk, ...] = ("low", "even")
# What a candidate's precision may cost: nothing beside the precision the model is published in, below about 1% of published
# scores (8 bits), or more.
Quality = Literal["lossless", "near-lossless", "any"]
QUALITIES: tuple[Quality, ...] = ("lossless", "near-lossless", "any")
DEFAULT_QUALITY: Quality = "near-lossless"
QUALITY_RANK: Mapping[str, int] = {name: rank for rank, name in enumerate(QUALITIES)}
# Kinds of sellers, as the catalog's providers have them; `any` allows all. A service is by default not put on a marketplace,
# whose machines belong to other companies or people and may leave it at any time, nor on cards made for desktops.
Seller = Literal["hyperscaler", "gpu-cloud", "marketplace", "any"]
SELLERS: tuple[Seller, ...] = ("hyperscaler", "gpu-cloud", "marketplace", "any")
SERVICE_SELLERS: tuple[Seller, ...] = ("hyperscaler", "gpu-cloud")
MAX_GPUS = 8.0  # One replica has at most this many GPUs by default (assumed).
TIME_WEIGHT = 0.5  # Weight of log time against log cost: halving the time justifies 1.41 times the cost (assumed).


class Owned(msgspec.Struct, frozen=True):
    """A number of GPUs of one kind in a machine the user owns."""

    gpu: str
    gpus: int
    cost_per_hour: float = 0.0  # US dollars of power and upkeep


class Constraints(msgspec.Struct, frozen=True):
    """Filters on offers, limits on candidates, and how to rank them. None and () constrain nothing."""

    day: date
    gpu_ids: frozenset[str] | None = None
    machines: frozenset[tuple[str, str]] | None = None  # pairs of provider and instance
    providers: tuple[str, ...] = ()
    excluded_providers: tuple[str, ...] = ()
    avoided_providers: tuple[str, ...] = ()  # providers of other kinds than the sellers allowed
    server_cards: bool = False  # whether only GPUs made for servers are allowed
    regions: frozenset[tuple[str, str]] | None = None
    terms: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    gpus: tuple[float, float] | None = None
    min_memory: int | None = None
    max_latency: float | None = None  # round trip in seconds
    budget: Money | None = None
    budget_per: str | None = None  # hour or month; None if the budget is for the whole run
    deadline: float | None = None  # seconds from the start of the run
    # Of a million input, output and cached input tokens at an API, in `currency`.
    api_prices: tuple[float, float, float] | None = None
    max_watts: float | None = None  # power of GPUs at their limit and of their machines
    pue: float = 1.0  # factor on their power, for cooling and losses of the room
    rank: Rank | None = None
    risk: Risk | None = None
    currency: str = "USD"
    owned: tuple[Owned, ...] = ()
    quotas: tuple[AccountQuota, ...] = ()  # of the user's cloud accounts
    run_settings: RunSettings = msgspec.field(default_factory=RunSettings)
    duration: float | None = None  # seconds that a service runs
    quality: Quality = DEFAULT_QUALITY  # least quality that the precision of a candidate may keep
    slices: bool = False  # whether slices of a GPU are considered
    max_age: float | None = None  # most seconds since a price was observed
    cards: Mapping[str, float] = msgspec.field(default_factory=dict)  # price of one card to buy, by GPU

    @property
    def span(self) -> tuple[float, float]:
        """Return the smallest and the largest number of GPUs that a candidate may have."""
        return self.gpus or (0.0, MAX_GPUS)

    @property
    def worked_share(self) -> float:
        """Return the share of all hours that the machines of a service work: cards to buy at the usual use, rented ones all."""
        return USE if self.cards else 1.0

    def risk_for(self, serving: bool) -> Risk:
        """Return the risk preference to use: by default low for services, whose users notice, and even for runs."""
        return self.risk or ("low" if serving else "even")

    def order(self, by_cost: bool) -> Rank:
        """Return the ranking to use; by default cost if asked, or if a deadline already states the speed needed."""
        if self.rank:
            return self.rank
        return "cost" if by_cost or self.deadline is not None else "balanced"
