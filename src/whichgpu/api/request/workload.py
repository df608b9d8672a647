"""The fields of a workload as requests spell them; how each is read is told by `workload.kinds.KINDS`."""

from collections.abc import Mapping
from keyword import iskeyword
from typing import Annotated, Any, TypedDict

from whichgpu.api.request.catalog import DataRequest
from whichgpu.api.request.field import Alias, Field
from whichgpu.api.request.types import Count, Duration, NameList, Rate
from whichgpu.base.kinds import Flag
from whichgpu.workload.kinds import KINDS, SWITCHES, Layout
from whichgpu.workload.spelling import ALIASES

DEFAULT_LORA_RANK = 16  # of --lora alone


def work_field(name: str, metavar: str = "N", example: str = "") -> Field:
    """A field of a workload, with its short names and the help that goes by its name."""
    short = tuple(alias for alias, field in ALIASES.items() if field == name and iskeyword(alias))
    kind, help = KINDS[name], f"option.workload-{name.replace('_', '-')}"
    if isinstance(kind, Flag):
        return Field(kind, "", help, has_negative=True)
    return Field(kind, metavar, help, example, short)


def _degree(name: str) -> Field:
    kind = Flag() if name in SWITCHES else Layout.ZERO if name == "zero" else Layout.DEGREES
    return Field(kind, "" if name in SWITCHES else "N", f"option.workload-{name}")


class ServingFields(TypedDict, total=False):
    """How a model is served."""

    rate: Annotated[Rate | None, work_field("rate", "N/s", "5/s")]
    seq_in: Annotated[int | str | None, work_field("seq_in", example="2048")]
    seq_out: Annotated[int | str | None, work_field("seq_out", example="256")]
    out: Annotated[int | str | None, Alias("seq_out")]
    ttft_max: Annotated[Duration | None, work_field("ttft_max", "TIME", "500ms")]
    ttft: Annotated[Duration | None, Alias("ttft_max")]
    tpot_max: Annotated[Duration | None, work_field("tpot_max", "TIME", "50ms")]
    tpot: Annotated[Duration | None, Alias("tpot_max")]
    percentile: Annotated[float | str | None, work_field("percentile")]
    engine: Annotated[str | None, work_field("engine", "NAME")]
    precision: Annotated[str | None, work_field("precision", "NAME")]
    kv_precision: Annotated[str | None, work_field("kv_precision", "NAME")]
    year: Annotated[int | str | None, work_field("year", "YEAR")]


class LayoutFields(TypedDict, total=False):
    """How work is split over GPUs."""

    parallel: Annotated[str | Mapping[str, Any] | None, work_field("parallel", "tp=N,…")]
    dp: Annotated[int | str | None, _degree("dp")]
    tp: Annotated[int | str | None, _degree("tp")]
    pp: Annotated[int | str | None, _degree("pp")]
    ep: Annotated[int | str | None, _degree("ep")]
    cp: Annotated[int | str | None, _degree("cp")]
    sp: Annotated[bool | None, _degree("sp")]
    zero: Annotated[int | str | None, _degree("zero")]
    chunks: Annotated[int | str | None, _degree("chunks")]
    threads: Annotated[bool | None, _degree("threads")]


class WorkloadFields(ServingFields, LayoutFields, DataRequest, total=False):
    """What is run."""

    nodes: Annotated[int | str | None, work_field("nodes")]
    batch: Annotated[int | str | None, work_field("batch", example="256")]
    micro_batch: Annotated[int | str | None, work_field("micro_batch")]
    image: Annotated[int | str | None, work_field("image", example="224")]
    memory_format: Annotated[str | None, work_field("memory_format", "NAME")]
    optimizer: Annotated[str | None, work_field("optimizer", "NAME")]
    optimizer_fused: Annotated[bool | None, work_field("optimizer_fused")]
    include_optimizer_step: Annotated[bool | None, work_field("include_optimizer_step")]
    checkpointing: Annotated[str | bool | None, work_field("checkpointing", "NAME")]
    lora: Annotated[bool | None, Field(Flag(), help="option.workload-lora")]
    lora_rank: Annotated[int | str | None, work_field("lora_rank", example="16")]
    lora_targets: Annotated[NameList | None, work_field("lora_targets", "NAMES")]
    qlora: Annotated[bool | None, work_field("qlora")]
    attention: Annotated[str | None, work_field("attention", "NAME")]
    accumulation: Annotated[int | str | None, work_field("accumulation")]
    epochs: Annotated[float | str | None, work_field("epochs", example="3")]
    steps: Annotated[Count | None, work_field("steps")]
    tokens: Annotated[Count | None, work_field("tokens", example="300B")]
    samples: Annotated[Count | None, work_field("samples", example="1281167")]
    host_speed: Annotated[float | str | None, work_field("host_speed")]
    interconnect: Annotated[str | None, work_field("interconnect", "NAME")]
    network: Annotated[str | None, work_field("network", "NAME")]
    network_gbps: Annotated[float | str | None, work_field("network_gbps")]
    method: Annotated[str | None, work_field("method", "NAME")]
