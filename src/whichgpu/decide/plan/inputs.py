"""Inputs of a plan: models and jobs with defaults filled in, offers, owned GPUs, and limits as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import parse_money
from whichgpu.base.units import format_seconds
from whichgpu.catalog.currency import DOLLAR, Exchanger
from whichgpu.catalog.engines.engine import Engine
from whichgpu.catalog.find import find_gpu, find_gpus
from whichgpu.catalog.places.user_places import Reach, reach_of, user_places
from whichgpu.catalog.store import Catalog
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.evaluate import best_configurations
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.constraints import Constraints, Owned, Risk
from whichgpu.decide.market import Market, quota_offer
from whichgpu.decide.offers import select_offers
from whichgpu.decide.plan.question import OwnedGpus, PlanQuestion, RequestedJob, RequestedModel, parse_owned
from whichgpu.decide.plan.refusal import Refusal, Relaxation
from whichgpu.decide.plan.solver.build import ServedModel
from whichgpu.decide.plan.solver.problem import AccountLimit, CurrentFleet, Job, Quota
from whichgpu.decide.plan.supply import GpuPool, Supply, owned_pools, rented_pools
from whichgpu.decide.plan.traffic import DEFAULT_RATE, MAX_CLASSES, MAX_CLASSES_OF_SEVERAL, model_traffic
from whichgpu.decide.relax import rounded_up
from whichgpu.decide.requirements import Requirements
from whichgpu.decide.work import work_of
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.price.own import POWER_PRICE, owned_gpu_hour
from whichgpu.price.quotas import AccountQuota, machine_size
from whichgpu.price.run import RunSettings
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.spelling import fill_defaults, from_texts
from whichgpu.workload.traces.reader import cached_trace
from whichgpu.workload.workload import KINDS

DEFAULT_HEADROOM = 0.15  # Share of replicas' time kept free unless the user states another (assumed).
CHANGE_COST = 0.1  # Weight of adding or removing one GPU, in US dollars per hour: 5% of two dollars per GPU hour (assumed).
StageProgress = Callable[[str, float], None]  # The arguments are the stage's name and the share of it done.


def silent(stage: str, share: float) -> None:
    """Ignore a progress report (stage, share of it done); used if the caller wants none."""


class PlanSources(msgspec.Struct, frozen=True):
    """Sources a plan is looked up in: models and GPUs, offers of a day, and the user's own prices (`overlay`) if given."""

    lookups: LookupCache
    day: date
    overlay: Path | None = None


class PlannedJob(msgspec.Struct, frozen=True):
    """A training or batch job to plan: its workload with defaults filled in, deadline in seconds, and fields as stated."""

    name: str
    request: WorkloadRequest
    deadline: float
    fields: Mapping[str, str]


class PlanInputs(msgspec.Struct, frozen=True):
    """A plan question's models, jobs and offers, looked up in the catalog and with defaults filled in."""

    models: tuple[ServedModel, ...]
    jobs: tuple[PlannedJob, ...]
    constraints: Constraints
    market: Market
    assumptions: tuple[Message, ...]
    catalog: Catalog
    reach: Reach | None = None  # if users are in several places

    @property
    def risk(self) -> Risk:
        """Return how cautiously objectives are judged: by default as for a service in `recommend`."""
        return self.constraints.risk_for(bool(self.models))

    def in_currency(self, text: str, currency: str = "") -> float:
        """Return an amount of money from the user's text, converted to the plan's currency or the one given."""
        exchanger = Exchanger(self.constraints.day, self.catalog.exchange)
        return float(exchanger.convert(parse_money(text)[0], currency or self.constraints.currency)[0].amount)


