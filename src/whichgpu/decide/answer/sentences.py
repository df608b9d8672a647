"""The sentences of a recommendation: the answer, what was assumed, what to beware of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import ceil
from typing import Any

from whichgpu.base.messages import Fact, Message, msg
from whichgpu.base.units import format_amount, format_duration, format_seconds, significant
from whichgpu.catalog.engines.engine import Engine, engine_support
from whichgpu.catalog.engines.registry import default_engine
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.offer import ANY_REGION
from whichgpu.decide.answer.explain import gpu_count_label
from whichgpu.decide.candidate import Candidate
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.configurations.mix_amounts import UNIT, indices
from whichgpu.decide.constraints import Constraints, Rank
from whichgpu.decide.work import Work
from whichgpu.estimate.loading import Loading
from whichgpu.estimate.offline_note import concurrency_note
from whichgpu.estimate.time.fallbacks import computes_fast, precision_warnings
from whichgpu.price.billing import assumed_extras, billing_on
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.workload import Workload

QUIRKS = 3  # told of the answer's GPU
UNSURE = ("other", "none", "group-other")
DEQUANTISED = "warning.stored-only"  # the GPU has no units for the weights' precision


def kind_of(modelled: bool, work: Work) -> str:
    """What is asked for: a run, a service, or no model but the mix."""
    return "mix" if not modelled else "service" if work.hours is not None else "run"


def sentence(one: Candidate, kind: str, listed: str | None = None) -> Message:
    """The answer in a sentence, its price with its day; `listed` is that of a card's list price, None where one was given."""
    cost, time = one.cost, one.run_time
    values: dict[str, Any] = {
        "gpus": gpu_count_label(one.gpus), "gpu": one.gpu_name, "machine": f"{one.provider} {_several(one)}",
        "term": msg(f"term.{one.term}"), "region": one.region, "n": one.machines, "time": format_duration(time.value),
        "low": format_duration(time.low), "high": format_duration(time.high), "cost": format_amount(cost.amount),
        "currency": cost.currency,
        "cheap": format_amount(cost.low), "dear": format_amount(cost.high), "hour": format_amount(one.cost_per_hour.amount),
        "month": format_amount(one.cost_per_month.amount), "speed": f"{one.throughput.value:.3g}",
    }  # fmt: skip
    wait = one.tpot or one.ttft or time
    id = "recommend.wait-token" if one.tpot else "recommend.wait-answer"
    values["wait"] = msg(id, time=format_seconds(wait.value), low=format_seconds(wait.low), high=format_seconds(wait.high))
    if one.purchase is not None:
        seen = msg("recommend.seen-list", day=listed) if listed else msg("recommend.seen-given")
        return msg(f"recommend.sentence-{kind}-buy", price=format_amount(one.purchase.amount), seen=seen, **values)
    if one.term == "owned":
        return msg(f"recommend.sentence-{kind}-owned", **values)
    where = msg("recommend.anywhere" if one.region in ("", ANY_REGION) else "recommend.where", **values)
    seen = msg("recommend.seen-stale" if one.price_stale else "recommend.seen", day=one.price_observed_at, n=one.price_age_days)
    return msg(f"recommend.sentence-{kind}", where=where, seen=seen, **values)


def starved(what: Message, one: Candidate, plain: Loading, dali: Loading, vcpus: float, hours: float, cost: float) -> Message:
    """The answer with what becomes of it where the host cannot read images as fast as its GPUs take them."""
    return msg(
        "recommend.sentence-fed", what=what, have=f"{vcpus:,.0f}", vcpus=f"{ceil(plain.vcpus.value):,}",
        dali=f"{ceil(dali.vcpus.value):,}", time=format_duration(hours * 3600.0), cost=significant(cost),
        currency=one.cost.currency,
    )  # fmt: skip


def assumptions(
    best: Candidate, gpu: Gpu, asked: WorkloadRequest, constraints: Constraints, work: Work, rank: Rank, modelled: bool
) -> list[Message]:
    """Everything taken where nobody said so, with the flag that says otherwise."""
    workload, habits = asked.workload, constraints.habits
    kind = kind_of(modelled, work)
    order = f"{rank}-service" if kind == "service" and rank in ("time", "balanced") else rank
    said = [msg(f"assumed.rank-{order}")]
    if kind == "mix":
        said.append(msg("assumed.mix", names=indices(workload.task, constraints.day), unit=UNIT))
    else:
        said += _of_work(best, gpu, asked, work)
    if best.term != "owned" or best.purchase is not None:
        said.append(msg("assumed.startup", time=format_seconds(habits.startup)))
        if kind == "run" and billing_on(best.provider, constraints.day, best.instance).assumed:
            said.append(msg("assumed.billing", provider=best.provider))
    if kind == "run" and best.term != "spot":
        takes, every = format_seconds(habits.checkpoint_takes), format_seconds(habits.checkpoint_every)
        said.append(msg("assumed.checkpoints", takes=takes, every=every))
    if best.term == "spot":
        said.append(msg("assumed.spot", rate=f"{habits.interruptions:g}", every=format_seconds(habits.checkpoint_every)))
    if best.includes == "gpu":
        said.append(msg("assumed.host-beside"))
    beside = [name for name, size in (("disk", habits.disk_gb), ("egress", habits.egress_gb)) if size]
    if beside and best.term != "owned" and assumed_extras(best.provider, beside):
        said.append(msg("assumed.extras", what=tuple(beside), provider=best.provider))
    if isinstance(best.gpus, float):
        said.append(msg("assumed.slice"))
    if constraints.gpus is None and best.purchase is None:
        said.append(msg("assumed.gpus", most=int(constraints.span[1])))
    if workload.serving and modelled:
        id = "assumed.simulated" if best.simulated else "assumed.queueing"
        said.append(msg(id, percentile=f"{workload.percentile:g}", n=best.simulated or 0))
    return said


