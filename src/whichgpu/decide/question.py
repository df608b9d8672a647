"""A question of `recommend` on its way to candidates: what is asked, what is on offer, what each group of GPUs can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from math import ceil
from pathlib import Path

from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.messages import msg
from whichgpu.decide.candidates import Candidates, candidates
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, WorkloadRequest
from whichgpu.decide.configurations.evaluate import best_configurations
from whichgpu.decide.configurations.groups import Group, Groups, groups_of
from whichgpu.decide.market import terms_of
from whichgpu.decide.offers import OfferSelection, select_offers
from whichgpu.decide.refine import settled
from whichgpu.decide.relax import only_first
from whichgpu.decide.requirements import Requirements, check_against_task, check_percentile
from whichgpu.decide.work import SERVICE_RATE, SERVICE_TPOT, Work, work_of
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.price.run import Terms
from whichgpu.price.table import Ints
from whichgpu.workload.defaults import refuse_nonsense
from whichgpu.workload.shapes import Mlp
from whichgpu.workload.spelling import Spelled, fill_defaults

ANY_MODEL = Mlp("reference mix", (1, 1))
MACHINE = 8.0  # GPUs of one machine; more are sought over several


@dataclass(frozen=True, slots=True)
class EvaluatedQuestion:
    """What became of a question before anything is ordered."""

    asked: WorkloadRequest
    found: OfferSelection
    groups: Groups
    outcomes: list[GroupResult]
    work: Work
    offered: Terms

    def join(self, known: list[GroupResult]) -> Candidates:
        """Every offer with what its group can do."""
        return candidates(
            self.asked.workload, self.work, self.found.constraints, self.found.market, self.groups, known, self.offered
        )  # fmt: skip

    def settle(self, order: Callable[[Candidates], Ints]) -> tuple[Candidates, Ints]:
        """Candidates in an order, the first of them counted and simulated until it stays first."""

        def join(known: list[GroupResult]) -> tuple[Candidates, Ints]:
            told = self.join(known)
            return told, order(told)

        told, places, _ = settled(
            self.asked, self.groups, list(self.outcomes), join, self.found.constraints, only_first, only_first
        )
        return told, places

    def answers(self) -> bool:
        """Whether anything keeps to every wish."""
        return bool(len(self.settle(lambda told: told.order("cost", self.found.market))[1]))


@dataclass(frozen=True, slots=True)
class Question:
    """A question, which may be asked anew with something changed."""

    spelled: Spelled
    query: Requirements
    day: date
    lookups: LookupCache
    overlay: Path | None
    modelled: bool

    def evaluated(self) -> EvaluatedQuestion:
        """The question understood and every group looked at."""
        asked = self._asked()
        found = self._basket(asked)
        span, beside = found.constraints.span, self.modelled and asked.workload.rate is not None
        within = _span(self.query, span)
        groups = groups_of(found.market, self.lookups.catalog, within, several=span[1] > MACHINE, beside=beside)
        offered = terms_of(found.market)
        if self.modelled:
            work = work_of(asked.workload, asked.shape, found.constraints.duration)
            told = best_configurations(asked, groups.groups)
            if beside:
                told = [_copied(one, group, span[0]) for one, group in zip(told, groups.groups, strict=True)]
            return EvaluatedQuestion(asked, found, groups, told, work, offered)
        from whichgpu.decide.configurations.mix_amounts import AMOUNT
        from whichgpu.decide.configurations.reference_mix import mixed

        outcomes = mixed(asked.workload.task, self.day, groups.groups, self.lookups.catalog, asked.calibration)
        return EvaluatedQuestion(asked, found, groups, outcomes, Work(AMOUNT, "samples", None, True), offered)

    def answers(self) -> bool:
        """Whether there is an answer at all."""
        try:
            return self.evaluated().answers()
        except WhichGpuError:
            return False

    def _asked(self) -> WorkloadRequest:
        given, workload, lookups = self.spelled.given, self.spelled.workload, self.lookups
        if not self.modelled:
            filled = replace(workload, precision=workload.precision, engine=None)
            return WorkloadRequest(filled, given, ANY_MODEL, lookups.calibration, workload)
        if workload.serving and workload.rate is None and workload.batch is None:
            workload = replace(workload, rate=SERVICE_RATE)
        shape = lookups.shape_for(workload)
        refuse_nonsense(workload, shape)
        check_against_task(self.query, workload, given, shape.is_transformer if workload.training else shape.is_generative)
        if workload.serving and shape.is_generative and not {"tpot_max", "ttft_max", "batch"} & given:
            workload = replace(workload, tpot_max=SERVICE_TPOT)
        if workload.seq_out == 1:
            workload = replace(workload, tpot_max=None)  # nothing lies between the tokens of an answer of one
        if workload.tokens is not None and not (shape.is_language_model):
            raise UsageError("bad-field", msg("error.tokens-of-samples", model=shape.name), msg("hint.tokens-of-samples"))
        if workload.serving and shape.is_generative and workload.rate is not None:
            check_percentile(workload.percentile)
        if workload.steps is not None:
            given = given | {"batch"}
        return WorkloadRequest(fill_defaults(workload, shape, given), given, shape, lookups.calibration, self.spelled.workload)

    def _basket(self, asked: WorkloadRequest) -> OfferSelection:
        engines = self.lookups.catalog.engines if self.modelled else ()
        engine = next((one for one in engines if one.id == asked.workload.engine), None)
        slices = self.modelled and not asked.workload.training
        return select_offers(self.query, self.day, self.lookups.catalog, self.overlay, slices=slices, engine=engine)


def _copied(one: GroupResult, group: Group, least: float) -> GroupResult:
    """With as many copies at the least as make up the number of GPUs asked for."""
    fewest = ceil(least / group.size - 1e-9)
    return replace(one, fewest=fewest) if isinstance(one, Configuration) and fewest > 1 else one


def _span(query: Requirements, span: tuple[float, float]) -> tuple[float, float]:
    """One card where cards are bought and nobody says how many."""
    return (1.0, 1.0) if query.buy and query.gpus is None else span
