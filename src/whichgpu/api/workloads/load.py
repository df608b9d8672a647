"""Simulate serving with a request rate or a trace on given GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, floor
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.api.workloads.advice import machine_of
from whichgpu.api.workloads.remarks import MAX_SIMULATED_REQUESTS
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.load import Lengths, Load, longest_request, mean_lengths, with_lengths
from whichgpu.estimate.serving.load_screen import screen_load
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides
from whichgpu.estimate.serving.server import Server, server_of
from whichgpu.estimate.serving.serving_answer import ServingAnswer
from whichgpu.estimate.serving.serving_answer import serving_answer as simulated
from whichgpu.estimate.serving.summary import MIN_REQUESTS_BEYOND, WARM_UP_SHARE
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.spelling import ParsedWorkload
from whichgpu.workload.traces.reader import Trace
from whichgpu.workload.workload import Workload

MIN_REQUESTS, MAX_REQUESTS = (
    2000,
    40_000,
)  # Bounds of the requests simulated by default: enough for p99 and to fill the batch often (assumed).
BATCH_FILLS = 20  # Requests simulated per running sequence (assumed).
SimulationProgress = Callable[[float], None]


class LoadOptions(msgspec.Struct, frozen=True):
    """Options of a load besides its rate and mean lengths: trace, burstiness, spread of lengths, limits of the scheduler."""

    trace: Path | None = None
    requests: int | None = None
    seed: int = 0
    burstiness: float = 1.0
    in_spread: float = 0.0
    out_spread: float = 0.0
    in_histogram: Mapping[float, float] = msgspec.field(default_factory=dict)
    out_histogram: Mapping[float, float] = msgspec.field(default_factory=dict)
    limits: LimitOverrides = msgspec.field(default_factory=LimitOverrides)
    curve: bool = True


def under_load(
    workload: Workload, shape: Shape, gpu: Gpu, catalog: Catalog, like: Figure, options: LoadOptions | None = None,
    trace: Trace | None = None, progress: SimulationProgress | None = None,
) -> tuple[ServingAnswer | None, tuple[Message, ...]]:  # fmt: skip
    """Return the simulated serving under load, or None, and warnings; all step times get the relative 90% range of `like`."""
    if not isinstance(shape, Transformer) or not shape.is_generative or not workload.rate:
        return None, (msg("serving.no-tokens", model=shape.name),)
    options = options or LoadOptions(curve=False)
    load = load_of(workload, options, trace)
    prompt, output = mean_lengths(load)
    sized = replace(workload, seq_in=max(1, round(prompt)), seq_out=max(1, round(output)))
    goals = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile)
    try:
        server = server_of(sized, shape, gpu, machine_of(workload, gpu, catalog), options.limits, longest_request(load))
        if trace is None and options.requests is None:
            load = load.at(load.rate, _drawn(server, load, goals))
        _refuse_beyond(load, goals)
        simulation = simulated(server, load, goals, like, options.curve, progress)
    except NoAnswer as none:  # The estimate without a load is still valid.
        return None, (none.message,)
    return simulation, simulation.warnings


def load_of(workload: Workload, options: LoadOptions, trace: Trace | None) -> Load:
    """Return the load to simulate (arrival rate, lengths or trace) that a workload and its options describe."""
    assert workload.rate is not None
    prompts = _lengths(workload.seq_in or 1, options.in_spread, options.in_histogram)
    outputs = _lengths(workload.seq_out or 1, options.out_spread, options.out_histogram)
    return Load(
        rate=workload.rate,
        prompts=prompts,
        outputs=outputs,
        requests=options.requests or (len(trace) if trace else MIN_REQUESTS),
        burstiness=options.burstiness,
        seed=options.seed,
        trace=with_lengths(trace, prompts, outputs, options.seed) if trace else None,
    )


def _lengths(mean: int, spread: float, histogram: Mapping[float, float]) -> Lengths:
    return Lengths.histogram(tuple(histogram), tuple(histogram.values())) if histogram else Lengths(float(mean), spread)


def _drawn(server: Server, load: Load, goals: Objectives) -> int:
    """Return how many inference requests to simulate: enough to fill the batch often and to judge the objectives' percentile."""
    screen = screen_load(server, load)
    request_count = wanted_for(goals.percentile) if goals.any else MIN_REQUESTS
    return int(min(MAX_REQUESTS, max(MIN_REQUESTS, request_count, BATCH_FILLS * screen.batch * server.replicas * server.stages)))


def wanted_for(percentile: float) -> int:
    """Return how many inference requests to simulate so that enough lie beyond a latency percentile, warm-up not counted.

    >>> wanted_for(95.0), wanted_for(99.9)
    (223, 11112)
    """
    return ceil(round(MIN_REQUESTS_BEYOND / (1.0 - percentile / 100.0) / (1.0 - WARM_UP_SHARE), 6))


def _refuse_beyond(load: Load, goals: Objectives) -> None:
    """Raise an error if too few requests are simulated for the objectives' percentile; a short trace does not raise one."""
    counted = int(load.requests * (1.0 - WARM_UP_SHARE))
    if load.trace is not None or not goals.any or counted * (100.0 - goals.percentile) / 100.0 >= 1.0:
        return
    highest_percentile = f"{floor(1e4 * (1.0 - 1.0 / counted)) / 100.0:g}"
    values = {"percentile": f"{goals.percentile:g}", "n": f"{counted:,}", "most": highest_percentile}
    count = wanted_for(goals.percentile)
    id = "hint.percentile-beyond" if count <= MAX_SIMULATED_REQUESTS else "hint.percentile-most"
    raise UsageError("bad-field", msg("error.percentile-beyond", **values), msg(id, **values, count=count), ("--percentile",))


def with_rate_and_lengths(spelled: ParsedWorkload, trace: Trace | None, options: LoadOptions | None = None) -> ParsedWorkload:
    """Return the request with mean lengths from the trace or histograms, and the trace's rate if none was given."""
    if trace is None:
        if spelled.workload.rate is None:
            raise UsageError("no-rate", msg("error.no-rate"), msg("hint.no-rate"))
        return _with_means(spelled, options or LoadOptions())
    if spelled.workload.rate is None and trace.rate is None:
        raise UsageError("no-rate", msg("error.trace-no-rate", name=trace.name), msg("hint.no-rate"))
    timed = ParsedWorkload(replace(spelled.workload, rate=spelled.workload.rate or trace.rate), spelled.user_fields)
    if not trace.has_lengths:
        return _with_means(timed, options or LoadOptions())
    lengths: dict[str, Any] = {"seq_in": round(fmean(trace.prompts)), "seq_out": round(fmean(trace.outputs))}
    return ParsedWorkload(replace(timed.workload, **lengths), spelled.user_fields)


def _with_means(spelled: ParsedWorkload, options: LoadOptions) -> ParsedWorkload:
    histograms = {"seq_in": options.in_histogram, "seq_out": options.out_histogram}
    lengths: dict[str, Any] = {
        name: max(1, round(_lengths(1, 0.0, values).mean)) for name, values in histograms.items() if values
    }
    return ParsedWorkload(replace(spelled.workload, **lengths), spelled.user_fields) if lengths else spelled
