"""A question to `recommend`, and its state once every group of GPUs has been screened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from math import ceil
from pathlib import Path

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.units import parse_seconds
from whichgpu.catalog.engines.engine import Engine
from whichgpu.catalog.find import gpus_named, join_names
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.candidates import CandidateJoin, Candidates
from whichgpu.decide.configurations.cluster_span import CLUSTER_ENGINE, MACHINE_GPUS, ClusterSpan, training_span
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, WorkloadRequest
from whichgpu.decide.configurations.evaluate import best_configurations
from whichgpu.decide.configurations.groups import Group, Groups, groups_of, with_precisions
from whichgpu.decide.configurations.precision_choices import precisions_on
from whichgpu.decide.constraints import Quality, Risk
from whichgpu.decide.market import terms_of
from whichgpu.decide.modes import mode_of, with_mode
from whichgpu.decide.offers import OfferSelection, select_offers
from whichgpu.decide.requirements import Requirements, check_against_task, check_percentile
from whichgpu.decide.work import SERVICE_TPOT, Work, work_of
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.price.filters import split_names
from whichgpu.price.run import RunSettings
from whichgpu.workload.defaults import validate_workload
from whichgpu.workload.engine_support import with_engine_of_gpus
from whichgpu.workload.shapes import Mlp, Shape
from whichgpu.workload.spelling import ParsedWorkload, fill_defaults
from whichgpu.workload.workload import Workload

ANY_MODEL = Mlp("reference mix", (1, 1))  # This placeholder is used if the question names no model.
MIXED_PRECISION = "amp-bf16"  # All weights of language models are trained with fp32 master weights, as most recipes do.
MIN_WORK_SHARE = 0.001  # Share of a deadline that counts as time for work at least, however long machines start (assumed).
CARDS_AT_HOME = 2.0  # A desktop takes at most this many cards by default (assumed).


# Whether a number of replicas of a simulated configuration, with their scheduler limits, keep a request's objectives at a risk.
KeepsObjectives = Callable[[WorkloadRequest, Group, Configuration, SchedulerLimits, int, Risk], bool]


class EvaluatedQuestion(msgspec.Struct, frozen=True):
    """A question with its offers, and a first, approximate (screened) result of every group of GPUs."""

    request: WorkloadRequest
    selection: OfferSelection
    groups: Groups
    results: list[GroupResult]
    work: Work
    joining: CandidateJoin
    risk: Risk = "even"
    keeps_objectives: KeepsObjectives | None = None  # simulates the fleet of a leading service as that of a plan, if given

    def join(self, results: Sequence[GroupResult]) -> Candidates:
        """Return the candidates: every offer joined with the result of its group of GPUs."""
        return self.joining.candidates(results)


class Question(msgspec.Struct, frozen=True):
    """A question to `recommend`: a workload, requirements, and the day of the prices; `modelled` if it names a model."""

    spelled: ParsedWorkload
    query: Requirements
    day: date
    lookups: LookupCache
    overlay: Path | None
    modelled: bool

    def evaluated(self) -> EvaluatedQuestion:
        """Select offers, group their GPUs, and find an approximate configuration for every group; return all of these."""
        request = self._request()
        selection = self._in_clusters(request, self._at_home(self._offers(request)))
        low, high = selection.constraints.span
        replicated = self.modelled and request.workload.rate is not None
        if self.query.buy and self.query.gpus is None:
            is_text = self.modelled and request.workload.generating and request.shape.is_generative
            low, high = 1.0, CARDS_AT_HOME if is_text else 1.0  # A picture is made on one card.
        span = (low, high)
        groups = groups_of(
            selection.market, self.lookups.catalog, span, several=high > MACHINE_GPUS, separate_machines=replicated
        )
        if self.modelled:
            groups = with_precisions(groups, self._precisions(request, selection.constraints.quality))
            work = work_of(request.workload, request.shape, selection.constraints.duration)
            results = best_configurations(request, groups.groups)
            if replicated:
                results = [_with_min_replicas(one, group, low) for one, group in zip(results, groups.groups, strict=True)]
            return self._with_results(request, selection, groups, results, work)
        from whichgpu.decide.configurations.reference_mix import AMOUNT, mix_results

        results = mix_results(request.workload.task, self.day, groups.groups, self.lookups.catalog, request.calibration)
        return self._with_results(request, selection, groups, results, Work(AMOUNT, "samples", None, True))

    @staticmethod
    def _with_results(
        request: WorkloadRequest, selection: OfferSelection, groups: Groups, results: list[GroupResult], work: Work
    ) -> EvaluatedQuestion:
        market = selection.market
        joining = CandidateJoin(request.workload, work, selection.constraints, market, groups, terms_of(market))
        return EvaluatedQuestion(request, selection, groups, results, work, joining)

    def _request(self) -> WorkloadRequest:
        """Return the workload with defaults filled in; raise an error if it contradicts itself or the requirements."""
        stated, workload, lookups = self.spelled.user_fields, self.spelled.workload, self.lookups
        if not self.modelled:
            return WorkloadRequest(replace(workload, engine=None), stated, ANY_MODEL, lookups.calibration, workload)
        workload, with_batch = with_mode(workload, self.query, stated)
        shape = lookups.shape_for(workload)
        validate_workload(workload, shape)
        check_against_task(self.query, workload, stated, shape.is_transformer if workload.training else shape.is_generative)
        if workload.serving and shape.is_generative and not {"tpot_max", "ttft_max", "batch"} & stated:
            workload = replace(workload, tpot_max=SERVICE_TPOT)
        stated = with_batch
        if workload.seq_out == 1:
            workload = replace(workload, tpot_max=None)  # An answer of one token has no time between tokens.
        if workload.tokens is not None and not shape.is_language_model:
            raise UsageError("bad-field", msg("error.tokens-of-samples", model=shape.name), msg("hint.tokens-of-samples"))
        if workload.serving and shape.is_generative and workload.rate is not None:
            check_percentile(workload.percentile)
        if workload.steps is not None:
            stated = stated | {"batch"}
        if _trains_all_weights(workload, shape) and "precision" not in stated and workload.year is None:
            workload = replace(workload, precision=MIXED_PRECISION)
        workload = with_engine_of_gpus(workload, shape, self._named_gpus(), lookups.catalog.engines)
        filled = fill_defaults(workload, shape, stated)
        span = self._cluster_span(filled, shape) if "engine" not in stated and workload.year is None else None
        if span is not None and span.several_machines:
            filled = fill_defaults(replace(workload, engine=CLUSTER_ENGINE), shape, stated)
        return WorkloadRequest(filled, stated, shape, lookups.calibration, self.spelled.workload)

    def _at_home(self, selection: OfferSelection) -> OfferSelection:
        """Return the offers with 4-bit precisions allowed if one user buys cards, since they are usual there."""
        if not (self.query.buy and self.query.quality is None and mode_of(self.spelled.workload, self.query) == "me"):
            return selection
        constraints = replace(selection.constraints, quality="any")
        return replace(selection, constraints=constraints, assumptions=(*selection.assumptions, msg("assumed.quality-home")))

    def _in_clusters(self, request: WorkloadRequest, selection: OfferSelection) -> OfferSelection:
        """Return the offers with more GPUs than one machine has, if a training run needs them and no number is given."""
        constraints = selection.constraints
        if self.query.gpus is not None or self.query.buy or not self.modelled:
            return selection
        span = self._cluster_span(request.workload, request.shape)
        if span is None:
            return selection
        assumed = msg("assumed.cluster", needed=f"{ceil(span.needed):,}", most=f"{int(span.high):,}")
        constraints = replace(constraints, gpus=(span.low, span.high))
        return replace(selection, constraints=constraints, assumptions=(*selection.assumptions, assumed))

    def _cluster_span(self, workload: Workload, shape: Shape) -> ClusterSpan | None:
        """Return how many GPUs to search for training all weights of a language model; None if one machine may do."""
        if not _trains_all_weights(workload, shape):
            return None
        deadline = self.query.deadline
        seconds = parse_seconds(deadline) if isinstance(deadline, str) else deadline
        if seconds is not None:  # Part of the time goes to the start of the machines.
            seconds = max(seconds - RunSettings().startup, MIN_WORK_SHARE * seconds)
        return training_span(shape, work_of(workload, shape, None).amount, seconds)

    def _precisions(self, request: WorkloadRequest, quality: Quality) -> Callable[[Gpu], Mapping[str, str]]:
        """Return a function that gives the precisions to try on a GPU, each with the level of quality it keeps."""
        engine = self._engine(request)
        return lambda gpu: precisions_on(request, gpu, engine, self.day, quality)

    def _engine(self, request: WorkloadRequest) -> Engine | None:
        """Return the catalog's entry of the request's engine."""
        return next((one for one in self.lookups.catalog.engines if one.id == request.workload.engine), None)

    def _named_gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that the requirements name; empty if they name none."""
        if not self.query.gpu:
            return ()
        catalog = self.lookups.catalog
        names = join_names(split_names(self.query.gpu), lambda text: gpus_named(catalog, text))
        return tuple({gpu.id: gpu for name in names for gpu in gpus_named(catalog, name)}.values())

    def _offers(self, request: WorkloadRequest) -> OfferSelection:
        engine = self._engine(request) if self.modelled else None
        slices = self.modelled and not request.workload.training
        for_service = self.modelled and request.workload.rate is not None
        return select_offers(self.query, self.day, self.lookups.catalog, self.overlay, slices, engine, for_service)


def _trains_all_weights(workload: Workload, shape: Shape) -> bool:
    """Return whether every weight of a language model is trained, rather than adapters."""
    return workload.training and shape.is_language_model and not trains_adapters(workload)


def trains_adapters(workload: Workload) -> bool:
    """Return whether only adapters are trained (LoRA, QLoRA)."""
    return workload.training and bool(workload.lora_rank or workload.qlora)


def _with_min_replicas(result: GroupResult, group: Group, min_gpus: float) -> GroupResult:
    """Return the group's result with at least as many replicas as fill the required minimum of GPUs."""
    replicas = ceil(min_gpus / group.size - 1e-9)
    return replace(result, min_replicas=replicas) if isinstance(result, Configuration) and replicas > 1 else result
