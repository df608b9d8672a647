"""What goes with a plan: kinds of GPU alone, other objectives, buying instead, what to start it with, the question again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from re import sub
from shlex import join
from typing import TYPE_CHECKING, Any

import numpy as np

from whichgpu.api.plan.request import PlanRequest
from whichgpu.api.plan.sweep import FACTORS, GOALS, parse_sweep, sweep
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.parallel.sweep import Progress
from whichgpu.catalog.engines.engine import Engine, engine_support
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.plan.launch_hints import Hint, tools
from whichgpu.decide.plan.plan_answer import AloneRow, CurvePoint, GroupRow, OwnRow, money
from whichgpu.decide.plan.solver.build import ServedModel, only_gpu
from whichgpu.decide.plan.solver.problem import Problem
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.price.own import OwnershipCosts, compare_with_rent, host_price
from whichgpu.price.terms import YEAR_HOURS
from whichgpu.workload.models import own_name

if TYPE_CHECKING:
    from whichgpu.api.plan.plan import Solved

# Switches of the command line, off and on; nothing where only a file can say it.
SWITCHES = {
    "only_owned": ("", "--only-owned"),
    "simulate": ("--no-simulate", "--simulate"),
    "curve": ("--no-curve", "--curve"),
    "roles": ("", "--roles"),
    "policies": ("", "--policies"),
}
KINDS = 6  # of GPU whose cost alone is told
CURVE_SECONDS, CURVE_GAP = 3.0, 0.02
# Of a price: what is lost when a card is no longer new, what is left after three years (as `buy` takes it), and the least ever.
USED, LEFT, LEAST_LEFT = 0.2, 0.3, 0.1


def alone_rows(
    problem: Problem, names: dict[str, str], currency: str, first: Sequence[str], most: int = KINDS
) -> tuple[AloneRow, ...]:
    """What each kind of GPU would cost by itself: those of the plan, then those that seem cheapest."""
    prices = np.array([min(way.price for way in pool.options) / pool.size for pool in problem.pools])
    each = prices[problem.pool_of] * problem.uses
    demand = problem.demand.max(axis=0)
    wanted = demand > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(problem.rates > 0, each[:, None] / problem.rates, np.inf)
    kinds = {}
    for gpu in names:
        mine = [j for j, p in enumerate(problem.pool_of.tolist()) if problem.pools[p].gpu == gpu]
        if mine:
            kinds[gpu] = float((cost[mine].min(axis=0)[wanted] * demand[wanted]).sum())
    order = [*first, *(gpu for gpu in sorted(kinds, key=lambda name: kinds[name]) if gpu not in first)]
    rows = []
    for gpu in order[:most]:
        solution = solve(only_gpu(problem, gpu), CURVE_SECONDS, CURVE_GAP) if np.isfinite(kinds.get(gpu, np.inf)) else None
        gpus = None
        if solution is not None:
            totals = [
                sum(n * problem.pools[p].size for (at, p, _), n in solution.machines.items() if at == level)
                for level in range(problem.levels)
            ]
            gpus = max(totals)
        rows.append(AloneRow(gpu, names[gpu], money(solution.cost, currency) if solution else None, gpus))
    return tuple(rows)


def cost_curve(told: Solved, progress: Callable[[str, float], None]) -> tuple[CurvePoint, ...]:
    """The bill along what was asked for, or against the objective that stands: between tokens, first token, the whole answer."""
    request, currency = told.request, told.selection.constraints.currency
    if request.sweep is not None:
        name, values = parse_sweep(request.sweep)
    else:
        goals = [one.goals for one in told.formulation.served]
        limits = {name: [limit for one in goals if (limit := getattr(one, field))] for name, field in GOALS.items()}
        name = next((name for name, found in limits.items() if found), "")
        if not name or not request.curve:
            return ()
        values = tuple(round(limits[name][0] * factor, 6) for factor in FACTORS)

    def heard(done: Progress) -> None:
        progress("telling", done.done / max(1, done.total))

    day = told.selection.constraints.day
    return sweep(
        request, day, told.lookups, told.overlay, told.headroom, name, values, currency, heard, keep=request.sweep is not None
    )


def own_rows(told: Solved) -> tuple[OwnRow, ...]:
    """Buying against renting each kind the plan rents, for as long as the horizon, at the use the plan makes of it."""
    problem, currency, rate = told.formulation.problem, told.selection.constraints.currency, told.selection.market.rate
    kinds: dict[str, dict[int, float]] = {}
    spent: dict[str, float] = {}
    gpus: dict[str, Gpu] = {}
    for (level, p, w), n in told.solution.machines.items():
        gpu_pool = told.formulation.gpu_pools[p]
        if gpu_pool.owned:
            continue
        gpus[gpu_pool.gpu.id] = gpu_pool.gpu
        count = kinds.setdefault(gpu_pool.gpu.id, {})
        count[level] = count.get(level, 0.0) + n * gpu_pool.pool.size
        spent[gpu_pool.gpu.id] = spent.get(gpu_pool.gpu.id, 0.0) + problem.pools[p].options[w].price * n * float(
            problem.hours[level]
        )
    rows = []
    for id, counts in kinds.items():
        gpu, most = gpus[id], max(counts.values())
        if gpu.launch_price is None or gpu.launch_price.currency != "USD":
            continue
        worked = sum(counts.get(level, 0.0) * float(problem.hours[level]) for level in range(problem.levels))
        use, years = worked / most, min(5.0, max(told.request.horizon / YEAR_HOURS, 1.0 / 12.0))
        price = float(gpu.launch_price.amount)
        left = max(LEAST_LEFT, 1.0 - USED - (1.0 - USED - LEFT) * years / 3.0)
        own = OwnershipCosts(price, float(gpu.tdp_watts or 0), host_price(price), years=years, residual=left, use=use)
        rent = spent[id] / rate / worked
        even = compare_with_rent(own, rent)
        rows.append(
            OwnRow(
                id,
                gpu.name,
                int(most),
                money(price * most * rate, currency),
                money(rent * rate, currency),
                money(own.hour * rate, currency),
                use,
                even.break_even_use,
                even.break_even_months,
                even.break_even_use is not None and use >= even.break_even_use,
            )
        )
    return tuple(rows)


def hints_of(told: Solved, groups: Sequence[GroupRow]) -> tuple[Hint, ...]:
    """What to start each group with."""
    hints = []
    for place, row in enumerate(groups):
        one = next(served for served in told.formulation.served if served.name == row.model)
        column = next(
            column
            for column in told.formulation.columns
            if told.formulation.served[column.model] is one
            and told.formulation.gpu_pools[column.pool_index].gpu.id == row.gpu
            and column.replica.tp == row.gpus_per_copy
        )
        limits = column.replica.limits
        name = sub(r"[^a-z0-9]+", "-", f"{row.model}-{row.gpu}-{place + 1}".lower())
        hints.append(
            Hint(
                group=name,
                model=_repository(told, one),
                copies=row.copies,
                gpu=row.gpu,
                gpus_per_copy=row.gpus_per_copy,
                tensor_parallel_size=row.parallel.tp,
                max_num_seqs=row.batch,
                max_model_len=one.traffic.longest,
                max_num_batched_tokens=limits.max_batched_tokens if limits else None,
                dtype=row.precision,
                memory_share=limits.memory_share if limits else None,
                provider=row.provider,
                instance=row.instance,
                region=row.region,
                spot=row.term == "spot",
                earlier=_earlier(told.lookups.catalog.engines, told.lookups.catalog.gpu_by_id[row.gpu]),
            )
        )
    return tuple(hints)


def _earlier(engines: Sequence[Engine], gpu: Gpu) -> dict[str, str]:
    """What is known of the releases that run on a GPU the present one does not, by the engine a hint starts."""
    return {one.id: one.note or one.name for one in engines if one.id in tools() and engine_support(one, gpu) == "earlier"}


def _repository(told: Solved, one: ServedModel) -> str:
    """Where an engine finds the model: its repository where one is known, else as it was named or as its config says."""
    from whichgpu.catalog.model import model_key

    named = one.asked.bare.model
    bare = one.asked_for.removeprefix("hf:") if isinstance(named, str) else own_name(named)
    for model in told.lookups.catalog.models:
        if model_key(bare) in map(model_key, model.names):
            return next((alias for alias in model.aliases if "/" in alias), bare)
    return bare


def reproduce(request: PlanRequest, day: str, overlay: Path | None = None, own: bool = True) -> str:
    """The question again, as a command where flags can say it."""
    last = [f"--prices={overlay}"] if overlay else []
    last += [f"--as-of={day}"] if own else ["--no-own-measurements", f"--as-of={day}"]
    words = ["whichgpu", "plan"]
    if request.profiles is not None:
        words += ["--profiles", str(request.profiles)] + ([f"--rate={request.rate:g}/s"] if request.rate else [])
    elif request.file is None and len({_same(one) for one in request.models}) == 1 and not request.jobs:
        one = request.models[0]
        words += [model.spelled for model in request.models]
        words += [f"--{name.replace('_', '-')}={value}" for name, value in one.fields.items()]
        words += [f"--trace={one.trace}"] if one.trace else []
        words += [f"--hourly={','.join(f'{rate:g}' for rate in one.hourly)}"] if one.hourly else []
        for name in ("in_spread", "out_spread"):
            words += [f"--{name.replace('_', '-')}={getattr(one, name):g}"] if getattr(one, name) else []
        for name in ("in_histogram", "out_histogram"):
            told = ",".join(f"{length:g}:{weight:g}" for length, weight in getattr(one, name).items())
            words += [f"--{name.replace('_', '-')}={told}"] if told else []
        words += [f"--latency={one.latency_max:g}s"] if one.latency_max else []
    else:
        return join([*words, request.file or "FILE.toml", *_flags(request, _written(request)), *last])
    return join([*words, *_flags(request, PlanRequest()), *last])


def _written(request: PlanRequest) -> PlanRequest:
    """What the plan's file says by itself; the request where there is none to read."""
    from whichgpu.api.plan.plan_file import read_plan

    try:
        return read_plan(Path(request.file)) if request.file else request
    except WhichGpuError:  # it is gone meanwhile
        return request