def read_inputs(question: PlanQuestion, sources: PlanSources, progress: StageProgress) -> PlanInputs:
    """Return the models, jobs and offers of a question, looked up and with defaults filled in."""
    catalog = sources.lookups.catalog
    models = served_models(question, sources.lookups, progress)
    progress("estimates", 0.0)
    reach = reach_of(question.filter_texts.get("near"), question.filter_texts.get("max_latency"), catalog)
    filters: dict[str, Any] = {
        name: value for name, value in question.filters.items() if reach is None or name not in ("near", "max_latency")
    }
    engine = None if question.jobs else _common_engine(models)
    offers = select_offers(
        Requirements(**filters),
        sources.day,
        catalog,
        sources.overlay,
        engine=engine,
        for_service=bool(models) and not question.only_owned,
    )
    models = _with_day_and_quality(models, offers.constraints)
    jobs = tuple(_planned_job(one, sources.lookups) for one in question.jobs)
    return PlanInputs(models, jobs, offers.constraints, offers.market, offers.assumptions, catalog, reach)


def with_models_of(inputs: PlanInputs, question: PlanQuestion, lookups: LookupCache) -> PlanInputs:
    """Return inputs with the models of another question that differs in its rates and objectives alone."""
    return replace(inputs, models=_with_day_and_quality(served_models(question, lookups), inputs.constraints))


def _with_day_and_quality(models: Sequence[ServedModel], constraints: Constraints) -> tuple[ServedModel, ...]:
    return tuple(replace(one, day=constraints.day, quality=constraints.quality) for one in models)


def _common_engine(models: Sequence[ServedModel]) -> Engine | None:
    """Return the engine that all models share, so that offers of GPUs it does not support are left out; None if they differ."""
    engines = {one.engine for one in models}
    return engines.pop() if len(engines) == 1 else None


def served_models(question: PlanQuestion, lookups: LookupCache, progress: StageProgress = silent) -> tuple[ServedModel, ...]:
    """Return every model of a plan with defaults filled in, under a unique name; a trace that several share is read once."""
    traces = list(dict.fromkeys(one.trace for one in question.models if one.trace is not None))
    for place, path in enumerate(traces):
        cached_trace(path, lambda share, at=place: progress("reading", (at + share) / len(traces)))  # type: ignore[misc]
    models, occurrences = [], Counter[str]()
    places = {one.name: one.share for one in user_places(question.filter_texts.get("near"))}
    max_classes = MAX_CLASSES if len(question.models) == 1 and not places else MAX_CLASSES_OF_SEVERAL
    for one in question.models:
        occurrences[one.name] += 1
        name = one.name if occurrences[one.name] == 1 else f"{one.name} ({occurrences[one.name]})"
        served = _served_model(one, name, question.seed, lookups, max_classes)
        models.append(replace(served, traffic=served.traffic.by_place(places)))
    return tuple(models)


def _served_model(model: RequestedModel, name: str, seed: int, lookups: LookupCache, max_classes: int) -> ServedModel:
    """Return a requested model with its traffic and objectives, every default filled in, under the name `name`."""
    default = {"rate": f"{DEFAULT_RATE:g}/s"} if model.trace is None and not model.hourly else {}
    spelled = from_texts({"task": "serve", "model": model.spelling, **default, **model.fields})
    bare = spelled.workload
    shape = lookups.with_draft(lookups.shape(model.model), bare)
    workload = fill_defaults(replace(bare, rate=bare.rate or DEFAULT_RATE), shape)
    stated = spelled.user_fields if "rate" in model.fields else spelled.user_fields - {"rate"}
    rate = bare.rate if "rate" in stated else None
    traffic = model_traffic(model, rate, workload.seq_in or 1, workload.seq_out or 1, seed, max_classes)
    sized = replace(workload, seq_in=max(1, round(traffic.prompt)), seq_out=max(1, round(traffic.output)), rate=traffic.peak)
    objectives = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile, model.latency_max)
    engine = next((engine for engine in lookups.catalog.engines if engine.id == sized.engine), None)
    request = WorkloadRequest(sized, stated, shape, lookups.calibration, bare)
    return ServedModel(name, request, traffic, objectives, engine, model.spelling)


