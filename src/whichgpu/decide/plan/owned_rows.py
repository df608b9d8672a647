"""Rows of owned GPUs in a plan's answer: what those in use serve, what they save, and what it would cost to use the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.decide.plan.capacity import ReplicaCapacity
from whichgpu.decide.plan.plan_answer import OwnedRow
from whichgpu.decide.plan.solver.build import Formulation, ServedModel
from whichgpu.decide.plan.solver.marginal import added_replica, saving
from whichgpu.decide.plan.solver.problem import Solution

ROLE_MESSAGES = {"both": "plan.role-serves", "prefill": "plan.role-serves-prefill", "decode": "plan.role-serves-decode"}
MIN_CHANGE = 0.005  # A smaller change, as a share of the plan's cost, counts as none.


def owned_rows(formulation: Formulation, solution: Solution, level: int, currency: str) -> tuple[OwnedRow, ...]:
    """Return a row per kind of owned GPU: their roles at a load level, what they save, and why some are idle."""
    problem, columns, counts, rows = formulation.problem, formulation.columns, solution.counts[level], []
    for p, gpu_pool in enumerate(formulation.gpu_pools):
        if not gpu_pool.owned:
            continue
        mine = [int(j) for j in np.flatnonzero(problem.pool_of == p) if counts[j] > 0]
        names = [formulation.models[columns[j].model].name for j in mine]
        roles = [
            msg(ROLE_MESSAGES[columns[j].replica.role], model=name, n=int(counts[j]), tp=columns[j].replica.tp)
            for j, name in zip(mine, names, strict=True)
        ]
        working = [job.name for k, job in enumerate(problem.jobs) for at, share in solution.jobs[k] if at == p and share > 0]
        roles += [msg("plan.role-job", name=name) for name in working]
        serving = sum(int(counts[j] * problem.uses[j]) for j in mine)
        used = max(serving, gpu_pool.gpus_per_job if working else 0)
        count = int(problem.pools[p].options[0].limit)
        if roles and not problem.spare:
            roles += _value(formulation, solution, p, currency)
        reasons = tuple(_idle_reasons(formulation, solution, p, level, currency)) if used < count else ()
        rows.append(OwnedRow(gpu_pool.gpu.id, gpu_pool.gpu.name, count, used, tuple(roles), reasons))
    return tuple(rows)


def _value(formulation: Formulation, solution: Solution, p: int, currency: str) -> Iterator[Message]:
    """Yield what the GPUs of a pool save: the additional cost of the plan without them."""
    more = saving(formulation.problem, solution, p)
    if more is None:
        yield msg("plan.owned-needed")
    elif more > MIN_CHANGE * solution.cost:
        yield msg("plan.owned-saves", more=significant(more), currency=currency)


def _idle_reasons(formulation: Formulation, solution: Solution, p: int, level: int, currency: str) -> Iterator[Message]:
    """Yield why unused GPUs of pool `p` serve no model: those that cannot, and the cost of using one replica more."""
    gpu_pool = formulation.gpu_pools[p]
    serving = int((solution.counts[level] * formulation.problem.uses)[formulation.problem.pool_of == p].sum())
    idle = int(formulation.problem.pools[p].options[0].limit) - serving
    able = False
    for m, one in enumerate(formulation.models):
        if not one.runs_on(gpu_pool.gpu) and one.engine is not None:
            yield msg("plan.idle-engine", engine=one.engine.name, model=one.name)
        elif (reason := _unable(one, formulation.replicas[m][p], idle)) is not None:
            yield reason
        else:
            able = True
    if able and not formulation.problem.spare:
        yield _unneeded(formulation, solution, p, level, currency)


def _unneeded(formulation: Formulation, solution: Solution, p: int, level: int, currency: str) -> Message:
    """Return what one replica more on GPUs of pool `p`, which could serve some model, would change in the plan's cost."""
    added = added_replica(formulation.problem, solution, p, level)
    if added is None:
        return msg("plan.idle-unneeded")
    column = formulation.columns[added.column]
    values = {"model": formulation.models[column.model].name, "n": column.replica.tp}
    if added.cost <= MIN_CHANGE * solution.cost:
        return msg("plan.idle-equal", share=f"{MIN_CHANGE:.1%}", **values)
    return msg("plan.idle-costs", more=significant(added.cost), currency=currency, **values)


def _unable(model: ServedModel, replicas: Sequence[ReplicaCapacity], idle: int) -> Message | None:
    """Return why `idle` unused GPUs cannot serve a model: too little memory, too slow, or too few; None if they can."""
    able = [one for one in replicas if one.rates.any()]
    if not able:
        if all(one.short == "memory" for one in replicas):
            return msg("plan.idle-memory", model=model.name)
        late = [one for one in replicas if one.short not in ("", "memory")] or list(replicas)
        near = min(late, key=lambda one: one.off)
        limit = getattr(model.objectives, f"{near.short}_max", None) if near.short else None
        if not limit:
            return msg("plan.idle-slow", model=model.name)
        values = {"goal": msg(f"plan.goal-{near.short}"), "limit": format_seconds(limit), "over": f"{near.off:.0%}"}
        return msg("plan.idle-late", model=model.name, **values)
    if (tp := min(one.tp for one in able)) > idle:
        return msg("plan.idle-few", model=model.name, tp=tp)
    return None
