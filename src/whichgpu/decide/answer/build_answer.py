"""Build the answer of `recommend` from ranked candidates: rows, reasons, advice, sources, and commands that reproduce it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount, significant
from whichgpu.catalog.host import Instance, Source
from whichgpu.catalog.live.overlay import NAME as OVERLAY
from whichgpu.decide.answer import explain
from whichgpu.decide.answer.adapters import qlora_note
from whichgpu.decide.answer.api_costs import api_comparison
from whichgpu.decide.answer.host_fit import build_advice, host_advice
from whichgpu.decide.answer.longest_context import longest_context
from whichgpu.decide.answer.missing_support import missing_support, missing_support_sources
from whichgpu.decide.answer.narrowing import narrowing
from whichgpu.decide.answer.near_miss import near_misses
from whichgpu.decide.answer.other_engines import other_engines
from whichgpu.decide.answer.precision_steps import PrecisionStep, precision_steps
from whichgpu.decide.answer.purchases import best_unsupported, left_out, other_purchases
from whichgpu.decide.answer.recommend_answer import RecommendAnswer, Rejected
from whichgpu.decide.answer.safest import measured_alternative, safest_of
from whichgpu.decide.answer.sentences import (
    assumptions,
    commitments,
    gpu_for_task,
    gpu_in_precision,
    long_inputs,
    missing_commitments,
    near_limits,
    run_words,
    sentence,
    sentence_of_pictures,
    sentence_starved,
    warnings,
    work_kind,
)
from whichgpu.decide.answer.spot_shares import spot_shares
from whichgpu.decide.answer.workload_reasons import machine_too_small, workload_reasons
from whichgpu.decide.candidate import Candidate, build_candidate, group_at, money, term_lines
from whichgpu.decide.configurations.configuration import Configuration
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.configurations.reference_mix import indices
from whichgpu.decide.constraints import Rank
from whichgpu.decide.modes import Mode, mode_assumptions, mode_of, sentence_of_mode
from whichgpu.decide.question import EvaluatedQuestion, Question
from whichgpu.decide.recommend import RankedCandidates
from whichgpu.decide.reproduce import reproduce
from whichgpu.decide.shortlist import best_by_quality, best_of, shortlist
from whichgpu.decide.work import running_sequences
from whichgpu.estimate.fit import required_memory
from whichgpu.estimate.loading import loading
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.nearest_evidence import NearEvidence, nearest_evidence
from whichgpu.estimate.own_records import own_record_note
from whichgpu.estimate.serving.summary import enough_requests
from whichgpu.price.billing import billing_on, extras_sources
from whichgpu.price.own import host_price
from whichgpu.price.run import SPOT_SOURCES
from whichgpu.price.sellers import cite_sources, unknown_seller
from whichgpu.workload.denoisers import counts_steps, denoiser, denoiser_note, pipeline_of
from whichgpu.workload.hf.published import quantisation_warnings
from whichgpu.workload.models import built_in_member
from whichgpu.workload.shapes import Shape
from whichgpu.workload.spelling import echo
from whichgpu.workload.unused import beyond_context, unused
from whichgpu.workload.workload import Workload

NOTABLY_CHEAPER = 0.97  # Share of the answer's cost below which a less reliable candidate is named (assumed).
UNABLE = "verify-note.unable"  # Id of the note on a command that `measure` cannot run.
VERIFY_GPU = "whichgpu measure"  # Without a model there is no step to run, so the GPU itself is measured.
# Type of a function that returns the command that measures a workload at a concurrency, and a note on what it covers.
Verify = Callable[[Workload, Shape, int], tuple[str, Message]]


class AnswerBuilder(msgspec.Struct, frozen=True):
    """Builds the answer to one `recommend` question from its ranked candidates, of which at least one meets every limit."""

    question: Question
    screened: EvaluatedQuestion
    ranked: RankedCandidates
    rank: Rank
    verify: Verify

    def answer(self, compared_gpus: Sequence[str], limit: int, requested: Sequence[Sequence[str]] = ()) -> RecommendAnswer:
        """Return the answer with up to `limit` rows; it also says why each GPU id in `compared_gpus` is not the answer.

        `requested` are the ids of each name of a GPU in the question; a name without a row gets a reason.
        """
        candidates, order = self.ranked.candidates, self.ranked.order
        screened, request, market, modelled = self.screened, self.screened.request, self.screened.selection.market, self._modelled
        explained = [*compared_gpus, *(id for ids in requested for id in ids)]
        picked = shortlist(candidates, order, screened.groups, market, limit, explained)
        first, *others = picked.listed
        measured_at = measured_alternative(candidates, order, screened)
        others_at = other_purchases(candidates, order, screened)
        unsupported_at = best_unsupported(candidates, order, screened)
        rows = {at: self._row(at) for at in dict.fromkeys((*picked.all, *measured_at, *others_at, *unsupported_at))}
        best, second = rows[first], rows[others[0]] if others else None
        rows = {at: self._explained(at, one, second if one is best else best) for at, one in rows.items()}
        best = self._with_preference(rows[first], [rows[at] for at in others], rows[picked.cheapest])
        rows[first] = best
        group, configuration = group_at(first, candidates, screened)
        listed = {rows[at].gpu for at in picked.listed}
        compared_gpus = list(dict.fromkeys([*compared_gpus, *(ids[0] for ids in requested if ids and listed.isdisjoint(ids))]))
        catalog = self.question.lookups.catalog
        engine = next((one for one in catalog.engines if one.id == request.workload.engine), None)
        verify, verify_note = self._verify(best)
        steps = tuple(self._precision_steps())
        near = self._evidence(best) if modelled else NearEvidence()
        missing = missing_support(group.gpu, request.workload, modelled and request.shape.is_generative)
        return RecommendAnswer(
            request=self._echo(), as_of=self.question.day.isoformat(), rank=self.rank, risk=screened.risk,
            kind=work_kind(modelled, screened.work),
            answer=best, sentence=self._headline(first, best), runner_up=rows[others[0]] if others else None,
            cheapest=rows[picked.cheapest], fastest=rows[picked.fastest], safest=safest_of(list(rows.values())),
            measured=next((rows[at] for at in measured_at), None),
            candidates=tuple(rows[at] for at in picked.listed), pareto=tuple(rows[at] for at in picked.front),
            fallback=None if picked.without_spot is None else rows[picked.without_spot],
            with_cuda=None if picked.with_cuda is None else rows[picked.with_cuda],
            shares=spot_shares(first, best, candidates, screened.joining.terms),
            other_purchases=tuple(rows[at] for at in others_at),
            left_out=(
                *left_out(best, next((rows[at] for at in unsupported_at), None), self.ranked, screened),
                *(machine_too_small(best, self.ranked, screened) if modelled else ()),
                *near_misses(best, [rows[at] for at in picked.listed], request.workload.rate),
                *commitments(best, [rows[at] for at in picked.listed], screened.work),
                *api_comparison(best, request.workload, screened.work, screened.selection.constraints.api_prices),
            ),
            precisions=steps, any_seller=self._any_seller(best),
            engines=other_engines(request, group, configuration, catalog.engines) if modelled else (),
            considered=candidates.considered, rejected=Rejected(dict(candidates.rejected.most_common()), ()),
            why_not=self._why_not(compared_gpus, best, rows), host=self._host(first, best), lacks=missing,
            assumptions=(
                *self._reading(), *assumptions(best, group.gpu, screened, self.rank, modelled),
                *explain.order_rules(self.ranked.candidates, self.ranked.order), *screened.selection.assumptions,
            ),
            warnings=(*self._seller_warnings(best), *self._owned_quality(first, best),
                *warnings(best, group.gpu, engine, request.workload), *self._cards_alone(best),
                *own_record_note(best.time.sources),
                *(() if request.workload.training else quantisation_warnings(request.shape, best.precision)),
                *self._remarks(best, configuration), *missing_commitments([rows[at] for at in picked.listed], screened.work)),
            evidence=near.nearest, evidence_error=near.error,
            sources=self._sources(rows.values(), missing, steps), verify=verify, verify_note=verify_note,
            narrow=self._narrow(best, verify, verify_note),
            reproduce=reproduce(self.question), curve=configuration.curve, terms=term_lines(best, market),
            context=self._context(best),
        )  # fmt: skip

    @property
    def _modelled(self) -> bool:
        return self.question.modelled

    @property
    def _mode(self) -> Mode | None:
        return mode_of(self.question.spelled.workload, self.question.query) if self._modelled else None

    @property
    def _serving(self) -> bool:
        return self.screened.work.hours is not None

    def _reading(self) -> tuple[Message, ...]:
        """Return how the question was read: the member meant by a model's family name, and the mode of a service."""
        typed, name = self.question.spelled.workload.model, self.screened.request.shape.name
        member = isinstance(typed, str) and self._modelled and built_in_member(typed, self.question.lookups.catalog) == name
        family = (msg("assumed.family-member", typed=typed, model=name),) if member else ()
        return (*family, *mode_assumptions(self._mode, self.question.query))

    def _seller_warnings(self, best: Candidate) -> tuple[Message, ...]:
        warning = unknown_seller(self.question.lookups.catalog, best.provider, best.source)
        return () if warning is None else (warning,)

    def _owned_quality(self, at: int, best: Candidate) -> tuple[Message, ...]:
        """Return a note if GPUs that the user owns lead in a precision that costs more quality than the question allows."""
        if not self.ranked.candidates.below_quality[at]:
            return ()
        return (msg("recommend.owned-quality", precision=best.precision, quality=self.screened.selection.constraints.quality),)

    def _cards_alone(self, best: Candidate) -> tuple[Message, ...]:
        """Return a note that the price of cards to buy is without a computer, and that of a list may not be a shop's."""
        selection = self.screened.selection
        card = selection.purchase.get(best.gpu)
        if card is None or card.whole_machine:
            return ()
        host = money(host_price(float(card.price) * best.gpus) * selection.market.rate, selection.constraints.currency)
        id = "recommend.may-cost-list" if card.basis == "list" else "recommend.cards-alone"
        return (msg(id, host=format_amount(host.amount), currency=host.currency),)

    def _remarks(self, best: Candidate, configuration: Configuration) -> tuple[Message, ...]:
        """Return notes on flags without effect, limits missed at the slow end of the 90% range, and few simulated requests."""
        request, workload = self.screened.request, self.screened.request.workload
        tokens = (workload.seq_in or 0) + (0 if workload.training else workload.seq_out or 0)
        remarks = (
            *denoiser_note(workload, request.shape),
            *(unused(workload, request.shape, request.stated) if self._modelled else ()),
            *beyond_context(tokens, request.shape),
            *long_inputs(best, workload, configuration.prefill),
            *(qlora_note(request) if self._modelled else ()),
            *near_limits(best, self.screened.selection.constraints, self.screened.work, workload),
        )
        if best.simulated is None or enough_requests(best.simulated, workload.percentile):
            return remarks
        beyond = f"{best.simulated * (100.0 - workload.percentile) / 100.0:.0f}"
        return (*remarks, msg("recommend.thin", percentile=f"{workload.percentile:g}", n=best.simulated, beyond=beyond))

    def _row(self, at: int) -> Candidate:
        one = build_candidate(at, self.ranked.candidates, self.screened)
        selection = self.screened.selection
        card = selection.purchase.get(one.gpu)
        if card is None:
            return one
        paid = money(float(card.price) * one.gpus * selection.market.rate, selection.constraints.currency)
        return replace(one, purchase=paid, purchase_basis=card.basis, purchase_day=card.day)

    def _explained(self, at: int, one: Candidate, other: Candidate | None) -> Candidate:
        billed = None if self._serving or not self._modelled else explain.billed_reason(at, self.ranked.candidates)
        request = self.screened.request
        every = self.screened.selection.constraints.run_settings.checkpoint_every
        because = explain.reasons(one, other, request.workload, self._serving, self._memory_reason(one), billed, every)
        group, _ = group_at(at, self.ranked.candidates, self.screened)
        more = tuple(workload_reasons(one, request, group)) if self._modelled else ()
        constraints = self.screened.selection.constraints
        if (limit := constraints.max_watts) is not None and one.watts is not None:
            id = "because.power" if constraints.pue == 1.0 else "because.power-room"
            more = (*more, msg(id, power=f"{one.watts:,.0f}", limit=f"{limit:,.0f}", pue=f"{constraints.pue:g}"))
            if one.tpot is not None:
                more = (*more, msg("because.joules", n=significant(one.throughput.value / one.watts, 2)))
        return replace(one, because=(because[0], *more, *because[1:]))

    def _memory_reason(self, one: Candidate) -> Message:
        """Return the memory that each GPU needs; of a service with the KV cache of the sequences that run at its load."""
        request = self.screened.request
        if not (self._serving and one.tpot is not None):
            return explain.memory_reason(one, request.workload, None, one.needed.value)
        running, gpu = self._concurrency(one), self.question.lookups.catalog.gpu_by_id[one.gpu]
        stored = with_precision(request.workload, one.precision, request.stated)
        workload = replace(self._replica(one, stored), batch=running * one.parallel.dp, micro_batch=None)
        needed = required_memory(estimate_memory(workload, request.shape, gpu), workload)
        return explain.memory_reason(one, request.workload, running, needed.value)

    def _context(self, best: Candidate) -> int | None:
        """Return the longest context that a service can be started with; None for other questions."""
        request = self.screened.request
        if not (self._serving and best.tpot is not None):
            return None
        stored = with_precision(request.workload, best.precision, request.stated)
        gpu = self.question.lookups.catalog.gpu_by_id[best.gpu]
        return longest_context(replace(self._replica(best, stored), batch=best.parallel.dp), request.shape, gpu)

    def _with_preference(self, best: Candidate, listed: Sequence[Candidate], cheapest: Candidate) -> Candidate:
        """Return the answer with reasons why the next candidate and the cheapest one are not it, if they cost less.

        Another listed one that is much faster for little more money is named as well.
        """
        second = listed[0] if listed else None
        tied = None if self.ranked.tied_with is None else self._row(self.ranked.tied_with)
        others = {explain.offer_of(one): one for one in (tied, second, cheapest) if one is not None}
        reasons = {}
        for offer, one in others.items():
            is_tied = tied is not None and offer == explain.offer_of(tied)
            reasons[offer] = explain.cheaper_reason(best, one, self.ranked.tie_reason if is_tied else "")
        is_explained = second is not None and reasons[explain.offer_of(second)] is not None
        faster = explain.faster_reason(best, listed, self.screened.request.workload.rate) if self._modelled else None
        is_explained = is_explained or faster is not None
        because = [reason for reason in best.because if not (is_explained and reason.id.startswith(explain.COMPARED))]
        return replace(best, because=(*because, *(reason for reason in (faster, *reasons.values()) if reason is not None)))

    def _why_not(self, gpus: Sequence[str], best: Candidate, rows: Mapping[int, Candidate]) -> dict[str, tuple[Message, ...]]:
        candidates, order, results = self.ranked.candidates, self.ranked.order, self.ranked.results
        why = {}
        for gpu in (self.question.lookups.catalog.gpu_by_id[id] for id in gpus):
            at = best_of(gpu.id, candidates, self.screened.groups, order)
            row = None if at is None else rows[at]
            why[gpu.id] = explain.why_not(gpu.id, gpu.name, candidates, self.screened.groups, results, best, row, self._serving)
        return why

    def _headline(self, at: int, best: Candidate) -> Message:
        """Return the answer as one sentence, with a warning if the catalog does not know the seller."""
        plain, unknown = self._sentence(at, best), self._seller_warnings(best)
        return msg("offers.with-warning", what=plain, warnings=unknown) if unknown else plain

    def _sentence(self, at: int, best: Candidate) -> Message:
        """Return the answer as one sentence (`at`: index of `best`); for training on images, also if the CPUs load too slowly."""
        request = self.screened.request
        with_task = gpu_for_task(best, request.workload, request.shape.name, self._mode)
        gpu = with_task if self._modelled else gpu_in_precision(best)
        only_first = best.ttft is not None and request.workload.ttft_max is not None and request.workload.tpot_max is None
        run = run_words(self.screened.work, request.workload)
        plain = sentence(best, work_kind(self._modelled, self.screened.work), gpu, run, only_first and best.tpot is not None)
        is_chat = not getattr(request.shape, "encoder_layers", 0)  # Nobody chats with a model that transcribes or translates.
        chat_speed = 1.0 / best.tpot.value if best.tpot is not None and is_chat else None
        plain = sentence_of_mode(plain, self._mode, self.question.query, chat_speed)
        if counts_steps(request.workload, request.shape):
            return msg(f"recommend.sentence-{denoiser(request.shape)}", what=plain)
        if self._modelled and pipeline_of(request.workload, request.shape) is not None:
            return sentence_of_pictures(plain, best)
        machine = self._machine(best)
        on_images = self._modelled and request.workload.training and request.shape.reads_images
        if not (on_images and machine and machine.vcpus):
            return plain
        rate, vcpus = self.ranked.candidates.configuration_at(at).rate, float(machine.vcpus) * best.machines
        loaded = loading(rate, vcpus)
        if best.purchase is not None or loaded.fed is None or loaded.fed.value >= rate:
            return plain
        slow = self.ranked.candidates.stretched(at, (rate / loaded.fed.value,))
        with_dali = loading(rate, vcpus, "dali-gpu")
        return sentence_starved(plain, best, loaded, with_dali, vcpus, float(slow.hours[0]), float(slow.cost[0]))

    def _machine(self, best: Candidate) -> Instance | None:
        """Return the catalog's entry for the candidate's machine; None if the catalog does not describe it."""
        machines = {(one.provider, one.instance): one for one in self.question.lookups.catalog.instances}
        return machines.get((best.provider, best.instance))

    def _host(self, at: int, best: Candidate) -> tuple[Message, ...]:
        group, configuration = group_at(at, self.ranked.candidates, self.screened)
        if best.purchase is not None:
            return build_advice(group.gpu, group.gpus)
        return host_advice(self.screened.request, group, configuration, self._machine(best), best.provider, best.term)

    def _echo(self) -> dict[str, Any]:
        request = self.screened.request
        echoed = echo(request.workload, request.stated)
        if not self._modelled:
            echoed |= {"model": None, "mix": list(indices(request.workload.task, self.question.day))}
        return echoed | {"wishes": self.screened.selection.spelled}

    def _any_seller(self, best: Candidate) -> Candidate | None:
        """Return the best candidate from any seller and on any card, if it costs clearly less than the answer."""
        order = self.ranked.waived["seller"]
        if not len(order) or "seller" not in self.ranked.candidates.missed:
            return None
        one = self._row(int(order[0]))
        return one if float(one.cost.amount) < float(best.cost.amount) * NOTABLY_CHEAPER else None

    def _precision_steps(self) -> list[PrecisionStep]:
        """Return what each level of quality costs and saves."""
        candidates, request = self.ranked.candidates, self.screened.request
        best = best_by_quality(candidates, self.ranked.waived["quality"], self.screened.groups)
        first = int(self.ranked.order[0])
        best[self.screened.groups.groups[int(candidates.group[first])].quality] = first
        by_quality = {name: build_candidate(at, candidates, self.screened) for name, at in best.items()} if len(best) > 1 else {}
        quality = self.screened.selection.constraints.quality
        return precision_steps(by_quality, quality, request.shape.name, self.question.lookups.catalog, self._serving)

    def _sources(
        self, rows: Iterable[Candidate], missing: tuple[Message, ...], steps: Iterable[PrecisionStep]
    ) -> tuple[Source, ...]:
        rows, catalog = list(rows), self.question.lookups.catalog
        best, run_settings = rows[0], self.screened.selection.constraints.run_settings
        spot = SPOT_SOURCES if any(row.term == "spot" for row in rows) else ()
        billing = billing_on(best.provider, self.question.day, best.instance).sources
        charged = [name for name, size in (("disk", run_settings.disk_gb), ("egress", run_settings.egress_gb)) if size]
        discounted = [OVERLAY for row in rows if row.provider in self.screened.selection.discounted]
        prices = (*(row.source for row in rows), *discounted)
        return cite_sources(
            catalog, prices, spot, tuple(catalog.gpu_by_id[best.gpu].sources)[:2], best.time.sources, billing,
            extras_sources(best.provider, charged), missing_support_sources(missing), *(step.sources for step in steps),
        )  # fmt: skip

    def _verify(self, best: Candidate) -> tuple[str, Message]:
        """Return the command that measures one step of the answer on its hardware, and a note on what it does not cover."""
        if not self._modelled:
            return VERIFY_GPU, msg("verify-note.gpu")
        request = self.screened.request
        return self.verify(self._replica(best, request.bare), request.shape, self._concurrency(best))

    def _narrow(self, best: Candidate, verify: str, note: Message) -> Message | None:
        """Return the measurement that would narrow the range of the answer most; None without a model."""
        if not self._modelled:
            return None
        bare = self.screened.request.bare
        replica = replace(self._replica(best, bare), rate=self.screened.request.workload.rate, batch=bare.batch)
        return narrowing(best, replica, None if note.id == UNABLE else verify)

    def _evidence(self, best: Candidate) -> NearEvidence:
        """Return the measurements nearest to one replica of the answer."""
        request, catalog = self.screened.request, self.question.lookups.catalog
        workload = replace(self._replica(best, request.workload), batch=self._concurrency(best))
        return nearest_evidence(workload, request.shape, catalog.gpu_by_id[best.gpu], catalog)

    def _replica(self, best: Candidate, workload: Workload) -> Workload:
        """Return the workload of one replica of a candidate."""
        return replace(
            workload, gpu=best.gpu, gpus=max(1, int(best.gpus / best.copies)), parallel=best.parallel,
            precision=best.precision, batch=best.batch, micro_batch=best.micro_batch, accumulation=best.accumulation,
            checkpointing=best.checkpointing, rate=None,
        )  # fmt: skip

    def _concurrency(self, best: Candidate) -> int:
        """Return the sequences one replica runs at once: the mean at the given request rate, else the batch per replica."""
        workload, share = self.screened.request.workload, max(1, best.batch // best.parallel.dp)
        if workload.rate is None or best.ttft is None:
            return share
        rate, tpot = workload.rate / (best.copies * best.parallel.dp), best.tpot.value if best.tpot else 0.0
        return running_sequences(rate, best.ttft.value, tpot, workload.seq_out or 1, share)
