"""Requests about prices: filters on offers, and owning against renting."""

from collections.abc import Mapping
from typing import Annotated, TypedDict

from whichgpu.api.request.catalog import SIZE, SPAN, TERM_LIST, DataRequest, Sorted
from whichgpu.api.request.field import Alias, Field
from whichgpu.api.request.kinds import File, Names, Pairs, Parsed, Plain, Quantity, Share, Words
from whichgpu.api.request.limits import parse_hours, parse_row_limit
from whichgpu.api.request.types import CountSpan, Duration, FilePath, NameList, Price, Size
from whichgpu.base.kinds import Whole
from whichgpu.base.units import parse_seconds

PERIODS = ("hour", "month")


def _groups() -> tuple[str, ...]:
    from whichgpu.price.offers import GROUPS

    return GROUPS


class SellerFields(TypedDict, total=False):
    """Request fields that filter offers by region and term (on-demand, spot, …), and set the currency and own prices."""

    region: Annotated[NameList | None, Field(Names(), "NAMES", "option.region-names", "Seoul")]
    term: Annotated[NameList | None, Field(TERM_LIST, "TERMS", example="on-demand")]
    currency: Annotated[str | None, Field(Plain(), "CODE", example="EUR")]
    prices: Annotated[FilePath | None, Field(File(), "FILE", is_local=True)]
    overlay: Annotated[FilePath | None, Alias("prices")]


class MarketFields(SellerFields, total=False):
    """Request fields that filter offers by machine, provider, region, term and nearness to a city."""

    instance: Annotated[NameList | None, Field(Names("instances"), "NAMES", "option.instance-names")]
    provider: Annotated[NameList | None, Field(Names("providers"), "NAMES")]
    exclude_provider: Annotated[NameList | None, Field(Names("providers"), "NAMES", example="vast")]
    near: Annotated[str | None, Field(Plain(), "CITY", example="Seoul")]


class OffersRequest(MarketFields, Sorted, total=False):
    """Request for the offers of GPUs on a day."""

    gpu: Annotated[NameList | None, Field(Names("gpus"), "NAMES", "option.gpu-names", "H100")]
    gpus: Annotated[CountSpan | None, Field(SPAN, "N[..M]")]
    min_memory: Annotated[Size | None, Field(SIZE, "SIZE", "option.min-memory-gpu")]
    max_latency: Annotated[Duration | None, Field(Parsed(parse_seconds, "s"), "TIME", example="100ms")]
    exchange_rate: Annotated[str | Mapping[str, float] | None, Field(Pairs(), "CODE=RATE")]
    per: Annotated[NameList | None, Field(Words("period", PERIODS, many=True), "PERIODS", is_display=True)]
    hours: Annotated[float | str | None, Field(Parsed(parse_hours), "N")]
    group_by: Annotated[NameList | None, Field(Words("group", _groups, many=True), "FIELDS")]
    limit: Annotated[int | str | None, Field(Parsed(parse_row_limit), "N", example="20")]


class BuyRequest(SellerFields, DataRequest, total=False):
    """Request to compare the cost of owning GPUs with that of renting them."""

    names: Annotated[NameList, Field(Names("gpus"), "GPU…", argument=True, example="RTX 4090")]
    provider: Annotated[NameList | None, Field(Names("providers"), "NAMES", "option.buy-against")]
    gpus: Annotated[int | str | None, Field(Whole(), "N", "option.buy-gpus")]
    price: Annotated[str | Mapping[str, str] | None, Field(Pairs(), "GPU=MONEY", "option.card-price", "RTX 4090=1800usd")]
    host_price: Annotated[Price | None, Field(Quantity(""), "MONEY")]
    power_price: Annotated[Price | None, Field(Quantity(""), "MONEY")]
    pue: Annotated[float | str | None, Field(Share(), "N")]
    years: Annotated[float | str | None, Field(Share(), "N")]
    residual: Annotated[float | str | None, Field(Share(), "SHARE")]
    use: Annotated[float | str | None, Field(Share(), "SHARE")]
    upkeep: Annotated[Price | None, Field(Quantity(""), "MONEY")]
