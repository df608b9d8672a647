"""Sentences of a recommendation: the answer in words, its assumptions, its warnings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import ceil
from typing import Any

from msgspec.structs import replace

from whichgpu.base.messages import Fact, Message, msg
from whichgpu.base.units import format_amount, format_duration, format_seconds, significant
from whichgpu.catalog.engines.engine import Engine, engine_support
from whichgpu.catalog.engines.registry import default_engine
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.offer import ANY_REGION
from whichgpu.decide.answer.explain import COMMITTED_TERMS, gpu_count_label
from whichgpu.decide.candidate import Candidate
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.configurations.precision_choices import quality_of
from whichgpu.decide.configurations.reference_mix import UNIT, indices
from whichgpu.decide.configurations.slow_steps import SAFE_PROBABILITY
from whichgpu.decide.constraints import Constraints, Rank
from whichgpu.decide.modes import Mode
from whichgpu.decide.question import EvaluatedQuestion
from whichgpu.decide.work import SERVICE_RATE, Work
from whichgpu.estimate.loading import Loading
from whichgpu.estimate.offline_note import concurrency_note
from whichgpu.estimate.time.fallbacks import computes_fast, precision_warnings
from whichgpu.estimate.time.software_age import age_warnings
from whichgpu.price.billing import assumed_extras, billing_on
from whichgpu.price.own import USE
from whichgpu.price.terms import YEAR_HOURS
from whichgpu.workload.era_defaults import era_note
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.workload import Workload

LONG_INPUTS = 16  # Inputs this many times as long as outputs make prefill the larger part of the work (assumed).
MAX_NAMED = 3  # At most this many GPUs are named as lacking a committed price.
MAX_COMMITMENT = 2  # Longer terms are named if they cost at most this many times as much as the answer (assumed).
MANY_MACHINES = 4  # From this many machines at once, whether they can be had together is a question for the seller (assumed).
# Quirks that decide whether usual software runs at all, which a short answer names too.
SOFTWARE_QUIRKS = (
    "grace-needs-arm-builds", "aws-neuron-compile", "intel-gaudi-hpu", "intel-xpu-build", "google-tpu-xla", "apple-no-cuda",
    "amd-radeon-rocm-limited", "amd-navi22-23-not-listed", "amd-rdna2-consumer-not-listed", "cuda-13-drops-maxwell-pascal-volta",
)  # fmt: skip
MAX_QUIRKS = 3  # At most this many known quirks of the answer's GPU become warnings.
UNMEASURED_TIERS = ("extrapolated", "specs")
NEW_GPU_AXES = {"gpu", "generation", "maker", "engine"}  # Axes on which no run of such a GPU under the engine was measured.
DEQUANTISED = "warning.stored-only"  # message id: the GPU has no units for the weights' precision


def work_kind(modelled: bool, work: Work) -> str:
    """Return `run` or `service` for a named model, or `mix` if none is named and a reference mix of workloads is used."""
    return "mix" if not modelled else "service" if work.hours is not None else "run"


def gpu_for_task(one: Candidate, workload: Workload, model: str, mode: Mode | None) -> Message:
    """Return the GPU's name with what it is for: the model and its request rate, or the kind of run."""
    values = {"gpu": gpu_in_precision(one), "model": model}
    if workload.serving and mode == "service" and workload.rate is not None:
        return msg("recommend.for-rate", rate=significant(workload.rate), **values)
    if not workload.training:
        return msg("recommend.for-model", **values)
    method = "qlora" if workload.qlora else "lora" if workload.lora_rank else "finetune"
    return msg(f"recommend.for-{method if workload.traits.finetuning else 'train'}", **values)


def run_words(work: Work, workload: Workload) -> Message:
    """Return the run that a sentence is about, with its size if the user did not give it."""
    if not work.assumed or work.amount is None:
        return msg("recommend.the-run")
    return msg("recommend.run-of", amount=f"{work.amount:,.0f}", unit=work_unit(work, workload))


