"""Attach to an answer the files that launch it with the target of `--emit`."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.launch.from_answers import candidate_plan, estimate_plan, fit_plan, fleet_plan
from whichgpu.api.launch.jobs import fleet_job_files
from whichgpu.api.launch.pictures import diffusion_shape, picture_plan
from whichgpu.api.launch.training import training_plan
from whichgpu.api.request.load import EstimateRequest
from whichgpu.api.request.read import read
from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.api.workloads.fit import FitAnswer
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.launch.picture_targets import PICTURE_TARGETS, picture_files
from whichgpu.decide.launch.targets import LaunchPlan, launch_files, target_names, targets
from whichgpu.decide.launch.train.targets import TRAIN_TARGETS, train_files
from whichgpu.decide.plan.plan_answer import PlanAnswer
from whichgpu.workload.tasks import TASK_TRAITS

Answer = TypeVar("Answer", FitAnswer, EstimateAnswer, RecommendAnswer, PlanAnswer)


def with_launch_files(answer: Answer, request: Mapping[str, Any], context: Context) -> Answer:
    """Return an answer with the files of the request's target (`emit`); unchanged if nothing fits."""
    target = read(EstimateRequest, request, context.spell, ("emit",))["emit"]
    if isinstance(answer, PlanAnswer):
        _check(target, targets(), "serve", "a fleet", "hint.emit-task")
        replicas = launch_files(target, fleet_plan(answer)) if answer.groups else {}
        return replace(answer, emitted=replicas | fleet_job_files(target, answer, context))
    if not isinstance(answer, RecommendAnswer | FitAnswer) and answer.request["gpu"] is None:
        raise UsageError("emit-gpu", msg("error.emit-gpu", target=target), msg("hint.emit-gpu"))
    if answer.request["model"] is None:  # A recommendation for a mix of models.
        raise UsageError("emit-no-model", msg("error.emit-no-model", target=target), msg("hint.model"))
    task, model = answer.request["task"], str(answer.request["model"])[:80]
    if TASK_TRAITS[task].training:
        _check(target, TRAIN_TARGETS, task, model, "hint.emit-train")
        run = training_plan(answer, context)
        return replace(answer, emitted=train_files(target, run)) if run else answer
    if task != "forward" and (shape := diffusion_shape(answer, context)):
        _check(target, PICTURE_TARGETS, task, model, "hint.emit-pictures")
        pictures = picture_plan(answer, shape, context)
        return replace(answer, emitted=picture_files(target, pictures)) if pictures else answer
    _check(target, targets() if answer.request["seq_in"] is not None else (), task, model, "hint.emit-task")
    plan = _launch_plan(answer, request, context)
    return replace(answer, emitted=launch_files(target, plan)) if plan else answer


def check_target(request: Mapping[str, Any], task: str, context: Context) -> None:
    """Raise an error, before any work is done, if the target (`emit`) is unknown or of another kind of task."""
    target, model = read(EstimateRequest, request, context.spell, ("emit",))["emit"], str(request.get("model", ""))[:80]
    if any(name == task and traits.training for name, traits in TASK_TRAITS.items()):
        _check(target, TRAIN_TARGETS, task, model, "hint.emit-train")
    else:
        _check(target, {*targets(), *PICTURE_TARGETS}, task, model or "a fleet", "hint.emit-task")


def launch_files_by_target(answer: Answer, request: Mapping[str, Any], context: Context) -> dict[str, Mapping[str, str]]:
    """Return the files of every target that launches what an answer advises, by target; empty if nothing fits."""
    files = dict[str, Mapping[str, str]]()
    for target in target_names():
        try:
            files[target] = with_launch_files(answer, {**request, "emit": target}, context).emitted
        except UsageError:  # A target of another task, or one that does not know the offer's machine.
            continue
    return {target: emitted for target, emitted in files.items() if emitted}


def _launch_plan(
    answer: FitAnswer | EstimateAnswer | RecommendAnswer, request: Mapping[str, Any], context: Context
) -> LaunchPlan | None:
    day, lookups = (context.as_of or context.today).isoformat(), context.lookups_for(True)
    if isinstance(answer, RecommendAnswer):
        return candidate_plan(answer, lookups)
    if isinstance(answer, FitAnswer):
        return fit_plan(answer, lookups, day)
    return estimate_plan(answer, lookups, request, day) if answer.fits != "no" else None


def _check(target: str, supported: Container[str], task: str, model: str, hint: str) -> None:
    """Raise an error if the target does not run such a task."""
    if target not in supported:
        raise UsageError("emit-task", msg("error.emit-task", target=target, task=task, model=model), msg(hint))
