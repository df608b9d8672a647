"""The verb `plan`: the cheapest fleet for traffic and jobs, from offers and owned GPUs, and how near the cheapest it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from time import monotonic

import numpy as np

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.plan.answer import answered
from whichgpu.api.plan.check import check_request
from whichgpu.api.plan.extras import reproduce
from whichgpu.api.plan.relaxation import ALL_SECONDS, Refused, no_plan
from whichgpu.api.plan.request import ModelAsked, PlanRequest, spelled
from whichgpu.base.errors import NoAnswer, UsageError, WhichGpuError
from whichgpu.base.messages import msg
from whichgpu.base.money import parse_money
from whichgpu.catalog.currency import DOLLAR, Exchanger
from whichgpu.catalog.engines.engine import Engine
from whichgpu.catalog.find import find_gpu, find_gpus
from whichgpu.catalog.store import Catalog
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.constraints import Owned
from whichgpu.decide.offers import OfferSelection, select_offers
from whichgpu.decide.plan.capacity import Goals
from whichgpu.decide.plan.jobs import PlannedJob, jobs_of
from whichgpu.decide.plan.plan_answer import PlanAnswer
from whichgpu.decide.plan.refusal import Refusal, missed, refusal
from whichgpu.decide.plan.solver.build import Formulation, PlanLimits, ServedModel, build, with_headrooms
from whichgpu.decide.plan.solver.problem import CurrentFleet, Solution
from whichgpu.decide.plan.solver.solve import fewest_kinds, solve
from whichgpu.decide.plan.supply import GpuPool, Supply, owned, rented
from whichgpu.decide.plan.traffic import Traffic, trace_traffic, traffic_of
from whichgpu.decide.plan.verify import SimulatedModel, simulate_plan
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.serving.load import Lengths
from whichgpu.price.own import HOST_WATTS, POWER_PRICE, OwnershipCosts
from whichgpu.workload.spelling import fill_defaults, from_texts
from whichgpu.workload.traces.reader import cached_trace

# Tried in turn until the simulated objectives hold; the last leave a few machines, hardly at work, time to change.
HEADROOMS = (0.15, 0.25, 0.35, 0.45, 0.6, 0.75, 0.9)
GAP = 0.01
RATE = 1.0  # requests a second, where nobody says
Told = Callable[[str, float], None]
# Built, solved, the cost before kinds were joined, simulated, and the share of time kept free by model.
Tried = tuple[Formulation, Solution, float, tuple[SimulatedModel, ...], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Solved:
    """What came of it, before it is told."""

    request: PlanRequest
    formulation: Formulation
    solution: Solution
    optimum: float  # cost before kinds were joined
    checked: tuple[SimulatedModel, ...]
    spare: dict[str, float]  # share of its copies' time kept free, by model
    selection: OfferSelection
    supply: Supply
    limits: PlanLimits
    lookups: LookupCache
    overlay: Path | None
    wanted: tuple[PlannedJob, ...] = ()
    missed: Mapping[str, int] = field(default_factory=dict)  # simulated fleets by the objective they missed

    @property
    def headroom(self) -> float:
        """The most any model's copies keep free."""
        return max(self.spare.values(), default=0.0)


def plan(
    request: PlanRequest,
    as_of: date | None = None,
    catalog: Catalog | None = None,
    overlay: Path | None = None,
    own: bool = True,
    progress: Told | None = None,
) -> PlanAnswer:
    """The cheapest fleet; `progress` hears what is being done and how far it is."""
    lookups = lookup_cache(catalog, own=own, trusting=request.file is None)  # code runs for who names it, not for a file
    check_request(request, lookups)
    if request.profiles is not None:
        from whichgpu.api.plan.profiles import plan_profiles

        return plan_profiles(request, as_of or date.today())
    if not request.models and not request.jobs:
        raise UsageError("no-model", msg("error.plan-no-model"), msg("hint.plan"))
    day = as_of or lookups.catalog.as_known or date.today()
    told = progress or (lambda *_: None)
    found = _search(request, day, lookups, overlay, told)
    if isinstance(found, Refusal):
        raise _relaxed(request, found, day, lookups, overlay)
    answer = answered(found, told)
    if all(one.holds for one in found.checked):
        return answer
    changes = missed(found.checked, found.formulation.served, found.missed, request.headroom is not None)
    refused = _relaxed(request, changes, day, lookups, overlay)
    return replace(answer, rejected=dict(found.missed), relaxation=refused.relaxation)