def work_unit(work: Work, workload: Workload) -> Message:
    """Return the unit in which the work of a run is counted."""
    return msg(f"unit.{'output-tokens' if work.unit == 'tokens' and not workload.training else work.unit}")


def sentence(one: Candidate, kind: str, gpu: Message | str, run: Message, first_token: bool = False) -> Message:
    """Return the answer as one sentence, with the price of a card to buy and what it rests on.

    `gpu` names the GPU and its task, `run` the work. It says the time to the first token if `first_token`, else between tokens.
    """
    cost, time = one.cost, one.run_time
    values: dict[str, Any] = {
        "gpus": gpu_count_label(one.gpus), "gpu": gpu, "machine": f"{one.provider} {_machines(one)}",
        "term": msg(f"term.{one.term}"), "region": one.region, "n": one.machines, "time": format_duration(time.value),
        "low": format_duration(time.low), "high": format_duration(time.high), "cost": format_amount(cost.amount),
        "currency": cost.currency,
        "cheap": format_amount(cost.low), "dear": format_amount(cost.high), "hour": format_amount(one.cost_per_hour.amount),
        "month": format_amount(one.cost_per_month.amount), "speed": f"{one.throughput.value:.3g}", "run": run,
    }  # fmt: skip
    wait = (one.ttft if first_token else None) or one.tpot or one.ttft or time
    id = "recommend.wait-first" if first_token else "recommend.wait-token" if one.tpot else "recommend.wait-answer"
    values["wait"] = msg(id, time=format_seconds(wait.value), low=format_seconds(wait.low), high=format_seconds(wait.high))
    if one.purchase is not None:
        price_date = msg(f"recommend.seen-{one.purchase_basis}", day=one.purchase_day or "")
        price = format_amount(one.purchase.amount)
        return msg(f"recommend.sentence-{kind}-buy", price=price, seen=price_date, use=f"{USE:.0%}", **values)
    if one.term == "owned":
        return msg(f"recommend.sentence-{kind}-owned", **values)
    where = msg("recommend.anywhere" if one.region in ("", ANY_REGION) else "recommend.where", **values)
    id = "recommend.seen-stale" if one.price_stale else "recommend.seen"
    price_date = msg(id, day=one.price_observed_at, n=one.price_age_days)
    return msg(f"recommend.sentence-{kind}", where=where, seen=price_date, **values)


def gpu_in_precision(one: Candidate) -> Message | str:
    """Return the GPU's name, with the precision if the weights are quantised."""
    quantised = quality_of(one.precision) != "lossless"
    return msg("recommend.in-precision", gpu=one.gpu_name, precision=one.precision) if quantised else one.gpu_name


def sentence_of_pictures(what: Message, one: Candidate) -> Message:
    """Return the answer as one sentence that begins with the seconds of a picture, or a video, on each GPU."""
    speed, gpus = one.throughput, float(one.gpus)
    each, low, high = (format_seconds(gpus / rate) for rate in (speed.value, speed.high, speed.low))
    return msg(f"recommend.sentence-{speed.unit.removesuffix('/s')}", what=what, each=each, low=low, high=high)


def sentence_starved(
    what: Message, one: Candidate, plain: Loading, dali: Loading, vcpus: float, hours: float, cost: float
) -> Message:
    """Return the answer as one sentence, with time and cost if the host's CPUs load images more slowly than GPUs need them."""
    return msg(
        "recommend.sentence-fed", what=what, have=f"{vcpus:,.0f}", vcpus=f"{ceil(plain.vcpus.value):,}",
        dali=f"{ceil(dali.vcpus.value):,}", time=format_duration(hours * 3600.0), cost=significant(cost),
        currency=one.cost.currency,
    )  # fmt: skip


