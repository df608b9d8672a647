"""Requests about config files that people already have."""

from typing import Annotated

from whichgpu.api.request.catalog import DataRequest
from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import File, Names, Plain, Quantity
from whichgpu.api.request.types import FilePath, ModelName, NameList, Price
from whichgpu.api.request.workload import work_field
from whichgpu.workload.kinds import ModelValue


class ExplainRequest(DataRequest, total=False):
    """Request for what the workload of a config file needs, and on which GPUs it runs."""

    file: Annotated[FilePath, Field(File(), "FILE", argument=True, is_local=True)]
    text: Annotated[str | None, Field(Plain(), "TEXT", "option.explain-text")]
    gpu: Annotated[NameList | None, Field(Names("gpus"), "NAME", "option.fit-gpu", "RTX 4090")]
    model: Annotated[ModelName | None, Field(ModelValue(), "MODEL", "option.explain-model")]
    gpus: Annotated[int | str | None, work_field]
    seq_in: Annotated[int | str | None, work_field]
    seq_out: Annotated[int | str | None, work_field]
    batch: Annotated[int | str | None, work_field]


class CheckRequest(ExplainRequest, total=False):
    """Request to check that the workload of a config file still fits its GPUs and a budget."""

    budget: Annotated[Price | None, Field(Quantity(""), "MONEY", "option.check-budget", example="2usd/h")]