def _planned_job(job: RequestedJob, lookups: LookupCache) -> PlannedJob:
    spelled = from_texts(dict(job.fields))
    shape = lookups.shape_for(spelled.workload)
    stated = spelled.user_fields | ({"batch"} if spelled.workload.steps is not None else frozenset())
    workload = fill_defaults(spelled.workload, shape, stated)
    request = WorkloadRequest(workload, stated, shape, lookups.calibration, spelled.workload)
    return PlannedJob(job.name, request, job.deadline, job.fields)


def supply_of(question: PlanQuestion, inputs: PlanInputs) -> Supply | Refusal:
    """Return owned GPUs and, unless only these are allowed, rentable machines; or why there are neither."""
    constraints, catalog = inputs.constraints, inputs.catalog
    own = owned_pools([_owned(one, question, inputs) for one in question.owned], catalog)
    if question.only_owned:
        if not own:
            raise UsageError("nothing-owned", msg("error.nothing-owned"), msg("hint.plan"))
        return Supply(own, 0)
    # Old spot prices count if the user allows an age of prices, or accepts spot only.
    old_spot = constraints.max_age is not None or set(constraints.terms) == {"spot"}
    spot = "spot" in constraints.terms
    rented = rented_pools(inputs.market, catalog, constraints, question.horizon, spot, old_spot, inputs.reach)
    if inputs.reach is not None and (too_far := _too_far(inputs.reach, (*own, *rented.pools), len(inputs.market.rows))):
        return too_far
    if not (own or rented.pools):
        rejected = {**inputs.market.rejected, "seller": rented.avoided}
        counts = {name: count for name, count in rejected.items() if count}
        reasons = tuple(msg("rejected.counted", why=msg(f"rejected.{name}", n=n), n=n) for name, n in counts.items())
        return Refusal(reasons, counts)
    return replace(rented, pools=(*own, *rented.pools))


def _too_far(reach: Reach, pools: Sequence[GpuPool], offers: int) -> Refusal | None:
    """Return the refusal if some city of users has no machine within the longest round trip allowed, with the shortest one."""
    unreached = [
        (one.name, min(trips.values(), default=np.inf))
        for place, (one, trips) in enumerate(zip(reach.places, reach.trips, strict=True))
        if not any(pool.owned or pool.reach[place] for pool in pools)
    ]
    if not unreached:
        return None
    limit, needed = format_seconds(reach.limit), rounded_up(max(seconds for _, seconds in unreached))
    reasons = tuple(msg("plan.no-region", place=name, limit=limit) for name, _ in unreached)
    value = f"{needed * 1000:g}ms"
    change = Relaxation(msg("plan.relax-goal", flag="--max-latency", value=value), "max_latency", {"max_latency": value})
    return Refusal(reasons, {"max-latency": offers}, (change,))


def _owned(gpus: OwnedGpus, question: PlanQuestion, inputs: PlanInputs) -> Owned:
    """Return owned GPUs with the cost of one GPU's hour of work in the plan's currency."""
    gpu = find_gpu(inputs.catalog, gpus.gpu)
    if gpus.power_cost is not None:
        return Owned(gpu.id, gpus.gpus, inputs.in_currency(gpus.power_cost))
    text = question.filter_texts.get("power_price")
    price = POWER_PRICE if text is None else inputs.in_currency(text, DOLLAR)
    return Owned(gpu.id, gpus.gpus, owned_gpu_hour(gpu.tdp_watts, gpus.gpus, price) * inputs.market.rate)


