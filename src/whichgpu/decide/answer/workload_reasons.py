"""Reasons that only some workloads have: experts in memory, sequences that fill a GPU, seconds a picture, hours of audio, MFU."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from msgspec.structs import replace

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount, format_seconds, significant
from whichgpu.decide.answer.utilisation import utilisation_reason
from whichgpu.decide.candidate import Candidate
from whichgpu.decide.configurations.configuration import Infeasibility, WorkloadRequest
from whichgpu.decide.configurations.evaluate import best_configurations
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.question import EvaluatedQuestion
from whichgpu.decide.recommend import RankedCandidates
from whichgpu.workload.defaults import chooses_batch
from whichgpu.workload.denoisers import pipeline_of
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer

COMMON_STEPS = 30  # Denoising steps that many people use where a model's default is more (assumed).
AUDIO_WINDOW = 30.0  # Seconds of audio in one input of Whisper (chunk_length of its feature extractor).
NETWORK_NAMES = {"infiniband": "InfiniBand", "efa": "EFA", "roce": "RoCE", "ethernet": "Ethernet"}  # as people write them
MACHINE_GPUS = 8  # GPUs of the machines whose memory is compared with what a training run needs.
LARGE_MEMORY = 80e9  # Bytes of the GPUs that people expect to hold it.


def workload_reasons(one: Candidate, request: WorkloadRequest, group: Group) -> Iterator[Message]:
    """Yield what decides a candidate of this kind of workload, beside its speed, memory and price."""
    workload, shape = request.workload, request.shape
    used = utilisation_reason(one, workload, shape, group.gpu)
    if used is not None:
        yield used
    if group.machines > 1 and one.purchase is None and one.term != "owned":
        kind = group.fabric.network_kind
        rate = significant(group.fabric.network_bandwidth * 8 / 1e9)
        yield msg("because.cluster", n=group.machines, kind=NETWORK_NAMES.get(kind, kind), rate=rate, provider=one.provider)
    if isinstance(shape, Transformer) and shape.experts and not workload.training:
        counted = count_parameters(shape)
        yield msg("because.moe", total=_billions(counted.total), active=_billions(counted.active))
    if chooses_batch(workload, shape, request.stated) and workload.generating and shape.is_generative:
        yield msg("because.sequences", n=max(1, one.batch // one.parallel.dp))
    if isinstance(shape, Transformer) and shape.model_type == "whisper" and workload.generating and workload.seq_out:
        speed = one.throughput.value / workload.seq_out * AUDIO_WINDOW
        cost = format_amount(one.cost_per_hour.amount / Decimal(speed))
        yield msg("because.audio", speed=significant(speed), cost=cost, currency=one.cost_per_hour.currency)
    if pipeline_of(workload, shape) is not None and workload.denoising_steps:
        seconds = float(one.gpus) / one.throughput.value
        guided = "because.pictures-guided" if workload.guidance else "because.pictures"
        values = {"seconds": format_seconds(seconds), "steps": workload.denoising_steps}
        fewer = _with_common_steps(request, group, seconds)
        yield msg(guided, **values) if fewer is None else msg(f"{guided}-fewer", fewer=fewer, few=COMMON_STEPS, **values)


def _with_common_steps(request: WorkloadRequest, group: Group, seconds: float) -> str | None:
    """Return the seconds of a picture with 30 steps, from those with more by default; None if the user states the steps."""
    steps = request.workload.denoising_steps or 0
    if steps <= COMMON_STEPS or "denoising_steps" in request.stated:
        return None
    shorter = replace(request, workload=replace(request.workload, denoising_steps=COMMON_STEPS))
    usual, common = (best_configurations(one, [group])[0] for one in (request, shorter))
    if isinstance(usual, Infeasibility) or isinstance(common, Infeasibility):
        return None
    return format_seconds(seconds * usual.rate / common.rate)


def machine_too_small(best: Candidate, ranked: RankedCandidates, screened: EvaluatedQuestion) -> Iterator[Message]:
    """Yield the largest GPU of which 8 do not hold a training run that all weights take part in, if any of 80 GB or more."""
    workload = screened.request.workload
    if not workload.training or workload.lora_rank or best.precision not in ("amp-bf16", "amp-fp16"):
        return
    pairs = zip(screened.groups.groups, ranked.results, strict=True)
    machines = [(group.gpu, result) for group, result in pairs if group.gpus == MACHINE_GPUS and group.machines == 1]
    holding = {gpu.id for gpu, result in machines if not isinstance(result, Infeasibility)}
    small = [gpu for gpu, _ in machines if gpu.id not in holding and gpu.memory_marketed_bytes >= LARGE_MEMORY]
    if small:
        largest = max(small, key=lambda gpu: gpu.memory_marketed_bytes)
        yield msg("recommend.too-small-training", gpu=largest.name, memory=largest.memory_label, n=MACHINE_GPUS)


def _billions(count: float) -> str:
    """Return a number of parameters in billions.

    >>> _billions(46_702_792_704)
    '46.7B'
    """
    return f"{significant(count / 1e9)}B"
