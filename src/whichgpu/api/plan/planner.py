"""The search for a plan from a question in words: models, jobs and offers looked up, then solved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from whichgpu.api.lookup_cache import LookupCache
from whichgpu.api.recommend.offers import Requirements, select_offers
from whichgpu.api.workloads.remarks import beyond_context
from whichgpu.catalog.engines.engine import Engine
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.plan.inputs import PlanInputs, PlannedJob
from whichgpu.decide.plan.question import PlanQuestion, RequestedJob, RequestedModel
from whichgpu.decide.plan.refusal import Refusal
from whichgpu.decide.plan.search import GAP, SolvedPlan, StageProgress, search_plan
from whichgpu.decide.plan.solver.build import ServedModel
from whichgpu.decide.plan.traffic import DEFAULT_RATE, model_traffic
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.workload.spelling import fill_defaults, from_texts
from whichgpu.workload.traces.reader import kept_trace


def silent(stage: str, share: float) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans from one catalog's offers on a day, with the user's own prices (`overlay`) if given."""

    lookups: LookupCache
    day: date
    overlay: Path | None = None

    def search(self, question: PlanQuestion, progress: StageProgress = silent, gap: float = GAP) -> SolvedPlan | Refusal:
        """The cheapest fleet, or why there is none."""
        catalog = self.lookups.catalog
        models = self.models(question, progress)
        progress("estimates", 0.0)
        filters: dict[str, Any] = dict(question.filters)
        engine = None if question.jobs else _common_engine(models)
        offers = select_offers(Requirements(**filters), self.day, catalog, self.overlay, engine=engine)
        jobs = tuple(self._job(one) for one in question.jobs)
        inputs = PlanInputs(models, jobs, offers.constraints, offers.market, offers.assumptions, catalog)
        return search_plan(question, inputs, progress, gap)

    def models(self, question: PlanQuestion, progress: StageProgress = silent) -> tuple[ServedModel, ...]:
        """Every model under a unique name; a trace that several share is read once."""
        traces = list(dict.fromkeys(one.trace for one in question.models if one.trace is not None))
        for place, path in enumerate(traces):
            kept_trace(path, lambda share, at=place: progress("reading", (at + share) / len(traces)))  # type: ignore[misc]
        models, seen = [], Counter[str]()
        for one in question.models:
            seen[one.name] += 1
            name = one.name if seen[one.name] == 1 else f"{one.name} ({seen[one.name]})"
            models.append(self._model(one, name, question.seed))
        return tuple(models)

    def _model(self, model: RequestedModel, name: str, seed: int) -> ServedModel:
        """A model with its traffic and objectives, every default filled in."""
        default = {"rate": f"{DEFAULT_RATE:g}/s"} if model.trace is None and not model.hourly else {}
        spelled = from_texts({"task": "serve", "model": model.spelling, **default, **model.fields})
        shape, bare = self.lookups.shape(model.model), spelled.workload
        workload = fill_defaults(replace(bare, rate=bare.rate or DEFAULT_RATE), shape)
        given = spelled.given if "rate" in model.fields else spelled.given - {"rate"}
        rate = bare.rate if "rate" in given else None
        traffic = model_traffic(model, rate, workload.seq_in or 1, workload.seq_out or 1, seed)
        sized = replace(workload, seq_in=max(1, round(traffic.prompt)), seq_out=max(1, round(traffic.output)), rate=traffic.peak)
        objectives = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile, model.latency_max)
        engine = next((engine for engine in self.lookups.catalog.engines if engine.id == sized.engine), None)
        request = WorkloadRequest(sized, given, shape, self.lookups.calibration, bare)
        warnings = beyond_context(traffic.longest, shape)
        return ServedModel(name, request, traffic, objectives, engine, model.spelling, warnings)

    def _job(self, job: RequestedJob) -> PlannedJob:
        spelled = from_texts(dict(job.fields))
        shape = self.lookups.shape_for(spelled.workload)
        given = spelled.given | ({"batch"} if spelled.workload.steps is not None else frozenset())
        workload = fill_defaults(spelled.workload, shape, given)
        return PlannedJob(
            job.name, WorkloadRequest(workload, given, shape, self.lookups.calibration, spelled.workload), job.deadline
        )


def _common_engine(models: Sequence[ServedModel]) -> Engine | None:
    """The engine of all models if it is one: offers of GPUs it does not run on are left out."""
    engines = {one.engine for one in models}
    return engines.pop() if len(engines) == 1 else None
