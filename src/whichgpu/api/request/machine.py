"""Requests about the machine this runs on."""

from collections.abc import Sequence
from typing import Annotated

from whichgpu.api.request.catalog import DataRequest
from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import File, Numbers, Parsed, Plain
from whichgpu.api.request.limits import parse_minutes
from whichgpu.api.request.load import OWN_MEASUREMENTS
from whichgpu.api.request.types import Duration, FilePath
from whichgpu.base.kinds import Flag
from whichgpu.base.units import parse_seconds


class DoctorRequest(DataRequest, total=False):
    """Request for the GPUs, driver and software of this machine, and problems with them."""

    running: Annotated[bool | None, Field(Flag())]
    lasting: Annotated[Duration | None, Field(Parsed(parse_seconds, "s"), "DURATION", "option.doctor-for", flag_text="--for")]


class MeasureRequest(DataRequest, total=False):
    """Request to benchmark this machine's GPU or a running server, check an estimate on it, or export or import measurements."""

    minutes: Annotated[float | str | None, Field(Parsed(parse_minutes), "N", "option.measure-minutes")]
    verify: Annotated[str | None, Field(Plain(), "COMMAND", "option.measure-verify")]
    endpoint: Annotated[str | None, Field(Plain(), "URL", "option.measure-endpoint", is_local=True)]
    concurrency: Annotated[Sequence[int] | str | None, Field(Numbers(), "N,N", "option.measure-concurrency")]
    yes: Annotated[bool | None, Field(Flag(), help="option.measure-yes")]
    share: Annotated[FilePath | None, Field(File(), "FILE", "option.measure-share", is_local=True)]
    imported: Annotated[FilePath | None, Field(File(), "FILE", "option.measure-import", flag_text="--import", is_local=True)]
    records: Annotated[bool | None, Field(Flag(), help="option.measure-records")]
    forget: Annotated[str | None, Field(Plain(), "ID", "option.measure-forget")]
    no_keep: Annotated[bool | None, Field(Flag(), help="option.measure-no-keep")]
    no_own_measurements: Annotated[bool | None, OWN_MEASUREMENTS]