def assumptions(best: Candidate, gpu: Gpu, screened: EvaluatedQuestion, rank: Rank, modelled: bool) -> list[Message]:
    """Return a message for every default value the answer depends on, naming the flag that changes it."""
    request, work, constraints = screened.request, screened.work, screened.selection.constraints
    workload, run_settings = request.workload, constraints.run_settings
    kind = work_kind(modelled, work)
    order = f"{rank}-service" if kind == "service" and rank in ("time", "balanced") else rank
    messages = [msg(f"assumed.rank-{order}"), *_risk_assumed(screened, best)]
    if kind == "mix":
        messages.append(msg("assumed.mix", names=indices(workload.task, constraints.day), unit=UNIT))
    else:
        messages += _workload_assumptions(best, gpu, request, work)
    if best.term != "owned" or best.purchase is not None:
        messages.append(msg("assumed.startup", time=format_seconds(run_settings.startup)))
        if kind == "run" and billing_on(best.provider, constraints.day, best.instance).assumed:
            messages.append(msg("assumed.billing", provider=best.provider))
    if kind == "run" and best.term != "spot":
        takes, every = format_seconds(run_settings.checkpoint_takes), format_seconds(run_settings.checkpoint_every)
        messages.append(msg("assumed.checkpoints", takes=takes, every=every))
    if best.term == "spot":
        messages.append(
            msg("assumed.spot", rate=f"{run_settings.interruptions:g}", every=format_seconds(run_settings.checkpoint_every))
        )
    if best.includes == "gpu":
        messages.append(msg("assumed.host-beside"))
    extras = [name for name, size in (("disk", run_settings.disk_gb), ("egress", run_settings.egress_gb)) if size]
    if extras and best.term != "owned" and assumed_extras(best.provider, extras):
        messages.append(msg("assumed.extras", what=tuple(extras), provider=best.provider))
    if isinstance(best.gpus, float):
        messages.append(msg("assumed.slice"))
    if constraints.gpus is None and best.purchase is None:
        messages.append(msg("assumed.gpus", most=int(constraints.span[1])))
    if workload.serving and modelled:
        id = "assumed.simulated" if best.simulated else "assumed.queueing"
        messages.append(msg(id, percentile=f"{workload.percentile:g}", n=best.simulated or 0))
    return messages


def _risk_assumed(screened: EvaluatedQuestion, best: Candidate) -> list[Message]:
    """Return a message on how limits are judged, if the answer has limits that it may miss."""
    if best.keeps_objective is None and best.keeps_budget is None:
        return []
    preference = screened.selection.constraints.risk_for(screened.request.workload.serving)
    id = f"risk-{screened.risk}" if preference == screened.risk and best.keeps_limits >= SAFE_PROBABILITY else "risk-none-safe"
    id = "risk-even" if preference == "even" else id
    return [msg(f"assumed.{id}", share=f"{SAFE_PROBABILITY:.0%}")]


def _workload_assumptions(best: Candidate, gpu: Gpu, request: WorkloadRequest, work: Work) -> list[Message]:
    """Return messages on the defaults of precision, engine, lengths, rate and amount of work that the user did not give."""
    workload, stated = request.workload, request.stated
    messages = []
    if "precision" not in stated:
        messages.append(_precision_assumed(best.precision, gpu, request))
    if workload.traits.finetuning and not (workload.lora_rank or workload.qlora):
        mixed = best.precision.startswith(("amp", "fp8"))
        messages.append(msg("assumed.full-finetune-mixed" if mixed else "assumed.full-finetune", precision=best.precision))
    if workload.training:
        messages += _training_assumed(best, stated)
    messages += concurrency_note(replace(workload, batch=best.batch, parallel=best.parallel), request.shape, gpu, stated)
    if "engine" not in stated:
        messages.append(msg("assumed.engine", engine=workload.engine or default_engine()))
    messages += era_note(replace(workload, precision=best.precision), stated)
    if workload.seq_in and not {"seq_in", "seq_out"} & stated:
        id = "assumed.sequence" if workload.seq_out and not workload.training else "assumed.sequence-train"
        messages.append(msg(id, seq_in=f"{workload.seq_in:,}", seq_out=f"{workload.seq_out or 0:,}"))
    if workload.serving and request.bare.rate is None and workload.rate == SERVICE_RATE:
        messages.append(msg("assumed.rate", rate=f"{workload.rate:g}"))
    if workload.tpot_max is not None and not {"tpot_max", "ttft_max"} & stated:
        messages.append(msg("assumed.tpot", time=format_seconds(workload.tpot_max)))
    if work.assumed:
        id, amount = "assumed.work" if work.amount else "assumed.service", f"{work.amount or work.hours:,.0f}"
        messages.append(msg(id, amount=amount, unit=work_unit(work, workload)))
    return messages