def _of_work(best: Candidate, gpu: Gpu, asked: WorkloadRequest, work: Work) -> list[Message]:
    """Of the request: precision, engine, lengths, rate, how long."""
    workload, given = asked.workload, asked.given
    said = []
    if "precision" not in given:
        said.append(_precision_assumed(best.precision, gpu, asked))
    if workload.traits.finetuning and not (workload.lora_rank or workload.qlora):
        mixed = best.precision.startswith(("amp", "fp8"))
        said.append(msg("assumed.full-finetune-mixed" if mixed else "assumed.full-finetune", precision=best.precision))
    if workload.training:
        said += _training_assumed(best, given)
    said += concurrency_note(replace(workload, batch=best.batch, parallel=best.parallel), asked.shape, gpu, given)
    if "engine" not in given:
        said.append(msg("assumed.engine", engine=workload.engine or default_engine()))
    if workload.seq_in and not {"seq_in", "seq_out"} & given:
        id = "assumed.sequence" if workload.seq_out and not workload.training else "assumed.sequence-train"
        said.append(msg(id, seq_in=f"{workload.seq_in:,}", seq_out=f"{workload.seq_out or 0:,}"))
    if workload.serving and "rate" not in given and workload.rate is not None:
        said.append(msg("assumed.rate", rate=f"{workload.rate:g}"))
    if workload.tpot_max is not None and not {"tpot_max", "ttft_max"} & given:
        said.append(msg("assumed.tpot", time=format_seconds(workload.tpot_max)))
    if work.assumed:
        unit = "output-tokens" if work.unit == "tokens" and not workload.training else work.unit
        told = f"{work.amount:,.0f}" if work.amount else f"{work.hours:,.0f}"
        said.append(msg("assumed.work" if work.amount else "assumed.service", amount=told, unit=msg(f"unit.{unit}")))
    return said


def _training_assumed(best: Candidate, given: Collection[str]) -> list[Message]:
    """Batch and checkpointing of a training run where the user gave none."""
    said = []
    if not {"batch", "micro_batch", "accumulation"} & set(given):
        id = "assumed.batch-accumulated" if best.accumulation > 1 else "assumed.batch-train"
        said.append(msg(id, batch=best.batch, micro=best.micro_batch or best.batch, n=best.accumulation))
    if best.checkpointing != "none" and "checkpointing" not in given:
        said.append(msg("note.checkpointing-default", checkpointing=best.checkpointing))
    return said


def _precision_assumed(precision: str, gpu: Gpu, asked: WorkloadRequest) -> Message:
    """Why this precision was taken: the model is published in it, the GPU has units for it, or neither."""
    model = asked.workload.model
    from_file = isinstance(model, str) and model.lower().endswith(".gguf")
    native = asked.shape.native
    if from_file or (native and precision == asked.workload.precision and not asked.workload.training):
        return msg("assumed.precision-published", precision=precision)
    record = PRECISION_BY_NAME[precision]
    has_units = computes_fast(gpu, precision) if record.wanted_peak else record.is_trained
    return msg("assumed.precision" if has_units else "assumed.precision-default", precision=precision)


def warnings(best: Candidate, gpu: Gpu, engine: Engine | None, workload: Workload) -> list[Message]:
    """What to beware of."""
    said = [one for one in precision_warnings(replace(workload, precision=best.precision), gpu) if one.id == DEQUANTISED]
    if best.price_stale and best.term != "owned":
        said.append(msg("recommend.stale", day=best.price_observed_at, n=best.price_age_days))
    if best.fits == "tight":
        said.append(msg("recommend.tight", gpu=best.gpu_name))
    if best.tier in UNSURE:
        said.append(msg("recommend.unmeasured", gpu=best.gpu_name))
    told = engine is not None and engine.framework is not None  # what a GPU lacks names the framework's last release
    if engine is not None and not told and (how := engine_support(engine, gpu)) in ("earlier", "unsure"):
        said.append(msg(f"recommend.engine-{how}", engine=engine.name, gpu=best.gpu_name))
    return said + [msg("recommend.quirk", gpu=best.gpu_name, text=Fact(text)) for text in gpu.quirks[:QUIRKS]]


def near_limits(best: Candidate, constraints: Constraints, work: Work, workload: Workload) -> tuple[Message, ...]:
    """Limits that are kept, but not at the slow end of the range."""
    said = []
    for flag, time, most in (("--ttft", best.ttft, workload.ttft_max), ("--tpot", best.tpot, workload.tpot_max)):
        if time is not None and most is not None and time.value <= most < time.high:
            said.append(msg("recommend.may-be-slow", flag=flag, time=format_seconds(time.high)))
    if constraints.deadline is not None and work.hours is None and best.run_time.high > constraints.deadline:
        said.append(msg("recommend.may-be-late", time=format_duration(best.run_time.high)))
    whole = constraints.budget is not None and constraints.budget_per is None and best.purchase is None
    if whole and constraints.budget is not None and best.cost.high > constraints.budget.amount:
        said.append(msg("recommend.may-cost-more", cost=format_amount(best.cost.high), currency=best.cost.currency))
    return tuple(said)


def _several(one: Candidate) -> str:
    return one.instance if one.machines == 1 or one.copies > 1 else f"{one.machines}x {one.instance}"