def solved(
    request: PlanRequest, day: date, lookups: LookupCache, overlay: Path | None, progress: Told, gap: float = GAP
) -> Solved:
    """The fleet, or an error that says why there is none."""
    found = _search(request, day, lookups, overlay, progress, gap)
    if isinstance(found, Refusal):
        raise no_plan(found, None)
    return found


def _relaxed(request: PlanRequest, refusal: Refusal, day: date, lookups: LookupCache, overlay: Path | None) -> NoAnswer:
    """The refusal with a changed request that is answered, which takes a few more plans."""

    def attempt(other: PlanRequest) -> Refusal | bool:
        try:
            found = _search(other, day, lookups, overlay, lambda *_: None)
        except WhichGpuError:
            return False
        return found if isinstance(found, Refusal) else all(one.holds for one in found.checked)

    def command(other: PlanRequest) -> str:
        return reproduce(other, day.isoformat(), overlay, lookups.own)

    served = _all_served(request, lookups, lambda *_: None)
    until = monotonic() + ALL_SECONDS
    return no_plan(refusal, Refused(request, served, lambda name: find_gpu(lookups.catalog, name).id, attempt, command, until))


def _search(
    request: PlanRequest, day: date, lookups: LookupCache, overlay: Path | None, progress: Told, gap: float = GAP
) -> Solved | Refusal:
    """Offers, throughput, the program, the simulation; more headroom where that is not met."""
    served = _all_served(request, lookups, progress)
    progress("estimates", 0.0)
    found = select_offers(request.query, day, lookups.catalog, overlay, engine=_only_engine(request, served))
    supply = _supply(request, found, lookups)
    limits = _limits(request, found, lookups.catalog)
    wanted = tuple(_wanted(one.name, dict(one.fields), one.deadline, lookups) for one in request.jobs)
    jobs = jobs_of(wanted, supply.gpu_pools, found.constraints.run_settings)
    formulation = build(served, supply.gpu_pools, limits, jobs, lambda share: progress("estimates", share))
    spare = {one.name: request.headroom if request.headroom is not None else HEADROOMS[0] for one in served}
    tried: list[Tried] = []
    for place in range(len(HEADROOMS)):
        eased = with_headrooms(formulation, spare)
        progress("solving", place / len(HEADROOMS))
        solution = solve(eased.problem, request.time_limit, gap)
        if solution is None:
            if tried:
                break
            return refusal(eased, found.constraints.currency)
        told = fewest_kinds(eased.problem, solution, request.tolerance)
        progress("simulating", 0.0)
        same = tried and _same_fleet(told, tried[-1][1])  # which waits no less for a headroom that changes nothing
        checked = tried[-1][3] if same else _checked(eased, told, request, progress)
        tried.append((eased, told, solution.cost, checked, dict(spare)))
        late = [one.model for one in checked if not one.holds]
        if not late or request.headroom is not None:
            break
        for name in late:  # only those that miss their objectives get more
            spare[name] = next((more for more in HEADROOMS if more > spare[name]), spare[name])
    progress("telling", 0.0)
    lacks = Counter(each.worst or "throughput" for one in tried for each in one[3] if not each.holds)
    return Solved(request, *_nearest(tried), found, supply, limits, lookups, overlay, wanted, lacks)