def _training_assumed(best: Candidate, stated: Collection[str]) -> list[Message]:
    """Return messages on the default batch and checkpointing of a training run, if the user did not give them."""
    messages = []
    if not {"batch", "micro_batch", "accumulation"} & set(stated):
        id = "assumed.batch-accumulated" if best.accumulation > 1 else "assumed.batch-train"
        messages.append(msg(id, batch=best.batch, micro=best.micro_batch or best.batch, n=best.accumulation))
    if best.checkpointing != "none" and "checkpointing" not in stated:
        messages.append(msg("note.checkpointing-default", checkpointing=best.checkpointing))
    return messages


def _precision_assumed(precision: str, gpu: Gpu, request: WorkloadRequest) -> Message:
    """Return why this precision is the default: the model is published in it, the GPU has units for it, or neither."""
    from_file = request.shape.file_format == "gguf"
    native = request.shape.native
    if quality_of(precision) != "lossless" and precision != request.workload.precision:
        return msg("assumed.precision-chosen", precision=precision)
    if from_file or (native and precision == request.workload.precision and not request.workload.training):
        return msg("assumed.precision-published", precision=precision)
    record = PRECISION_BY_NAME[precision]
    has_units = computes_fast(gpu, precision) if record.wanted_peak else record.is_trained
    return msg("assumed.precision" if has_units else "assumed.precision-default", precision=precision)


def warnings(best: Candidate, gpu: Gpu, engine: Engine | None, workload: Workload) -> list[Message]:
    """Return warnings about the weights' precision, price, memory, evidence, engine and the GPU itself."""
    messages = [one for one in precision_warnings(replace(workload, precision=best.precision), gpu) if one.id == DEQUANTISED]
    messages += age_warnings(workload, gpu)
    if best.machines >= MANY_MACHINES * best.copies and best.term in ("on-demand", "spot"):
        messages.append(msg("recommend.many-machines", n=best.machines, provider=best.provider))
    if best.price_stale and best.term != "owned":
        messages.append(msg("recommend.stale", day=best.price_observed_at, n=best.price_age_days))
    if best.fits == "tight":
        messages.append(msg("recommend.tight", gpu=best.gpu_name))
    if best.tier in UNMEASURED_TIERS:
        axes = tuple(msg(f"axis.{axis}") for axis in best.new_on)
        id = "recommend.unmeasured" if not axes or NEW_GPU_AXES & {*best.new_on} else "recommend.unmeasured-axes"
        messages.append(msg(id, gpu=best.gpu_name, axes=axes))
    # The framework's last supporting release is left out here, since `missing_support` already names it.
    if engine is not None and engine.framework is None and (how := engine_support(engine, gpu)) in ("earlier", "unsure"):
        messages.append(msg(f"recommend.engine-{how}", engine=engine.name, gpu=best.gpu_name))
    for id, text in list(zip(gpu.quirk_ids, gpu.quirks, strict=False))[:MAX_QUIRKS]:
        messages.append(
            msg("recommend.quirk-software" if id in SOFTWARE_QUIRKS else "recommend.quirk", gpu=best.gpu_name, text=Fact(text))
        )
    return messages


