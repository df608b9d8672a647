"""From candidates in order to the reply: who is shown, beside what, with which sources and commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from shlex import join
from typing import Any
from urllib.parse import urlencode

from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.catalog.host import Instance, Source
from whichgpu.decide.answer import explain
from whichgpu.decide.answer.host_fit import build_advice, host_advice
from whichgpu.decide.answer.missing_support import lacks, lacks_sources
from whichgpu.decide.answer.other_engines import alternatives
from whichgpu.decide.answer.recommend_answer import RecommendAnswer, Rejected, Reproduce
from whichgpu.decide.answer.sentences import assumptions, kind_of, near_limits, sentence, starved, warnings
from whichgpu.decide.answer.spot_shares import shares
from whichgpu.decide.candidate import Candidate, build_candidate, group_at, money, term_lines
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import GroupResult, WorkloadRequest
from whichgpu.decide.configurations.groups import Groups
from whichgpu.decide.configurations.mix_amounts import indices
from whichgpu.decide.constraints import Rank
from whichgpu.decide.market import machine_of
from whichgpu.decide.offers import OfferSelection
from whichgpu.decide.shortlist import best_of, rows_of
from whichgpu.decide.work import Work, running_sequences
from whichgpu.estimate.loading import loading
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.serving.summary import enough_requests
from whichgpu.price.billing import billing_on, extras_sources
from whichgpu.price.run import SPOT_SOURCES
from whichgpu.price.table import Ints
from whichgpu.workload.context_limit import beyond_context
from whichgpu.workload.denoisers import counts_steps, denoiser, denoiser_note
from whichgpu.workload.kinds import KINDS
from whichgpu.workload.shapes import Shape
from whichgpu.workload.spelling import echo, to_argv
from whichgpu.workload.unused import unused
from whichgpu.workload.workload import Workload

PAGE = "/recommend"
VERIFY_GPU = "whichgpu measure"  # measures the GPU itself, if there is no step to run
Verify = Callable[[Workload, Shape, int], tuple[str, Message]]


@dataclass(frozen=True, slots=True)
class Telling:
    """All that is known, on its way to being an answer."""

    asked: WorkloadRequest
    found: OfferSelection
    groups: Groups
    outcomes: Sequence[GroupResult]
    told: Candidates
    order: Ints
    rank: Rank
    work: Work
    lookups: LookupCache
    modelled: bool
    verify: Verify
    overlay: Path | None = None  # the file of own prices the user named

    def answer(self, asked_after: Sequence[str], limit: int) -> RecommendAnswer:
        """The reply."""
        told, market, asked = self.told, self.found.market, self.asked
        picked = rows_of(told, self.order, self.groups, market, limit, asked_after)
        places, cheapest, fastest, front = picked.listed, picked.cheapest, picked.fastest, picked.front
        spare, able = picked.spare, picked.able
        rows = {place: self._row(place) for place in picked.all}
        best, second = rows[places[0]], rows[places[1]] if len(places) > 1 else None
        rows = {place: self._explained(place, one, second if one is best else best) for place, one in rows.items()}
        best = rows[places[0]]
        group, way = group_at(places[0], told, self.groups)
        engine = next((one for one in self.lookups.catalog.engines if one.id == asked.workload.engine), None)
        verify, verify_note = self._verify(best)
        speaking = self.modelled and asked.shape.is_generative
        lacking = lacks(group.gpu, asked.workload, speaking)
        return RecommendAnswer(
            request=self._echo(), as_of=self.found.constraints.day.isoformat(), rank=self.rank, kind=kind_of(self.modelled,
            self.work),
            answer=best, sentence=self._sentence(places[0], best),
            runner_up=rows[places[1]] if len(places) > 1 else None, cheapest=rows[cheapest], fastest=rows[fastest],
            candidates=tuple(rows[place] for place in places), pareto=tuple(rows[place] for place in front),
            fallback=rows[spare] if spare is not None else None, with_cuda=rows[able] if able is not None else None,
            shares=shares(places[0], best, told, market),
            engines=alternatives(asked, group, way, self.lookups.catalog.engines) if self.modelled else (),
            considered=told.considered, rejected=Rejected(dict(told.rejected.most_common()), ()),
            why_not=self._why_not(asked_after, best, rows), host=self._host(places[0], best), lacks=lacking,
            assumptions=(*assumptions(best, group.gpu, asked, self.found.constraints, self.work, self.rank, self.modelled),
                         *self.found.assumptions),
            warnings=(*warnings(best, group.gpu, engine, asked.workload), *self._remarks(best)),
            sources=self._sources(rows.values(), lacking),
            verify=verify, verify_note=verify_note, reproduce=self._reproduce(), curve=way.curve, terms=term_lines(best, market),
        )  # fmt: skip

    def _remarks(self, best: Candidate) -> tuple[Message, ...]:
        """Flags that change nothing; limits within the range of the answer; a percentile that few requests lie beyond."""
        workload = self.asked.workload
        said = unused(workload, self.asked.shape, self.asked.given) if self.modelled else ()
        said = (*denoiser_note(workload, self.asked.shape), *said)
        tokens = (workload.seq_in or 0) + (0 if workload.training else workload.seq_out or 0)
        said = (*said, *beyond_context(tokens, self.asked.shape))
        said = (*said, *near_limits(best, self.found.constraints, self.work, self.asked.workload))
        if best.simulated is None or enough_requests(best.simulated, workload.percentile):
            return said
        beyond = f"{best.simulated * (100.0 - workload.percentile) / 100.0:.0f}"
        return (*said, msg("recommend.thin", percentile=f"{workload.percentile:g}", n=best.simulated, beyond=beyond))

    def _row(self, place: int) -> Candidate:
        one = build_candidate(
            place, self.told, self.found.market, self.groups, self.asked, self.work, self.found.constraints.currency
        )
        paid = self.found.purchase.get(one.gpu)
        return one if paid is None else replace(one, purchase=self._paid(paid, one))

    def _paid(self, price: Decimal, one: Candidate) -> Money:
        return money(float(price) * one.gpus * self.found.market.rate, self.found.constraints.currency)

    def _explained(self, place: int, one: Candidate, other: Candidate | None) -> Candidate:
        serving = self.work.hours is not None
        billed = None if serving or not self.modelled else explain.billed_of(place, self.told)
        return replace(one, because=explain.because(one, other, self.asked.workload, serving, self._listed(one), billed))

    def _listed(self, one: Candidate) -> str | None:
        """The day of a card's list price; None where the user gave its price."""
        return None if one.gpu in self.found.given else self.lookups.catalog.gpu_by_id[one.gpu].launch_date

    def _why_not(self, asked: Sequence[str], best: Candidate, rows: Mapping[int, Candidate]) -> dict[str, tuple[Message, ...]]:
        why = {}
        for gpu in (self.lookups.catalog.gpu_by_id[id] for id in asked):
            at = best_of(gpu.id, self.told, self.groups, self.order)
            row = rows.get(at) or self._row(at) if at is not None else None
            serving = self.work.hours is not None
            why[gpu.id] = explain.why_not(gpu.id, gpu.name, self.told, self.groups, self.outcomes, best, row, serving)
        return why

    def _sentence(self, place: int, best: Candidate) -> Message:
        """The answer, and at once what holds it up where its host cannot feed its GPUs."""
        said = sentence(best, kind_of(self.modelled, self.work), self._listed(best))
        if counts_steps(self.asked.workload, self.asked.shape):
            return msg(f"recommend.sentence-{denoiser(self.asked.shape)}", what=said)
        machine = self._machine(place)
        if not (self.modelled and self.asked.workload.training and self.asked.shape.reads_images and machine and machine.vcpus):
            return said
        _, way = group_at(place, self.told, self.groups)
        vcpus = float(machine.vcpus) * best.machines
        fed, rate = loading(way.rate, vcpus), way.rate
        if best.purchase is not None or fed.fed is None or fed.fed.value >= rate:
            return said
        slow = self.told.stretched(place, (rate / fed.fed.value,))
        return starved(said, best, fed, loading(rate, vcpus, "dali-gpu"), vcpus, float(slow.hours[0]), float(slow.cost[0]))

    def _machine(self, place: int) -> Instance | None:
        machines = {(one.provider, one.instance): one for one in self.lookups.catalog.instances}
        return machine_of(self.found.market, int(self.told.offer[place]), machines)

    def _host(self, place: int, best: Candidate) -> tuple[Message, ...]:
        group, way = group_at(place, self.told, self.groups)
        if best.purchase is not None:
            return build_advice(group.gpu, group.gpus)
        machine = self._machine(place)
        return host_advice(self.asked.workload, group, way, machine, best.provider, self.asked.shape.reads_images, best.term)

    def _echo(self) -> dict[str, Any]:
        told = echo(self.asked.workload, self.asked.given)
        if not self.modelled:
            told |= {"model": None, "mix": list(indices(self.asked.workload.task, self.found.constraints.day))}
        return told | {"wishes": self.found.spelled}

    def _sources(self, rows: Iterable[Candidate], lacking: tuple[Message, ...]) -> tuple[Source, ...]:
        rows = list(rows)
        spot = SPOT_SOURCES if any(row.term == "spot" for row in rows) else ()
        billing = billing_on(rows[0].provider, self.found.constraints.day, rows[0].instance).sources
        gpus = tuple(source for row in rows[:1] for source in self.lookups.catalog.gpu_by_id[row.gpu].sources)
        prices = tuple(row.source for row in rows)
        habits = self.found.constraints.habits
        asked = [name for name, size in (("disk", habits.disk_gb), ("egress", habits.egress_gb)) if size]
        charged = extras_sources(rows[0].provider, asked)
        said = lacks_sources(lacking)
        return self.lookups.catalog.cited_sources(prices, spot, gpus[:2], rows[0].time.sources, billing, charged, said)

    def _verify(self, best: Candidate) -> tuple[str, Message]:
        """The command that measures what this rests on, on that hardware, and what it does not tell."""
        if not self.modelled:
            return VERIFY_GPU, msg("verify-note.gpu")
        told = replace(
            self.asked.bare, gpu=best.gpu, gpus=max(1, int(best.gpus / best.copies)), parallel=best.parallel,
            precision=best.precision, batch=best.batch, micro_batch=best.micro_batch, accumulation=best.accumulation,
            checkpointing=best.checkpointing, rate=None,
        )  # fmt: skip
        return self.verify(told, self.asked.shape, self._at_once(best))

    def _at_once(self, best: Candidate) -> int:
        """Sequences of one copy: as many as the load keeps at work, else the batch it was chosen by."""
        workload, each = self.asked.workload, max(1, best.batch // best.parallel.dp)
        if workload.rate is None or best.ttft is None:
            return each
        rate, between = workload.rate / (best.copies * best.parallel.dp), best.tpot.value if best.tpot else 0.0
        return running_sequences(rate, best.ttft.value, between, workload.seq_out or 1, each)

    def _reproduce(self) -> Reproduce:
        bare = self.asked.bare
        words = [word for word in to_argv(bare) if not word.startswith(("--task", "--model"))]
        model = [KINDS["model"].write_text(bare.model)] if self.modelled else []
        constraints = [_flag(name, value) for name, value in self.found.spelled.items()]
        day = [f"--as-of={self.found.constraints.day.isoformat()}"]
        prices = [f"--prices={self.overlay}"] if self.overlay else []  # no page opens a path
        split = [word.removeprefix("--").partition("=") for word in (*words, *constraints, *day)]
        pairs = [(name.replace("-", "_"), value if equals else "true") for name, equals, value in split]
        query = urlencode([("task", bare.task), *(("model", name) for name in model), *pairs])
        return Reproduce(
            join(["whichgpu", "recommend", bare.task, *model, *words, *constraints, *prices, *day]), f"{PAGE}?{query}"
        )


def _flag(name: str, value: str) -> str:
    return "--buy" if name == "buy" else f"--{name.replace('_', '-')}={value}"