def problem_limits(question: PlanQuestion, inputs: PlanInputs, gpu_pools: Sequence[GpuPool]) -> dict[str, Any]:
    """Return limits of a plan (headroom, quotas, budget, ...) for the solver; money is per hour in the plan's currency."""
    budget, per = inputs.constraints.budget, inputs.constraints.budget_per
    hours = {"hour": 1.0, "month": float(MONTH_HOURS)}.get(per or "", question.horizon)
    return {
        "headroom": question.headroom if question.headroom is not None else DEFAULT_HEADROOM,
        "slices": question.slices,
        "quotas": tuple(_quota(name, limit, inputs.catalog, gpu_pools) for name, limit in question.quotas.items()),
        "account_limits": tuple(_account_limit(quota, inputs, gpu_pools) for quota in inputs.constraints.quotas),
        "jobs": tuple(_program_job(one, gpu_pools, inputs.constraints.run_settings) for one in inputs.jobs),
        "horizon": question.horizon,
        "budget": None if budget is None else float(budget.amount) * (1.0 / hours),
        "current": _current_fleet(question, inputs),
        "spot_share": question.spot_share,
        "spare": question.spare,
    }


def _account_limit(quota: AccountQuota, inputs: PlanInputs, gpu_pools: Sequence[GpuPool]) -> AccountLimit:
    """Return a quota of the user's cloud account as a limit on all price options that it counts together."""
    market, sizes = inputs.market, dict[tuple[int, int], float]()
    for p, one in enumerate(gpu_pools):
        for w, option in enumerate(one.pool.options):
            if option.row is not None:
                offer = quota_offer(market.table, int(market.rows[option.row]))
                sizes[p, w] = machine_size(quota, offer, inputs.catalog, float(one.pool.size))
    return AccountLimit({place: size for place, size in sizes.items() if size}, quota.limit)


def _quota(name: str, limit: float, catalog: Catalog, gpu_pools: Sequence[GpuPool]) -> Quota:
    """Return a quota: at most `limit` GPUs to rent of those kinds that `name` stands for."""
    ids = {gpu.id for gpu in find_gpus(catalog, name)}
    return Quota(name, frozenset(p for p, one in enumerate(gpu_pools) if one.gpu.id in ids and not one.owned), limit)


def _current_fleet(question: PlanQuestion, inputs: PlanInputs) -> CurrentFleet | None:
    if question.current is None:
        return None
    gpus = {find_gpu(inputs.catalog, one.gpu).id: float(one.gpus) for one in parse_owned(question.current)}
    text = question.change_cost
    return CurrentFleet(gpus, CHANGE_COST * inputs.market.rate if text is None else inputs.in_currency(text))


def _program_job(one: PlannedJob, gpu_pools: Sequence[GpuPool], run_settings: RunSettings) -> Job:
    """Return a job with its hours on one machine of each pool; of owned GPUs, on the largest power of two of them."""
    places = [place for place, each in enumerate(gpu_pools) if not each.workers_only]
    groups = [Group(gpu_pools[at].gpu, gpu_pools[at].gpus_per_job, 1, gpu_pools[at].fabric) for at in places]
    work = work_of(one.request.workload, one.request.shape, None)
    hours, wall = np.full(len(gpu_pools), np.inf), np.full(len(gpu_pools), np.inf)
    requests: list[Mapping[str, Any]] = [{} for _ in gpu_pools]
    for place, group, best in zip(places, groups, best_configurations(one.request, groups), strict=True):
        if isinstance(best, Configuration) and work.amount is not None:
            wall[place] = work.amount / best.rate / 3600.0 + run_settings.startup / 3600.0
            hours[place] = wall[place] * (group.gpus if gpu_pools[place].owned else 1)  # An owned pool's machine is one GPU.
            requests[place] = _job_request(one, group, best)
    return Job(one.name, hours, wall, one.deadline / 3600.0, one.request.workload.traits.offline, tuple(requests))


def _job_request(one: PlannedJob, group: Group, best: Configuration) -> dict[str, Any]:
    """Return the request of `estimate` that has a job's time on a group of GPUs, in the layout chosen there."""
    training = {"micro_batch": best.micro_batch, "accumulation": best.accumulation, "checkpointing": best.checkpointing}
    return {
        **one.fields,
        "gpu": group.gpu.id,
        "gpus": group.gpus,
        "precision": best.precision,
        "parallel": KINDS["parallel"].write_text(best.parallel),
        "batch": best.batch,
        **(training if one.request.workload.training else {}),
    }