def long_inputs(best: Candidate, workload: Workload, prefill: float) -> tuple[Message, ...]:
    """Return what lowers the cost of a service whose inputs are so much longer than its outputs that prefill decides.

    `prefill` is the seconds of one prompt's prefill on one replica.
    """
    inputs, outputs = workload.seq_in or 0, max(1, workload.seq_out or 1)
    if workload.rate is None or not prefill or inputs < LONG_INPUTS * outputs:
        return ()
    busy = workload.rate * prefill * best.parallel.tp * best.parallel.pp
    values = {"ratio": significant(inputs / outputs, 2), "busy": significant(busy, 2), "gpus": f"{best.gpus:g}"}
    return (msg("recommend.long-inputs", **values),)


def missing_commitments(rows: Collection[Candidate], work: Work) -> tuple[Message, ...]:
    """Return a note on GPUs shown on demand although a service runs for a year: no longer term of them is known."""
    if work.hours is None or work.hours < YEAR_HOURS:
        return ()
    committed = {one.gpu_name for one in rows if one.term not in ("on-demand", "spot")}
    lacking = [one for one in rows if one.term == "on-demand" and one.gpu_name not in committed]
    names = tuple(dict.fromkeys(one.gpu_name for one in lacking))[:MAX_NAMED]
    by_aws = bool(lacking) and all(one.provider == "aws" for one in lacking)
    return (msg("recommend.no-commitment-aws" if by_aws else "recommend.no-commitment", gpus=names),) if names else ()


def commitments(best: Candidate, rows: Collection[Candidate], work: Work) -> Iterator[Message]:
    """Yield what displayed candidates cost on longer terms, if a service of a year is answered on demand."""
    if work.hours is None or work.hours < YEAR_HOURS or best.term != "on-demand":
        return
    limit = best.cost_per_month.amount * MAX_COMMITMENT
    longer = [one for one in rows if one.term in COMMITTED_TERMS and one.break_even_hours is not None]
    longer = [one for one in longer if one.cost_per_month.amount <= limit]
    longer = [one for one in longer if one.term == longer[0].term][:MAX_NAMED]
    if not longer:
        return
    each = tuple(
        msg(
            "recommend.commitment-each",
            gpus=gpu_count_label(one.gpus),
            gpu=one.gpu_name,
            month=format_amount(one.cost_per_month.amount),
        )
        for one in longer
    )
    hours = significant(max(one.break_even_hours or 0.0 for one in longer))
    day, term = min(one.price_observed_at for one in longer), msg(f"term.{longer[0].term}")
    yield msg("recommend.commitment", what=each, hours=hours, term=term, day=day, currency=best.cost.currency)


def near_limits(best: Candidate, constraints: Constraints, work: Work, workload: Workload) -> tuple[Message, ...]:
    """Return a message for each limit that holds at the estimated time, but not at the slow end of its 90% range."""
    messages = []
    for flag, time, limit in (("--ttft", best.ttft, workload.ttft_max), ("--tpot", best.tpot, workload.tpot_max)):
        if time is not None and limit is not None and time.value <= limit < time.high:
            messages.append(msg("recommend.may-be-slow", flag=flag, time=format_seconds(time.high)))
    if constraints.deadline is not None and work.hours is None and best.run_time.high > constraints.deadline:
        messages.append(msg("recommend.may-be-late", time=format_duration(best.run_time.high)))
    budget = constraints.budget if constraints.budget_per is None and best.purchase is None else None
    if budget is not None and best.cost.high > budget.amount:
        messages.append(msg("recommend.may-cost-more", cost=format_amount(best.cost.high), currency=best.cost.currency))
    return tuple(messages)


def _machines(one: Candidate) -> str:
    return one.instance if one.machines == 1 or one.copies > 1 else f"{one.machines}x {one.instance}"
