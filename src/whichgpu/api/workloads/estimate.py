"""Memory and time of one workload on one group of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.advice import advice, machine_of
from whichgpu.api.workloads.concurrency import can_be_timed, with_offline_batch
from whichgpu.api.workloads.remarks import counted, decoding_notes, remarks
from whichgpu.base.display import Displayable
from whichgpu.base.figure import Basis, Figure
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.architecture import has_rates
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate import fit as fitting
from whichgpu.estimate.fit import Verdict
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.offline_note import concurrency_note
from whichgpu.estimate.own_records import own_record_note
from whichgpu.estimate.time.fallbacks import usual_precision
from whichgpu.workload.defaults import validate_workload
from whichgpu.workload.engine_support import with_engine_of_gpus
from whichgpu.workload.shapes import Shape, Transformer, WeightsOnly
from whichgpu.workload.spelling import ParsedWorkload, echo, fill_defaults, from_object
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.api.workloads.runs import Run
    from whichgpu.estimate.group.group_answer import GroupTime
    from whichgpu.estimate.nearest_evidence import NearMeasurement
    from whichgpu.estimate.serving.kv_capacity import MemorySettings
    from whichgpu.estimate.serving.serving_answer import ServingAnswer
    from whichgpu.estimate.time.time_estimate import TimeEstimate


class EstimateAnswer(Displayable, msgspec.Struct, frozen=True):
    """Time, throughput and memory of a workload on one group of GPUs; only memory if no GPU was given.

    `tier` says how near the measurements behind the time are: this GPU, its kin, or others only. `calibrated` is the day the
    time's corrections were fitted, `checked` the day the GPU's facts were last checked. `evidence` are the nearest measurements,
    `evidence_error` is the median error of the model on those around them, as a share of the measured time.
    """

    request: dict[str, Any]
    time: Figure | None
    time_device: Figure | None
    time_host: Figure | None
    throughput: Figure | None
    ttft: Figure | None
    tpot: Figure | None
    bound: str | None
    memory: Figure
    memory_device: Figure
    memory_parts: Mapping[str, Figure]
    fits: Verdict | None
    usable: int | None
    headroom: int | None
    kv_tokens: Figure | None  # tokens in the KV cache of one replica, of an engine that sizes it at start
    startup: Figure | None  # seconds until such an engine serves
    tier: str | None  # here, measured, kin, extrapolated or specs
    new_on: tuple[str, ...]  # axes on which nothing was measured
    group: GroupTime | None  # breakdown of the time on several GPUs
    run: Run | None  # duration and cost of the whole run; None if its length was not given
    serving: ServingAnswer | None  # serving under load; None without a rate. `ttft` and `tpot` above are then its medians
    evidence: tuple[NearMeasurement, ...]
    evidence_error: float | None
    calibrated: str | None
    checked: str | None
    warnings: tuple[Message, ...]
    basis: Basis
    sources: tuple[str, ...]
    emitted: Mapping[str, str] = msgspec.field(default_factory=dict)  # files that launch it, by name


# Fields of a time estimate that the answer copies; they are None if there is no time estimate.
TIME_FIELDS = ("time", "time_device", "time_host", "throughput", "ttft", "tpot", "bound", "tier", "calibrated")
NO_KV_CACHE = ("error.no-cache-room", "serving.refused")  # Errors that say that not even one request's KV cache fits.
Loading = Callable[[Workload, Shape, Gpu, Catalog, Figure], "tuple[ServingAnswer | None, tuple[Message, ...]]"]


class ResolvedWorkload(msgspec.Struct, frozen=True):
    """A request with its model and GPU looked up and every default filled in."""

    workload: Workload
    user_fields: frozenset[str]
    shape: Shape
    gpu: Gpu | None
    wanted_batch: int | None = None  # the user's batch, if it was reduced to the sequences that fit

    @property
    def timeless(self) -> tuple[Message, ...]:
        """Return a warning that says why there is no time estimate on the GPU; empty if there is one or no GPU was named."""
        gpu = self.gpu
        if gpu is None:
            return ()
        if isinstance(self.shape, WeightsOnly):
            return (msg("warning.no-time-weights-only", name=self.shape.name),)
        if not has_rates(gpu):
            return (msg("warning.no-time-rates", gpu=gpu.name),)
        return ()

    @property
    def timed(self) -> bool:
        """Return whether the workload's time can be estimated: a GPU is named, and it and the model are known well enough."""
        return self.gpu is not None and can_be_timed(self.shape, self.gpu)


def estimate(
    task: str, model: str | Mapping[str, Any], catalog: Catalog | None = None, own: bool = True, **fields: Any
) -> EstimateAnswer:
    """Return time and memory of a task on a model; `fields` are those of a request, `own` applies the user's measurements."""
    return estimate_workload(from_object({"task": task, "model": model, **fields}), lookup_cache(catalog, own=own))


