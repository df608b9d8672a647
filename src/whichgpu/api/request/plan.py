"""The request of `plan`: models with their traffic, or a plan file, and settings of the fleet.

A setting declared here is a flag, a key of plan files and a keyword in Python; its value and default are a field of
`decide.plan.question.PlanQuestion`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from whichgpu.api.request.catalog import DataRequest
from whichgpu.api.request.field import Alias, Field
from whichgpu.api.request.kinds import File, Names, Numbers, Pairs, Plain
from whichgpu.api.request.load import EMIT, LengthFields
from whichgpu.api.request.plan_settings import HORIZON, SECONDS, number, whole
from whichgpu.api.request.recommend import MONEY, ConstraintFields
from whichgpu.api.request.types import Duration, FilePath, ModelName, NameList, Price
from whichgpu.api.request.workload import ServingFields
from whichgpu.base.kinds import Flag


class PlanRequest(ConstraintFields, ServingFields, LengthFields, DataRequest, total=False):
    """Request for the cheapest fleet that serves given traffic within latency objectives."""

    what: Annotated[
        ModelName | Sequence[ModelName],
        Field(Names("models"), "[FILE.toml | MODEL…]", argument=True, example="llama-3.1-8b"),
    ]
    hourly: Annotated[str | Sequence[float] | None, Field(Numbers(), "N,N,…", "option.plan-hourly")]
    latency: Annotated[Duration | None, Field(SECONDS, "TIME", "option.plan-latency")]
    horizon: Annotated[Duration | None, Field(HORIZON, "TIME", "option.plan-horizon")]
    headroom: Annotated[float | str | None, Field(number(0.9), "SHARE", "option.plan-headroom")]
    slices: Annotated[int | str | None, Field(whole(1, 1000), "N", "option.plan-slices")]
    levels: Annotated[int | str | None, Field(whole(1, 24), "N", "option.plan-levels")]
    current: Annotated[NameList | None, Field(Numbers(), "GPUS", "option.plan-current")]
    previous: Annotated[FilePath | None, Field(File(), "FILE", "option.plan-previous", is_local=True)]
    change_cost: Annotated[Price | None, Field(MONEY, "MONEY", "option.plan-change-cost")]
    plot: Annotated[FilePath | None, Field(File(), "FILE", "option.plan-plot", is_local=True)]
    spot_share: Annotated[float | str | None, Field(number(1.0), "SHARE", "option.plan-spot-share")]
    spare: Annotated[bool | None, Field(Flag(), help="option.plan-spare")]
    tolerance: Annotated[float | str | None, Field(number(1.0), "SHARE", "option.plan-tolerance")]
    time_limit: Annotated[Duration | None, Field(SECONDS, "TIME", "option.plan-time-limit")]
    only_owned: Annotated[bool | None, Field(Flag(), help="option.plan-only-owned")]
    quota: Annotated[str | Mapping[str, int] | None, Field(Pairs(), "GPU=N,…", "option.plan-quota")]
    profiles: Annotated[FilePath | None, Field(File(), "FILE", "option.plan-profiles", is_local=True)]
    simulate: Annotated[bool | None, Field(Flag(), help="option.plan-simulate", has_negative=True)]
    curve: Annotated[bool | None, Field(Flag(), help="option.plan-curve", has_negative=True)]
    sweep: Annotated[str | None, Field(Plain(), "NAME=VALUES", "option.plan-sweep")]
    roles: Annotated[bool | None, Field(Flag(), help="option.plan-roles")]
    policies: Annotated[bool | None, Field(Flag(), help="option.plan-policies")]
    jobs: Annotated[int | str | None, Field(whole(1, 256), "N", "option.plan-jobs", is_local=True)]
    workers: Annotated[int | str | None, Alias("jobs")]
    ray: Annotated[str | None, Field(Plain(), "ADDRESS", "option.plan-ray", is_local=True)]
    emit: Annotated[str | None, EMIT]
    hints: Annotated[str | None, Field(EMIT.kind, "TARGET", "option.plan-hints", is_display=True)]
    brief: Annotated[bool | None, Field(Flag(), help="option.brief", is_display=True)]
    export: Annotated[FilePath | None, Field(File(), "DIR", "option.plan-export", is_local=True)]