def _same_fleet(one: Solution, other: Solution) -> bool:
    return one.machines == other.machines and np.array_equal(one.copies, other.copies) and np.allclose(one.shares, other.shares)


def _nearest(tried: Sequence[Tried]) -> Tried:
    """The first whose objectives hold, which is the last; else that in which most requests meet them, the cheapest of such."""
    if all(one.holds for one in tried[-1][3]):
        return tried[-1]
    return max(tried, key=lambda one: (round(min(each.met or 0.0 for each in one[3]), 3), -one[2]))


def _checked(formulation: Formulation, told: Solution, request: PlanRequest, progress: Told) -> tuple[SimulatedModel, ...]:
    if not request.simulate:
        return ()
    return simulate_plan(formulation, told, seed=request.seed, progress=lambda share: progress("simulating", share))


def _supply(request: PlanRequest, found: OfferSelection, lookups: LookupCache) -> Supply:
    constraints = found.constraints
    mine = owned(
        [_owned(one.gpu, one.gpus, one.power_cost, request, found, lookups.catalog) for one in request.owned], lookups.catalog
    )
    if request.only_owned:
        if not mine:
            raise UsageError("nothing-owned", msg("error.nothing-owned"), msg("hint.plan"))
        return Supply(mine, 0)
    old_spot = constraints.max_age is not None or set(constraints.terms) == {"spot"}  # asked for by age, or nothing else is
    offers = rented(
        found.market,
        lookups.catalog,
        constraints.span,
        request.horizon,
        constraints.run_settings,
        "spot" in constraints.terms,
        old_spot,
    )
    gpu_pools: tuple[GpuPool, ...] = (*mine, *offers.gpu_pools)
    if not gpu_pools:
        counts = {name: count for name, count in found.market.rejected.items() if count}
        why = tuple(msg("rejected.counted", why=msg(f"rejected.{name}", n=n), n=n) for name, n in counts.items())
        raise no_plan(Refusal(why, counts), None)
    return Supply(gpu_pools, offers.offers, offers.old)


def _owned(name: str, count: int, power: str | None, request: PlanRequest, found: OfferSelection, catalog: Catalog) -> Owned:
    """With what an hour of work of one GPU costs, in the plan's currency."""
    gpu = find_gpu(catalog, name)
    exchanger = Exchanger(found.constraints.day, catalog.exchange)
    if power is not None:
        money, _ = parse_money(power)
        return Owned(gpu.id, count, float(exchanger.convert(money, found.constraints.currency)[0].amount))
    price = POWER_PRICE
    if request.query.power_price is not None:
        price = float(exchanger.convert(parse_money(request.query.power_price)[0], DOLLAR)[0].amount)
    own = OwnershipCosts(0.0, float(gpu.tdp_watts or HOST_WATTS), 0.0, power_price=price)
    return Owned(gpu.id, count, own.power(0.9) * price * found.market.rate)


def _all_served(request: PlanRequest, lookups: LookupCache, progress: Told) -> tuple[ServedModel, ...]:
    """Every model under a name of its own; a trace that several have is read once."""
    traces = list(dict.fromkeys(one.trace for one in request.models if one.trace is not None))
    for place, path in enumerate(traces):
        cached_trace(path, lambda share, at=place: progress("reading", (at + share) / len(traces)))  # type: ignore[misc]
    served, seen = [], Counter[str]()
    for one in request.models:
        name = one.called
        seen[name] += 1
        served.append(_served(one, name if seen[name] == 1 else f"{name} ({seen[name]})", request.seed, lookups))
    return tuple(served)


