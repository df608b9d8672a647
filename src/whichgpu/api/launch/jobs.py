"""Launch files of a fleet's training and batch jobs, each in the layout and on the offer that the plan chose for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.launch.from_answers import estimate_plan
from whichgpu.api.launch.pictures import diffusion_shape, picture_plan
from whichgpu.api.launch.training import training_plan
from whichgpu.api.workloads.estimate import EstimateAnswer, estimate_workload
from whichgpu.base.errors import UsageError
from whichgpu.base.units import significant
from whichgpu.decide.launch.models import file_name
from whichgpu.decide.launch.picture_targets import PICTURE_TARGETS, SCRIPT_TARGET, picture_files
from whichgpu.decide.launch.targets import launch_files
from whichgpu.decide.launch.text import comments
from whichgpu.decide.launch.train.targets import TRAIN_TARGETS, train_files
from whichgpu.decide.plan.plan_answer import JobRow, PlanAnswer
from whichgpu.workload.spelling import from_values
from whichgpu.workload.tasks import TASK_TRAITS

Files = dict[str, str]


def fleet_job_files(target: str, answer: PlanAnswer, context: Context) -> Files:
    """Return the files of every job of a plan by name; a job that no target runs as planned has a file that says so."""
    files = Files()
    for row in answer.jobs:
        try:
            own = _job_files(target, row, context)
        except UsageError as problem:
            own = {"note.txt": comments([f"{row.name}: no launch file. {problem.message}; {problem.hint or ''}"])}
        group = file_name(row.name)
        files |= {name if name.startswith(group) else f"{group}-{name}": text for name, text in own.items()}
    return files


def _job_files(target: str, row: JobRow, context: Context) -> Files:
    lookups = context.lookups_for(True)
    answer = estimate_workload(from_values(row.request, context.spell), lookups)
    group, where = file_name(row.name), _place(row)
    price = f"{row.name}: {significant(row.hours)} h, {significant(float(row.cost.amount))} {row.cost.currency} for the run."
    if TASK_TRAITS[answer.request["task"]].training:
        run = training_plan(answer, context)
        if run is None:
            return {}
        options = replace(run.options, group=group, is_spot=row.term == "spot", **where)
        return _trained(target, replace(run, options=options, header=(*run.header, price)))
    if shape := diffusion_shape(answer, context):
        pictures = picture_plan(answer, shape, context)
        if pictures is None:
            return {}
        place = replace(pictures.place, is_spot=row.term == "spot", **where)
        pictures = replace(pictures, name=group, place=place, header=(*pictures.header, price))
        return picture_files(target if target in PICTURE_TARGETS else SCRIPT_TARGET, pictures)
    return _served(target, answer, row, price, context)


def _trained(target: str, run: Any) -> Files:
    """Return the files of a training run; beside a serving engine these are torchrun's, or Megatron-LM's of a split model."""
    if target in TRAIN_TARGETS:
        return train_files(target, run)
    return train_files("megatron" if run.options.splits_model else "torchrun", run)


def _served(target: str, answer: EstimateAnswer, row: JobRow, price: str, context: Context) -> Files:
    day = (context.as_of or context.today).isoformat()
    plan = estimate_plan(answer, context.lookups_for(True), row.request, day)
    groups = tuple(replace(one, group=file_name(row.name), spot=row.term == "spot", **_place(row)) for one in plan.groups)
    return launch_files(target, replace(plan, groups=groups, header=(*plan.header, price)))


def _place(row: JobRow) -> Mapping[str, str]:
    """Return the offer of a job's machines; owned ones have none."""
    names = ("provider", "instance", "region")
    return {name: "" if row.provider == "owned" else getattr(row, name) for name in names}
