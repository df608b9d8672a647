"""Estimates of one workload on other GPUs, each with its lowest price, for the report of an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from whichgpu.api.context import Context
from whichgpu.api.workloads.check import cheapest_machines
from whichgpu.api.workloads.compare import compare
from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.money import Money
from whichgpu.decide.market import MARKETPLACE

OTHER_GPUS = ("L4", "L40S", "A100-SXM-80GB", "H100 SXM", "H200 SXM", "B200")  # Those that most providers rent (assumed).
NOT_COMPARED = ("gpu", "nodes", "trace", "emit", "report", "plot", "evidence")


class Alternative(msgspec.Struct, frozen=True):
    """An estimate on one kind of GPU, and the cheapest machines with as many of it, if there are any."""

    gpu_name: str
    estimate: EstimateAnswer
    cost_per_hour: Money | None
    offer: str | None
    price_observed_at: str | None


def alternatives(answer: EstimateAnswer, request: Mapping[str, Any], context: Context) -> tuple[Alternative, ...]:
    """Return an estimate's own GPU first, then the others on which its workload can be estimated, slowest first."""
    fields = {name: value for name, value in request.items() if name not in NOT_COMPARED}
    names = [str(answer.request["gpu"]), *OTHER_GPUS]
    try:
        speeds = compare({**fields, "names": names}, context).speed or ()  # type: ignore[typeddict-item]
    except WhichGpuError:  # Fields that a comparison does not have, such as a trace.
        return ()
    markets = tuple(one.id for one in context.catalog.providers if one.kind == MARKETPLACE)
    rows = [_alternative(speed.name, speed.estimate, context, markets) for speed in speeds if speed.estimate is not None]
    own, others = rows[:1], rows[1:]
    return (*own, *sorted(others, key=lambda row: row.estimate.throughput.value if row.estimate.throughput else 0.0))


def _alternative(name: str, estimate: EstimateAnswer, context: Context, excluded: tuple[str, ...]) -> Alternative:
    machines = cheapest_machines(estimate.request["gpu"], int(estimate.request["gpus"]), "USD", context, excluded)
    return Alternative(name, estimate, *(machines or (None, None, None)))