def _served(one: ModelAsked, name: str, seed: int, lookups: LookupCache) -> ServedModel:
    """A model with its traffic and objectives, every default filled in."""
    texts = {"rate": f"{RATE:g}/s", **one.fields} if one.trace is None and not one.hourly else dict(one.fields)
    read = from_texts({"task": "serve", "model": one.spelled, **texts})
    shape = lookups.shape(one.model)
    workload = fill_defaults(replace(read.workload, rate=read.workload.rate or RATE), shape)
    given = read.given if "rate" in one.fields else read.given - {"rate"}
    traffic = _traffic(one, read.workload.rate if "rate" in given else None, workload.seq_in or 1, workload.seq_out or 1, seed)
    sized = replace(workload, seq_in=max(1, round(traffic.prompt)), seq_out=max(1, round(traffic.output)), rate=traffic.peak)
    goals = Goals(workload.ttft_max, workload.tpot_max, one.latency_max, workload.percentile)
    engine = next((engine for engine in lookups.catalog.engines if engine.id == sized.engine), None)
    return ServedModel(
        name, WorkloadRequest(sized, given, shape, lookups.calibration, read.workload), traffic, goals, engine, one.spelled
    )


def _only_engine(request: PlanRequest, served: Sequence[ServedModel]) -> Engine | None:
    """The engine of all that runs, where it is one: GPUs it cannot run on need not be looked at."""
    engines = {one.engine for one in served}
    return next(iter(engines)) if len(engines) == 1 and not request.jobs else None


def _traffic(one: ModelAsked, rate: float | None, seq_in: int, seq_out: int, seed: int) -> Traffic:
    if one.trace is not None:
        return trace_traffic(cached_trace(one.trace), rate, one.hourly)
    prompts, outputs = (
        Lengths.histogram(tuple(histogram), tuple(histogram.values())) if histogram else Lengths(float(mean), spread)
        for mean, spread, histogram in (
            (seq_in, one.in_spread, one.in_histogram),
            (seq_out, one.out_spread, one.out_histogram),
        )
    )
    return traffic_of(rate if rate is not None or one.hourly else RATE, prompts, outputs, one.hourly, seed)


def _wanted(name: str, texts: dict[str, str], deadline: float, lookups: LookupCache) -> PlannedJob:
    """A job as a request of its own."""
    read = from_texts(texts)
    shape = lookups.shape_for(read.workload)
    given = read.given | ({"batch"} if read.workload.steps is not None else frozenset())
    return PlannedJob(
        name,
        WorkloadRequest(fill_defaults(read.workload, shape, given), given, shape, lookups.calibration, read.workload),
        deadline,
    )


def _limits(request: PlanRequest, found: OfferSelection, catalog: Catalog) -> PlanLimits:
    quotas = tuple((name, frozenset(gpu.id for gpu in find_gpus(catalog, name)), most) for name, most in request.quotas.items())
    budget = found.constraints.budget
    hourly = None
    if budget is not None:
        scale = {"hour": 1.0, "month": 1.0 / 730.0}.get(found.constraints.budget_per or "", 1.0 / request.horizon)
        hourly = float(budget.amount) * scale
    return PlanLimits(
        headroom=request.headroom if request.headroom is not None else HEADROOMS[0],
        slices=request.slices,
        quotas=quotas,
        budget=hourly,
        horizon=request.horizon,
        levels=request.levels,
        current=_current(request, found, catalog),
        spot_share=request.spot_share,
    )


def _current(request: PlanRequest, found: OfferSelection, catalog: Catalog) -> CurrentFleet | None:
    """The fleet there is; a change costs 5% of a GPU hour of two dollars where nobody says."""
    if request.current is None:
        return None
    from whichgpu.api.plan.plan_file import owned_text

    kept: dict[str, float] = {}
    for one in owned_text(request.current):
        kept[find_gpu(catalog, one.gpu).id] = float(one.gpus)
    cost = 0.1 * found.market.rate
    if request.change_cost is not None:
        money, _ = parse_money(request.change_cost)
        cost = float(Exchanger(found.constraints.day, catalog.exchange).convert(money, found.constraints.currency)[0].amount)
    return CurrentFleet(kept, cost)


__all__ = ["PlanAnswer", "PlanRequest", "plan", "solved", "spelled"]
