"""The keywords of each verb: the options of its command, by the same words.

A number is in the base unit (bytes, seconds, requests a second); a text carries its unit as on the command line ("80GiB",
"50ms", "5/s"). Several names are a list or a text with commas. None asks nothing. What each means: `whichgpu COMMAND --help`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from os import PathLike
from typing import Any, TypedDict

from whichgpu.base.money import Money

Names = str | Sequence[str]
Model = str | Mapping[str, Any]  # a name, or the content of a config.json
Size = int | str  # bytes, or 80GiB
Duration = float | str  # seconds, or 50ms
Rate = float | str  # a second, or 120/min
Bandwidth = int | str  # bytes a second, or 2TB/s
Price = str | Money  # 2usd/h, 500usd
Span = int | str | tuple[int, int]  # 8, "1..8", (1, 8)
Day = str | date
Path = str | PathLike[str]
Histogram = str | Mapping[int, float]  # of tokens


class Data(TypedDict, total=False):
    """Which data are asked: options of all verbs."""

    as_of: Day | None
    catalog_as_known: Day | None
    catalog: Path | None


class Sorted(Data, total=False):
    """Of lists."""

    sort: str | None


class RegionsOptions(Sorted, total=False):
    """Of `regions`."""

    provider: str | None


class GpusOptions(Sorted, total=False):
    """Of `gpus`."""

    vendor: str | None
    arch: str | None
    min_memory: Size | None
    min_bandwidth: Bandwidth | None
    supports: Names | None
    compute_capability: str | None
    form_factor: str | None
    relative_to: str | None


class InstancesOptions(Sorted, total=False):
    """Of `instances`."""

    provider: str | None
    gpu: str | None
    gpus: Span | None
    min_memory: Size | None
    min_ram: Size | None


class Sellers(TypedDict, total=False):
    """Whose offers count."""

    provider: Names | None
    region: Names | None
    term: Names | None
    currency: str | None
    prices: Path | None
    overlay: Path | None


class Market(Sellers, total=False):
    """Which offers count."""

    gpu: Names | None
    instance: Names | None
    min_memory: Size | None
    near: str | None
    max_latency: Duration | None
    exchange_rate: str | Mapping[str, float] | None


class OffersOptions(Market, Sorted, total=False):
    """Of `offers`."""

    gpus: Span | None
    hours: float | None
    group_by: Names | None
    limit: int | str | None


class Serving(TypedDict, total=False):
    """How a model is served."""

    rate: Rate | None
    seq_in: int | None
    seq_out: int | None
    out: int | None
    ttft_max: Duration | None
    ttft: Duration | None
    tpot_max: Duration | None
    tpot: Duration | None
    percentile: float | None
    engine: str | None
    precision: str | None
    kv_precision: str | None
    year: int | None


class Layout(TypedDict, total=False):
    """How work is split over GPUs."""

    parallel: str | Mapping[str, Any] | None
    dp: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    cp: int | None
    sp: bool | None
    zero: int | None
    chunks: int | None
    threads: bool | None


class Work(Serving, Layout, Data, total=False):
    """What is run."""

    nodes: int | None
    batch: int | None
    micro_batch: int | None
    image: int | None
    memory_format: str | None
    optimizer: str | None
    optimizer_fused: bool | None
    include_optimizer_step: bool | None
    checkpointing: str | bool | None
    lora: bool | None
    lora_rank: int | None
    lora_targets: Names | None
    qlora: bool | None
    attention: str | None
    accumulation: int | None
    epochs: float | None
    steps: int | str | None
    tokens: int | str | None
    samples: int | str | None
    host_speed: float | None
    interconnect: str | None
    network: str | None
    network_gbps: float | None
    method: str | None


class CompareOptions(Work, total=False):
    """Of `compare`."""

    task: str | None
    model: Model | None
    gpus: int | None


class FitOptions(Work, total=False):
    """Of `fit`."""

    task: str | None
    gpu: Names | None
    gpus: int | None
    plot: Path | None


class Lengths(TypedDict, total=False):
    """How requests differ, and a trace of them."""

    trace: Path | None
    seed: int | None
    in_spread: float | None
    out_spread: float | None
    in_histogram: Histogram | None
    out_histogram: Histogram | None


class EstimateOptions(Work, Lengths, total=False):
    """Of `estimate`."""

    gpu: str | None
    gpus: int | None
    no_own_measurements: bool | None
    best_layout: bool | None
    plot: Path | None
    count: int | None
    burstiness: float | None
    max_batched_tokens: int | None
    max_sequences: int | None
    block_tokens: int | None
    memory_share: float | None
    chunked_prefill: bool | None
    mixed_steps: bool | None
    prefix_caching: bool | None


class Wishes(Market, total=False):
    """Limits and habits of whoever pays."""

    needs: Names | None
    budget: Price | None
    owned: Names | None
    startup: Duration | None
    interruptions: str | None
    power_price: Price | None
    max_age: Duration | None
    plot: Path | None
    no_own_measurements: bool | None


class RecommendOptions(Wishes, Work, total=False):
    """Of `recommend`."""

    gpus: Span | None
    deadline: Duration | None
    rank: str | None
    buy: bool | None
    price: str | Mapping[str, str] | None
    duration: Duration | None
    checkpoint_every: Duration | None
    idle: float | None
    disk: Size | None
    egress: Size | None
    why_not: str | None
    limit: int | None


class PlanOptions(Wishes, Serving, Lengths, Data, total=False):
    """Of `plan`."""

    hourly: str | Sequence[float] | None
    latency: Duration | None
    horizon: Duration | None
    headroom: float | None
    slices: int | None
    levels: int | None
    current: Names | None
    change_cost: Price | None
    spot_share: float | None
    tolerance: float | None
    time_limit: Duration | None
    only_owned: bool | None
    quota: str | Mapping[str, int] | None
    profiles: Path | None
    simulate: bool | None
    curve: bool | None
    sweep: str | None
    roles: bool | None
    policies: bool | None
    jobs: int | None
    workers: int | None
    ray: str | None
    export: Path | None


class BuyOptions(Sellers, Data, total=False):
    """Of `buy`."""

    gpus: int | None
    price: str | Mapping[str, str] | None
    host_price: Price | None
    power_price: Price | None
    pue: float | None
    years: float | None
    residual: float | None
    use: float | None
    upkeep: Price | None


class HistoryOptions(Data, total=False):
    """Of `catalog_history`."""

    provider: str | None
    region: str | None
    instance: str | None
    term: Names | None
    every: bool | None
    plot: Path | None


class DiffOptions(Data, total=False):
    """Of `catalog_diff`."""

    gpu: str | None
    provider: str | None
