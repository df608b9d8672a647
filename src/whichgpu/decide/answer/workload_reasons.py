"""Reasons that only some workloads have: experts in memory, sequences that fill a GPU, seconds a picture, master weights, MFU."""

from __future__ import annotations

from collections.abc import Iterator

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.answer.utilisation import utilisation_reason
from whichgpu.decide.candidate import Candidate
from whichgpu.decide.configurations.configuration import Infeasibility, WorkloadRequest
from whichgpu.decide.question import EvaluatedQuestion
from whichgpu.decide.recommend import RankedCandidates
from whichgpu.workload.defaults import chooses_batch
from whichgpu.workload.denoisers import pipeline_of
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer

MACHINE_GPUS = 8  # GPUs of the machines whose memory is compared with what a training run needs.
LARGE_MEMORY = 80e9  # Bytes of the GPUs that people expect to hold it.


def workload_reasons(one: Candidate, request: WorkloadRequest, gpu: Gpu) -> Iterator[Message]:
    """Yield what decides a candidate of this kind of workload, beside its speed, memory and price."""
    workload, shape = request.workload, request.shape
    used = utilisation_reason(one, workload, shape, gpu)
    if used is not None:
        yield used
    if isinstance(shape, Transformer) and shape.experts and not workload.training:
        counted = count_parameters(shape)
        yield msg("because.moe", total=_billions(counted.total), active=_billions(counted.active))
    if chooses_batch(workload, shape, request.stated) and workload.generating and shape.is_generative:
        yield msg("because.sequences", n=max(1, one.batch // one.parallel.dp))
    if pipeline_of(workload, shape) is not None and workload.denoising_steps:
        seconds = format_seconds(float(one.gpus) / one.throughput.value)
        guided = "because.pictures-guided" if workload.guidance else "because.pictures"
        yield msg(guided, seconds=seconds, steps=workload.denoising_steps)


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
