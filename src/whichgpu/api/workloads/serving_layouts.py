"""Choose the layout that serves a load best, by closed-form estimates of every valid layout."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.api.workloads.advice import machine_of
from whichgpu.api.workloads.estimate import resolve_workload
from whichgpu.api.workloads.layouts import with_best_layout
from whichgpu.api.workloads.load import LoadOptions, load_of, with_rate_and_lengths
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.layouts import legal_layouts
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.serving.load import Load, longest_request, mean_lengths
from whichgpu.estimate.serving.load_screen import LoadScreen, screen_load
from whichgpu.estimate.serving.server import server_of
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import ParsedWorkload
from whichgpu.workload.traces.reader import read_trace
from whichgpu.workload.workload import Parallel, Workload

MAX_UTILISATION = 0.8  # Queueing is short up to this share of the saturation rate (assumed).


def with_best_serving_layout(spelled: ParsedWorkload, lookups: LookupCache, options: LoadOptions | None = None) -> ParsedWorkload:
    """Return the request in the layout with the lowest TPOT that sustains the load, or with the highest capacity if none does."""
    options = options or LoadOptions()
    trace = read_trace(options.trace) if options.trace else None
    resolved = resolve_workload(with_rate_and_lengths(spelled, trace, options), lookups)
    workload, shape, gpu = resolved.workload, resolved.shape, resolved.gpu
    if gpu is None or workload.gpus < 2 or not isinstance(shape, Transformer) or not shape.causal or not workload.rate:
        return with_best_layout(spelled, lookups)
    load = load_of(workload, options, trace)
    layouts = screened_layouts(workload, shape, gpu, lookups.catalog, load, options)
    if not layouts:
        raise NoAnswer("no-layout", msg("error.no-layout", gpus=workload.gpus, gpu=gpu.name), msg("hint.no-layout"))
    sustaining = [(screen.tpot, layout) for screen, layout in layouts if screen.utilisation <= MAX_UTILISATION]
    _, best = (
        min(sustaining, key=lambda one: one[0])
        if sustaining
        else max(((screen.saturation, layout) for screen, layout in layouts), key=lambda one: one[0])
    )
    chosen = replace(spelled.workload, parallel=best, batch=max(best.dp, workload.batch or 1), gpus=workload.gpus)
    return ParsedWorkload(chosen, resolved.user_fields)


def screened_layouts(
    workload: Workload, shape: Transformer, gpu: Gpu, catalog: Catalog, load: Load, options: LoadOptions
) -> list[tuple[LoadScreen, Parallel]]:
    """Return closed-form estimates of serving the load in every layout (parallel degrees) that fits in memory."""
    prompt, output = mean_lengths(load)
    sized = replace(workload, seq_in=max(1, round(prompt)), seq_out=max(1, round(output)))
    machine, layouts = machine_of(workload, gpu, catalog), []
    for layout in legal_layouts(workload, shape, workload.gpus, workload.nodes):
        laid = replace(sized, parallel=layout, batch=layout.dp, micro_batch=None)
        try:
            server = server_of(laid, shape, gpu, machine, options.limits, longest_request(load))
        except NoAnswer:  # No KV cache fits.
            continue
        layouts.append((screen_load(server, load), layout))
    return layouts
