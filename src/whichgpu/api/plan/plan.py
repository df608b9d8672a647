"""The verb `plan`: the cheapest fleet for traffic and jobs, simulated and explained, or the change that would give one."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.plan.check import check_question
from whichgpu.api.plan.command import relaxed_command, reproduce
from whichgpu.api.plan.sweep import cost_curve
from whichgpu.api.recommend.verification import verify_command
from whichgpu.base.messages import Message
from whichgpu.catalog.store import Catalog
from whichgpu.decide.plan.build_answer import build_answer
from whichgpu.decide.plan.inputs import PlanSources, StageProgress, silent
from whichgpu.decide.plan.plan_answer import GroupRow, PlanAnswer
from whichgpu.decide.plan.profiles_plan import plan_profiles
from whichgpu.decide.plan.question import PlanQuestion
from whichgpu.decide.plan.refusal import Refusal, missed
from whichgpu.decide.plan.relaxation import relaxed_refusal
from whichgpu.decide.plan.search import SolvedPlan, search_plan
from whichgpu.decide.work import running_sequences
from whichgpu.workload.workload import Parallel


def plan(
    question: PlanQuestion,
    as_of: date | None = None,
    catalog: Catalog | None = None,
    overlay: Path | None = None,
    own_measurements: bool = True,
    progress: StageProgress | None = None,
) -> PlanAnswer:
    """Return the cheapest fleet for traffic and jobs; `overlay` is the user's price file, `progress` gets stage and part done."""
    # Code of a model's repository runs only if the user named the model, not if a file did.
    lookups = lookup_cache(catalog, own=own_measurements, trusting=question.file is None)
    check_question(question, lookups)
    if question.profiles is not None:
        day = as_of or date.today()
        return plan_profiles(question, day, lambda other: reproduce(other, day))
    sources = PlanSources(lookups, as_of or lookups.catalog.as_known or date.today(), overlay)
    progress = progress or silent

    def command(other: PlanQuestion) -> str | None:
        return relaxed_command(other, sources.day, overlay, own_measurements)

    solved = search_plan(question, sources, progress)
    if isinstance(solved, Refusal):
        raise relaxed_refusal(question, solved, sources, command)
    answer = build_answer(solved, cost_curve(solved, sources, progress), progress)
    verify, note = _verification(solved, answer.groups)
    answer = replace(
        answer, verify=verify, verify_note=note, reproduce=reproduce(question, sources.day, overlay, own_measurements)
    )
    if solved.trial.holds_as_estimated:
        return answer
    changes = missed(solved.trial.simulated, solved.inputs.models, solved.missed, question.headroom is not None)
    relaxation = relaxed_refusal(question, changes, sources, command).relaxation
    return replace(answer, rejected=dict(solved.missed), relaxation=relaxation)


def _verification(plan: SolvedPlan, groups: tuple[GroupRow, ...]) -> tuple[str, Message | None]:
    """Return the command that measures a step of one replica of the largest group, and a note on what it does not measure."""
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
