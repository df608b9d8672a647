"""Requests about facts: GPUs, instances, host processors, regions, models, engines; and about the catalog itself."""

from functools import partial
from typing import Annotated, TypedDict

from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import File, Names, Parsed, Plain, Span, Words
from whichgpu.api.request.types import Bandwidth, CountSpan, Day, FilePath, NameList, Size
from whichgpu.base.kinds import Flag
from whichgpu.base.units import parse_bandwidth, parse_bytes
from whichgpu.catalog.offer import TERMS
from whichgpu.catalog.select import parse_capability, parse_span


def _choices(column: str) -> tuple[str, ...]:
    from whichgpu.catalog.schema import schema

    return schema()["gpus"][column].choices


def _architectures() -> list[str]:
    from whichgpu.catalog.store import Catalog

    return sorted({gpu.architecture for gpu in Catalog().gpus})


def _features() -> list[str]:
    from whichgpu.catalog.store import Catalog

    return sorted({feature for gpu in Catalog().gpus for feature in gpu.supports})


SPAN, SIZE = Span(parse_span), Parsed(parse_bytes, "B")
TERM_LIST = Words("term", TERMS, many=True)


class DataRequest(TypedDict, total=False):
    """Request fields, common to all commands, that choose the catalog and the day."""

    as_of: Annotated[Day | None, Field(Plain(), "DATE", example="2024-06-01")]
    catalog_as_known: Annotated[Day | None, Field(Plain(), "DATE")]
    catalog: Annotated[FilePath | None, Field(Plain(), "DIR", is_local=True)]


class Sorted(DataRequest, total=False):
    """Request fields for the order of the rows in a list."""

    sort: Annotated[str | None, Field(Plain(), "FIELD")]


class CpusRequest(Sorted, total=False):
    """Request for a list of host processors."""

    names: Annotated[NameList, Field(Names("cpus"), "[NAME…]", argument=True)]


class ModelsRequest(Sorted, total=False):
    """Request for a list of built-in models."""

    names: Annotated[NameList, Field(Names("models"), "[NAME…]", argument=True, example="llama-3.1-8b")]
    fits: Annotated[str | None, Field(Names("gpus", many=False), "GPU", "option.models-fits", example="RTX 4090")]
    local: Annotated[bool | None, Field(Flag(), "", "option.models-local", is_local=True)]


class EnginesRequest(Sorted, total=False):
    """Request for a list of engines (inference and training software)."""

    names: Annotated[NameList, Field(Names("engines"), "[NAME…]", argument=True, example="vllm")]


class RegionsRequest(Sorted, total=False):
    """Request for a list of cloud regions."""

    names: Annotated[NameList, Field(Names("regions"), "[NAME…]", argument=True)]
    provider: Annotated[str | None, Field(Names("providers", many=False), "NAME", example="gcp")]


class GpusRequest(Sorted, total=False):
    """Request for a list of GPUs: names, and filters on their properties."""

    names: Annotated[NameList, Field(Names("gpus"), "[NAME…]", argument=True, example="H100")]
    vendor: Annotated[str | None, Field(Words("vendor", partial(_choices, "vendor")), "NAME")]
    arch: Annotated[str | None, Field(Words("architecture", _architectures), "NAME")]
    min_memory: Annotated[Size | None, Field(SIZE, "SIZE", example="80GB")]
    min_bandwidth: Annotated[Bandwidth | None, Field(Parsed(parse_bandwidth, "B/s"), "RATE", example="1TB/s")]
    supports: Annotated[NameList | None, Field(Words("feature", _features, many=True), "FEATURES", example="bf16,nvlink")]
    compute_capability: Annotated[str | None, Field(Parsed(parse_capability), "N.N[+]", example="8.0+")]
    form_factor: Annotated[str | None, Field(Words("form-factor", partial(_choices, "form_factor")), "NAME")]
    relative_to: Annotated[str | None, Field(Names("gpus", many=False), "NAME")]


class InstancesRequest(Sorted, total=False):
    """Request for a list of cloud machines: names, and filters on their properties."""

    names: Annotated[NameList, Field(Names("instances"), "[NAME…]", argument=True)]
    provider: Annotated[str | None, Field(Names("providers", many=False), "NAME", example="aws")]
    gpu: Annotated[str | None, Field(Names("gpus", many=False), "NAME", example="A100")]
    gpus: Annotated[CountSpan | None, Field(SPAN, "N[..M]")]
    min_memory: Annotated[Size | None, Field(SIZE, "SIZE", "option.min-memory-all")]
    min_ram: Annotated[Size | None, Field(SIZE, "SIZE")]


class HistoryRequest(DataRequest, total=False):
    """Request for the prices of a GPU over time."""

    gpu: Annotated[str, Field(Names("gpus", many=False), "NAME", required=True, example="A100 SXM 80GB")]
    provider: Annotated[str | None, Field(Names("providers", many=False), "NAME")]
    region: Annotated[str | None, Field(Plain(), "NAME", "option.region-exact")]
    instance: Annotated[str | None, Field(Plain(), "NAME", "option.instance-exact")]
    term: Annotated[NameList | None, Field(TERM_LIST, "TERMS")]
    every: Annotated[bool | None, Field(Flag())]
    plot: Annotated[FilePath | None, Field(File(), "FILE", "option.history-plot", is_local=True)]


class DiffRequest(DataRequest, total=False):
    """Request for the price changes between two days or two snapshots of the user's own price store."""

    a: Annotated[Day, Field(Plain(), "A", argument=True, required=True)]
    b: Annotated[Day, Field(Plain(), "B", argument=True, required=True)]
    gpu: Annotated[str | None, Field(Names("gpus", many=False), "NAME")]
    provider: Annotated[str | None, Field(Names("providers", many=False), "NAME")]


class StatusRequest(DataRequest, total=False):
    """Request for the rows, age and digest of each table of the catalog."""

    live: Annotated[bool | None, Field(Flag(), is_display=True)]
