"""Workload fields of requests. `Workload` declares how each is read; the types here are for type checkers and editors."""

from collections.abc import Mapping
from keyword import iskeyword
from typing import Annotated, Any, TypedDict

from whichgpu.api.request.catalog import DataRequest
from whichgpu.api.request.field import Alias, Field
from whichgpu.api.request.types import Count, Duration, NameList, Rate
from whichgpu.base.kinds import Flag
from whichgpu.workload.kinds import Layout
from whichgpu.workload.spelling import ALIASES
from whichgpu.workload.workload import DECLARED


def work_field(name: str) -> Field:
    """Return the request field of a workload's field, as `Workload` declares it, with the help message of that name."""
    kind, metavar, example = DECLARED[name]
    help = f"option.workload-{name.replace('_', '-')}"
    if isinstance(kind, Flag):
        return Field(kind, "", help, has_negative=True)
    short = tuple(alias for alias, field in ALIASES.items() if field == name and iskeyword(alias))
    return Field(kind, metavar, help, example, short)


def degree(name: str) -> Field:
    """Return the request field of one parallel degree or switch of the layout."""
    kind = Layout().kind_of(name)
    return Field(kind, "" if isinstance(kind, Flag) else "N", f"option.workload-{name}")


class ServingFields(TypedDict, total=False):
    """Request fields for serving a model: rate, lengths, latency objectives, engine, precisions, speculative decoding."""

    rate: Annotated[Rate | None, work_field]
    seq_in: Annotated[int | str | None, work_field]
    seq_out: Annotated[int | str | None, work_field]
    out: Annotated[int | str | None, Alias("seq_out")]
    ttft_max: Annotated[Duration | None, work_field]
    ttft: Annotated[Duration | None, Alias("ttft_max")]
    tpot_max: Annotated[Duration | None, work_field]
    tpot: Annotated[Duration | None, Alias("tpot_max")]
    percentile: Annotated[float | str | None, work_field]
    engine: Annotated[str | None, work_field]
    precision: Annotated[str | None, work_field]
    kv_precision: Annotated[str | None, work_field]
    speculative: Annotated[str | Mapping[str, Any] | None, work_field]
    year: Annotated[int | str | None, work_field]


class LayoutFields(TypedDict, total=False):
    """Request fields for the layout over GPUs: data, tensor, pipeline, expert and context parallel degrees, ZeRO and the like."""

    parallel: Annotated[str | Mapping[str, Any] | None, work_field]
    dp: Annotated[int | str | None, degree]
    tp: Annotated[int | str | None, degree]
    pp: Annotated[int | str | None, degree]
    ep: Annotated[int | str | None, degree]
    cp: Annotated[int | str | None, degree]
    sp: Annotated[bool | None, degree]
    zero: Annotated[int | str | None, degree]
    chunks: Annotated[int | str | None, degree]
    threads: Annotated[bool | None, degree]


class WorkloadFields(ServingFields, LayoutFields, DataRequest, total=False):
    """Fields of a workload: its task, its model, and the choices that affect memory and speed."""

    nodes: Annotated[int | str | None, work_field]
    batch: Annotated[int | str | None, work_field]
    micro_batch: Annotated[int | str | None, work_field]
    image: Annotated[int | str | None, work_field]
    denoising_steps: Annotated[int | str | None, work_field]
    guidance: Annotated[bool | None, work_field]
    frames: Annotated[int | str | None, work_field]
    memory_format: Annotated[str | None, work_field]
    optimizer: Annotated[str | None, work_field]
    optimizer_fused: Annotated[bool | None, work_field]
    include_optimizer_step: Annotated[bool | None, work_field]
    checkpointing: Annotated[str | bool | None, work_field]
    lora: Annotated[bool | None, Field(Flag(), help="option.workload-lora")]
    lora_rank: Annotated[int | str | None, work_field]
    lora_targets: Annotated[NameList | None, work_field]
    lora_dropout: Annotated[float | str | None, work_field]
    qlora: Annotated[bool | None, work_field]
    attention: Annotated[str | None, work_field]
    prefix_hit: Annotated[float | str | None, work_field]
    offload: Annotated[str | Mapping[str, Any] | None, work_field]
    accumulation: Annotated[int | str | None, work_field]
    epochs: Annotated[float | str | None, work_field]
    steps: Annotated[Count | None, work_field]
    tokens: Annotated[Count | None, work_field]
    samples: Annotated[Count | None, work_field]
    host_speed: Annotated[float | str | None, work_field]
    interconnect: Annotated[str | None, work_field]
    network: Annotated[str | None, work_field]
    network_gbps: Annotated[float | str | None, work_field]
    method: Annotated[str | None, work_field]