def estimate_workload(
    spelled: ParsedWorkload,
    lookups: LookupCache | None = None,
    loading: Loading | None = None,
    settings: MemorySettings | None = None,
) -> EstimateAnswer:
    """Return the estimate of a parsed request; `loading` simulates its serving load, if more than the rate is given.

    `settings` are those of the engine that size its KV cache, if not its defaults.
    """
    lookups = lookups or lookup_cache()
    return build_estimate(resolve_workload(spelled, lookups), lookups, loading=loading, settings=settings)


def resolve_workload(spelled: ParsedWorkload, lookups: LookupCache) -> ResolvedWorkload:
    """Return the request with its model and GPU looked up and its defaults filled in."""
    device = lookups.device(spelled.workload.gpu) if spelled.workload.gpu else None
    if device:
        spelled = counted(spelled, device.count)
    shape = lookups.shape_for(spelled.workload)
    gpu = device.gpu if device else None
    validate_workload(spelled.workload, shape)
    if gpu:
        own = with_engine_of_gpus(spelled.workload, shape, [gpu], lookups.catalog.engines)
        spelled = replace(spelled, workload=own)
    filled = fill_defaults(spelled.workload, shape, spelled.user_fields)
    if gpu and "precision" not in spelled.user_fields and filled.precision:
        usual = usual_precision(filled.precision, gpu, language=shape.is_language_model)
        filled = fill_defaults(replace(spelled.workload, precision=usual), shape, spelled.user_fields)
    if gpu:
        filled = fitting.with_training_defaults(
            filled, shape, gpu, spelled.user_fields, lambda one: estimate_memory(one, shape, gpu)
        )
        filled = fitting.with_automatic_offload(filled, shape, gpu, lambda one: estimate_memory(one, shape, gpu))
        fitted = with_offline_batch(filled, shape, gpu, spelled.user_fields, lookups)
        if "batch" in spelled.user_fields and fitted.batch != filled.batch:
            return ResolvedWorkload(fitted, spelled.user_fields, shape, gpu, filled.batch)
        filled = fitted
    return ResolvedWorkload(filled, spelled.user_fields, shape, gpu)


def build_estimate(
    resolved: ResolvedWorkload,
    lookups: LookupCache,
    time_estimate: TimeEstimate | None = None,
    loading: Loading | None = None,
    settings: MemorySettings | None = None,
) -> EstimateAnswer:
    """Return the estimate of a request whose model and GPU are looked up; `time_estimate` is its time if already computed."""
    allowed = settings.share if settings else None
    workload, shape, gpu = resolved.workload, resolved.shape, resolved.gpu
    memory = estimate_memory(workload, shape, gpu)
    need = fitting.required_memory(memory, workload)
    fits = fitting.fit(need, workload, gpu, allowed) if gpu else None
    timed, group = (time_estimate, None) if time_estimate else _time(resolved, lookups)
    serving, serving_notes = _serving(resolved, lookups, timed, loading)
    if fits and serving is None and any(one.id in NO_KV_CACHE for one in serving_notes):
        # The weights fit, but no KV cache is left for a single inference request.
        fits = replace(fits, fits="no")
    timed = _loaded(timed, serving)
    of_time = (*timed.warnings, *own_record_note(timed.time.sources)) if timed else ()
    warnings = (*memory.warnings, *_lacks(fits, timed), *resolved.timeless, *of_time, *serving_notes)
    chosen = concurrency_note(workload, shape, gpu, resolved.user_fields)
    if resolved.wanted_batch:
        chosen = (*chosen, msg("note.batch-capped", batch=resolved.wanted_batch, fits=workload.batch or 1))
    chosen = (*chosen, *decoding_notes(workload, shape), *_speculation_gain(resolved, lookups, timed))
    guidance = advice(workload, shape, gpu, timed.throughput if timed else None, lookups.catalog, resolved.user_fields)
    copied: dict[str, Any] = {name: getattr(timed, name, None) for name in TIME_FIELDS}
    copied["new_on"] = timed.new_on if timed else ()
    copied |= {name: getattr(fits, name, None) for name in ("fits", "usable", "headroom")}
    copied |= _engine_start(resolved, memory.parts, settings)
    copied |= _evidence(resolved, lookups)
    return EstimateAnswer(
        request=echo(workload, resolved.user_fields),
        **copied,
        memory=memory.allocated,
        memory_device=memory.device
        if fits is None or allowed is None
        else fitting.device_usage(need, memory.device, fits.usable, workload),
        memory_parts=memory.parts,
        group=group,
        run=_run(resolved, lookups, timed),
        serving=serving,
        checked=gpu.checked if gpu else None,
        warnings=tuple(dict.fromkeys((*warnings, *guidance.warnings, *chosen, *remarks(workload, shape, resolved.user_fields)))),
        basis=timed.time.basis if timed else memory.device.basis,
        sources=tuple(dict.fromkeys((*(timed.time.sources if timed else ()), *memory.device.sources, *guidance.sources))),
    )


