"""The verb `plan`: the cheapest fleet for traffic and jobs, simulated and explained, or the change that would give one."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from time import monotonic

from whichgpu.api.lookup_cache import LookupCache
from whichgpu.api.plan.check import check_question
from whichgpu.api.plan.command import reproduce
from whichgpu.api.plan.planner import Planner, silent
from whichgpu.api.plan.sweep import cost_curve
from whichgpu.api.recommend.verification import running_sequences, verify_command
from whichgpu.base.errors import NoAnswer, WhichGpuError
from whichgpu.base.messages import Message
from whichgpu.catalog.store import Catalog
from whichgpu.decide.plan.build_answer import build_answer
from whichgpu.decide.plan.plan_answer import GroupRow, PlanAnswer
from whichgpu.decide.plan.profiles_plan import plan_profiles
from whichgpu.decide.plan.question import PlanQuestion
from whichgpu.decide.plan.refusal import Refusal, missed
from whichgpu.decide.plan.relaxation import ALL_SECONDS, RelaxationTrials, relaxed_refusal
from whichgpu.decide.plan.search import SolvedPlan, StageProgress
from whichgpu.workload.workload import Parallel


def plan(
    question: PlanQuestion,
    as_of: date | None = None,
    catalog: Catalog | None = None,
    overlay: Path | None = None,
    own_measurements: bool = True,
    progress: StageProgress | None = None,
) -> PlanAnswer:
    """The cheapest fleet; `progress` gets the stage and the share of it done."""
    # A model's code runs only if the user named the model, not for a file.
    lookups = LookupCache(catalog, own=own_measurements, trusting=question.file is None)
    check_question(question, lookups)
    if question.profiles is not None:
        day = as_of or date.today()
        return plan_profiles(question, day, lambda other: reproduce(other, day))
    planner = Planner(lookups, as_of or lookups.catalog.as_known or date.today(), overlay)
    progress = progress or silent
    solved = planner.search(question, progress)
    if isinstance(solved, Refusal):
        raise _relaxed(question, solved, planner)
    answer = build_answer(solved, cost_curve(solved, planner, progress), progress)
    verify, note = _verification(solved, answer.groups)
    answer = replace(answer, verify=verify, verify_note=note, reproduce=_command(question, planner))
    if solved.trial.holds:
        return answer
    changes = missed(solved.trial.simulated, solved.inputs.models, solved.missed, question.headroom is not None)
    return replace(answer, rejected=dict(solved.missed), relaxation=_relaxed(question, changes, planner).relaxation)


def _command(question: PlanQuestion, planner: Planner) -> str:
    return reproduce(question, planner.day, planner.overlay, planner.lookups.own)


def _relaxed(question: PlanQuestion, refusal: Refusal, planner: Planner) -> NoAnswer:
    """The refusal with a changed question that has a plan, which takes a few more plans."""

    def attempt(other: PlanQuestion) -> Refusal | bool:
        try:
            solved = planner.search(other)
        except WhichGpuError:
            return False
        return solved if isinstance(solved, Refusal) else solved.trial.holds

    catalog, until = planner.lookups.catalog, monotonic() + ALL_SECONDS
    models = planner.models(question)
    return relaxed_refusal(
        refusal, RelaxationTrials(question, models, catalog, attempt, lambda other: _command(other, planner), until)
    )


def _verification(plan: SolvedPlan, groups: tuple[GroupRow, ...]) -> tuple[str, Message | None]:
    """The command that measures a step of one replica of the largest group, and a note on what it does not measure."""
    if not groups:
        return "", None
    row = groups[0]
    model = next(one for one in plan.inputs.models if one.name == row.model)
    simulated = next((one for one in plan.trial.simulated if one.model == row.model), None)
    tokens, rate = round(model.traffic.output), row.rate / max(1, row.copies)
    batch = row.batch
    if simulated is not None:
        batch = running_sequences(rate, simulated.ttft, simulated.tpot, tokens, max(1, row.batch))
    workload = replace(
        model.request.bare,
        model=model.requested_name,
        gpu=row.gpu,
        precision=row.precision,
        parallel=Parallel(tp=row.gpus_per_copy),
        seq_in=max(1, round(model.traffic.prompt)),
        seq_out=max(1, tokens),
    )
    return verify_command(workload, model.request.shape, batch)
