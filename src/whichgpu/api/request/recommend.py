"""Constraints on cost, time and offers, and the request of `recommend`."""

from collections.abc import Mapping
from typing import Annotated

from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import File, Names, Pairs, Parsed, Plain, Quantity, Share, Span, Words
from whichgpu.api.request.limits import parse_candidates
from whichgpu.api.request.load import EMIT, OWN_MEASUREMENTS, REPORT
from whichgpu.api.request.offers import MarketFields
from whichgpu.api.request.types import CountSpan, Duration, FilePath, ModelName, NameList, Price, Size
from whichgpu.api.request.workload import WorkloadFields
from whichgpu.base.kinds import Flag, Whole
from whichgpu.catalog.select import parse_span
from whichgpu.workload.kinds import ModelValue, Word
from whichgpu.workload.tasks import RECOMMEND_TASKS

TIME, MONEY, SIZE = Quantity("s"), Quantity(""), Quantity("B")


def _ranks() -> tuple[str, ...]:
    from whichgpu.decide.constraints import RANKS

    return RANKS


def _risks() -> tuple[str, ...]:
    from whichgpu.decide.constraints import RISKS

    return RISKS


def _qualities() -> tuple[str, ...]:
    from whichgpu.decide.constraints import QUALITIES

    return QUALITIES


def _sellers() -> tuple[str, ...]:
    from whichgpu.decide.constraints import SELLERS

    return SELLERS


def _modes() -> tuple[str, ...]:
    from whichgpu.decide.modes import MODES

    return MODES


class ConstraintFields(MarketFields, total=False):
    """Limits on cost, time and offers that `recommend` and `plan` have in common."""

    gpu: Annotated[NameList | None, Field(Names("gpus"), "NAMES", "option.recommend-gpu")]
    needs: Annotated[NameList | None, Field(Names(), "FEATURES", example="bf16,nvlink")]
    min_memory: Annotated[Size | None, Field(SIZE, "SIZE", "option.min-memory-gpu", "40GB")]
    max_latency: Annotated[Duration | None, Field(TIME, "TIME", example="100ms")]
    exchange_rate: Annotated[str | Mapping[str, float] | None, Field(Pairs(), "CODE=RATE")]
    budget: Annotated[Price | None, Field(MONEY, "MONEY", example="2usd/h")]
    risk: Annotated[str | None, Field(Words("risk", _risks), "low|even", example="even")]
    sellers: Annotated[NameList | None, Field(Words("seller", _sellers, many=True), "KINDS", example="hyperscaler,gpu-cloud")]
    quality: Annotated[str | None, Field(Words("quality", _qualities), "LEVEL", example="lossless")]
    owned: Annotated[NameList | None, Field(Names(), "GPUS", example="8xV100-SXM-16GB")]
    quota_file: Annotated[FilePath | None, Field(File(), "FILE", is_local=True)]
    startup: Annotated[Duration | None, Field(TIME, "TIME")]
    interruptions: Annotated[str | None, Field(Plain(), "N/h")]
    power_price: Annotated[Price | None, Field(MONEY, "MONEY")]
    max_age: Annotated[Duration | None, Field(TIME, "TIME", "option.recommend-max-age")]
    report: Annotated[FilePath | None, REPORT]
    plot: Annotated[FilePath | None, Field(File(), "FILE", is_local=True)]
    no_own_measurements: Annotated[bool | None, OWN_MEASUREMENTS]


class RecommendRequest(ConstraintFields, WorkloadFields, total=False):
    """Request for a recommendation of GPU, offer and layout."""

    task: Annotated[str, Field(Word(RECOMMEND_TASKS), "TASK", argument=True, required=True, example="serve")]
    model: Annotated[ModelName | None, Field(ModelValue(), "MODEL", argument=True, example="llama-3.1-8b")]
    mode: Annotated[str | None, Field(Words("mode", _modes), "MODE", example="team")]
    people: Annotated[int | str | None, Field(Whole(1, 10**6), "N", example="50", aliases=("users",))]
    gpus: Annotated[CountSpan | None, Field(Span(parse_span), "N[..M]", "option.recommend-gpus", "1..8")]
    deadline: Annotated[Duration | None, Field(TIME, "TIME", example="24h")]
    api_price: Annotated[str | None, Field(Plain(), "MONEY[,MONEY[,MONEY]]", example="0.6usd,0.9usd")]
    max_power: Annotated[float | str | None, Field(Quantity("W"), "POWER", example="3kW")]
    pue: Annotated[float | str | None, Field(Share(), "N", example="1.3")]
    rank: Annotated[str | None, Field(Words("rank", _ranks), "ORDER")]
    buy: Annotated[bool | None, Field(Flag())]
    price: Annotated[str | Mapping[str, str] | None, Field(Pairs(), "GPU=MONEY", "option.card-price")]
    duration: Annotated[Duration | None, Field(TIME, "TIME", example="730h")]
    checkpoint_every: Annotated[Duration | None, Field(TIME, "TIME")]
    idle: Annotated[float | str | None, Field(Share(), "SHARE")]
    disk: Annotated[Size | None, Field(SIZE, "SIZE")]
    egress: Annotated[Size | None, Field(SIZE, "SIZE")]
    evidence: Annotated[bool | None, Field(Flag(), help="option.show-evidence", is_display=True)]
    long: Annotated[bool | None, Field(Flag(), is_display=True)]
    brief: Annotated[bool | None, Field(Flag(), is_display=True)]
    emit: Annotated[str | None, EMIT]
    why_not: Annotated[str | None, Field(Names("gpus", many=False), "GPU")]
    limit: Annotated[int | str | None, Field(Parsed(parse_candidates), "N")]
