"""Speed side by side: one workload on each GPU or machine of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whichgpu.api.facts.catalog import Compared
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import EstimateAnswer, estimate_workload
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.messages import Message
from whichgpu.catalog.store import Catalog
from whichgpu.workload.spelling import ParsedWorkload


@dataclass(frozen=True, slots=True)
class ComparedSpeed:
    """One column: the estimate and how many times as fast it is as the first column, or why there is none."""

    name: str
    estimate: EstimateAnswer | None
    relative: float | None
    problem: Message | None = None


def compare_speed(
    columns: Sequence[Compared], request: ParsedWorkload, catalog: Catalog | None = None
) -> tuple[ComparedSpeed, ...]:
    """A request on each column; one that cannot run it does not cost the others. All failing alike is an error."""
    lookups = lookup_cache(catalog)
    found: list[ComparedSpeed] = []
    problems: list[WhichGpuError] = []
    first: float | None = None
    for column in columns:
        named = column.instance.instance if column.instance else column.gpu.id
        try:
            told = estimate_workload(replace(request, workload=replace(request.workload, gpu=named)), lookups)
        except UsageError as problem:
            problems.append(problem)
            found.append(ComparedSpeed(column.name, None, None, problem.message))
            continue
        rate = told.throughput.value if told.throughput else None
        first = first or rate
        found.append(ComparedSpeed(column.name, told, rate / first if rate and first else None))
    if problems and len(problems) == len(columns):
        raise problems[0]
    return tuple(found)