def _same(one: Any) -> str:
    return repr(replace(one, model=""))


def _flags(request: PlanRequest, usual: PlanRequest) -> list[str]:
    """Flags that say how a request differs from the usual one, or from its file."""
    known = usual.query.spelled()
    words = [f"--{name.replace('_', '-')}={value}" for name, value in request.query.spelled().items() if known.get(name) != value]
    if request.owned != usual.owned:
        words.append("--owned=" + ",".join(f"{one.gpus}x{one.gpu}" for one in request.owned))
    if request.quotas != usual.quotas:
        words.append("--quota=" + ",".join(f"{name}={most:g}" for name, most in request.quotas.items()))
    for name in ("headroom", "slices", "levels", "current", "change_cost", "spot_share", "tolerance", "seed", "sweep"):
        value = getattr(request, name)
        if value != getattr(usual, name):
            words.append(f"--{name.replace('_', '-')}={value}")
    if request.horizon != usual.horizon:
        words.append(f"--horizon={request.horizon:g}h")
    if request.time_limit != usual.time_limit:
        words.append(f"--time-limit={request.time_limit:g}s")
    for name, flags in SWITCHES.items():
        if getattr(request, name) != getattr(usual, name):
            words.append(flags[getattr(request, name)])
    return [word for word in words if word]
