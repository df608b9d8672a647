"""Suggestion of a faster layout for a training step on several GPUs whose layout the user left open."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.api.workloads.advice import machine_of
from whichgpu.api.workloads.estimate import EstimateAnswer, resolve_workload
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant, with_unit
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.configurations.training import train
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.group_answer import layout_words
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.spelling import ParsedWorkload

MIN_GAIN = 1.1  # A layout is suggested if its throughput is at least this many times that of the default (assumed).


def with_suggestion(answer: EstimateAnswer, parsed: ParsedWorkload, lookups: LookupCache) -> EstimateAnswer:
    """Return the estimate with a line on a faster layout and micro-batch, if the user left the layout of a training step open."""
    workload = parsed.workload
    if not workload.training or workload.gpus < 2 or "parallel" in parsed.user_fields or answer.throughput is None:
        return answer
    suggestion = _suggestion(answer.throughput.value, parsed, lookups)
    return answer if suggestion is None else replace(answer, warnings=(*answer.warnings, suggestion))


def _suggestion(rate: float, parsed: ParsedWorkload, lookups: LookupCache) -> Message | None:
    """Return a message on the layout and micro-batch with the highest throughput; None if it gains little over `rate`."""
    resolved = resolve_workload(parsed, lookups)
    workload, shape, gpu = resolved.workload, resolved.shape, resolved.gpu
    if gpu is None or not shape.is_transformer:
        return None
    fabric = fabric_of(
        gpu, machine_of(workload, gpu, lookups.catalog), workload.interconnect, workload.network_gbps, workload.network
    )
    group = Group(gpu, max(1, workload.gpus // workload.nodes), workload.nodes, fabric, precision=workload.precision)
    free = replace(workload, batch=None, micro_batch=None) if "batch" not in parsed.user_fields else workload
    request = WorkloadRequest(free, parsed.user_fields, shape, lookups.calibration, parsed.workload)
    (best,) = train(request, [group])
    if not isinstance(best, Configuration) or best.rate < MIN_GAIN * rate:
        return None
    values = {
        "layout": layout_words(best.parallel),
        "micro": best.micro_batch or best.batch,
        "gain": significant(best.rate / rate, 2),
    }
    id = "note.better-layout" if best.checkpointing == "none" else "note.better-layout-checkpointing"
    return msg(id, rate=with_unit(best.rate, best.unit), **values)