def _speculation_gain(resolved: ResolvedWorkload, lookups: LookupCache, timed: TimeEstimate | None) -> tuple[Message, ...]:
    """Return a note on how much faster or slower speculative decoding is than plain decoding at this batch."""
    workload = resolved.workload
    if timed is None or workload.speculative is None or not workload.traits.decoding or not resolved.shape.is_generative:
        return ()
    plain, _ = _time(replace(resolved, workload=replace(workload, speculative=None)), lookups)
    if plain is None:
        return ()
    gain = plain.time.value / timed.time.value
    values = {"tokens": f"{workload.speculative.accepted:.2g}", "batch": workload.batch or 1}
    id, factor = ("note.speculative-gain", gain) if gain >= 1 else ("note.speculative-loss", 1 / gain)
    return (msg(id, factor=f"{factor:.2f}", **values),)


def _engine_start(
    resolved: ResolvedWorkload, parts: Mapping[str, Figure], settings: MemorySettings | None
) -> dict[str, Figure | None]:
    """Return the answer's `kv_tokens` (KV cache of one replica) and `startup` (seconds until the engine serves), or None."""
    workload, shape, gpu = resolved.workload, resolved.shape, resolved.gpu
    if gpu is None or not isinstance(shape, Transformer) or not workload.traits.caching or "weights" not in parts:
        return {"kv_tokens": None, "startup": None}
    from whichgpu.estimate.serving.kv_capacity import DEFAULTS, kv_tokens
    from whichgpu.estimate.startup import engine_startup

    tokens = kv_tokens(workload, shape, gpu, settings or DEFAULTS, parts)
    return {"kv_tokens": tokens, "startup": engine_startup(workload, shape, parts["weights"].value)}


def _evidence(resolved: ResolvedWorkload, lookups: LookupCache) -> dict[str, Any]:
    """Return the answer's `evidence` (nearest measurements) and `evidence_error`; none without a time estimate."""
    if resolved.gpu is None or not resolved.timed:
        return {"evidence": (), "evidence_error": None}
    from whichgpu.estimate.nearest_evidence import nearest_evidence

    near = nearest_evidence(resolved.workload, resolved.shape, resolved.gpu, lookups.catalog)
    return {"evidence": near.nearest, "evidence_error": near.error}


def _time(resolved: ResolvedWorkload, lookups: LookupCache) -> tuple[TimeEstimate | None, GroupTime | None]:
    """Return the time estimate, and its breakdown if there are several GPUs."""
    workload, shape, gpu = resolved.workload, resolved.shape, resolved.gpu
    if gpu is None or not resolved.timed:
        return None, None
    if workload.gpus > 1:
        from whichgpu.estimate.group.group_answer import group_time_of

        return group_time_of(workload, shape, gpu, machine_of(workload, gpu, lookups.catalog), lookups.calibration)
    from whichgpu.estimate.time.time_estimate import estimate_time

    return estimate_time(workload, shape, gpu, lookups.calibration), None


def _run(resolved: ResolvedWorkload, lookups: LookupCache, timed: TimeEstimate | None) -> Run | None:
    """Return duration and cost of the whole run; None if its length was not given or there is no time estimate."""
    if timed is None or resolved.gpu is None or not resolved.user_fields & {"epochs", "steps", "tokens", "samples"}:
        return None
    from whichgpu.api.workloads.runs import run_of

    day = lookups.as_of or lookups.catalog.as_known or date.today()
    return run_of(resolved.workload, resolved.shape, timed.throughput, resolved.gpu, day, lookups.catalog, resolved.user_fields)


def _serving(
    resolved: ResolvedWorkload, lookups: LookupCache, timed: TimeEstimate | None, loading: Loading | None
) -> tuple[ServingAnswer | None, tuple[Message, ...]]:
    """Return the result of the serving simulation and its warnings; None and no warnings if no request rate was given."""
    workload, gpu = resolved.workload, resolved.gpu
    if not workload.serving or workload.rate is None or gpu is None or timed is None:
        return None, ()
    from whichgpu.api.workloads.load import under_load

    return (loading or under_load)(workload, resolved.shape, gpu, lookups.catalog, timed.time)


def _lacks(fits: fitting.FitResult | None, timed: TimeEstimate | None) -> tuple[Message, ...]:
    """Return the memory check's warnings; one on an unsupported precision is dropped if the time estimate also has it."""
    messages = fits.warnings if fits else ()
    return tuple(one for one in messages if timed is None or one.id != "warning.no-dtype")


def _loaded(timed: TimeEstimate | None, serving: ServingAnswer | None) -> TimeEstimate | None:
    """Return the time estimate with TTFT and TPOT under the load in place of those of a single request."""
    if timed is None or serving is None:
        return timed
    tpot = serving.tpot["p50"]
    return replace(timed, time=tpot, tpot=tpot, ttft=serving.ttft["p50"], throughput=serving.throughput)
