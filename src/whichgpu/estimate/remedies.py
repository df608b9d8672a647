"""Remedies for a workload that does not fit, least painful first, with the bytes saved and the new verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from whichgpu.base.errors import WhichGpuError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.fit import MemoryCurve, MemoryOf, Verdict, fewest_on_host, fit, required_memory, verdict
from whichgpu.workload.decoding.offload import Offload
from whichgpu.workload.denoisers import pipeline_of
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import KINDS, Parallel, Workload

FP32_WEIGHT_PRECISIONS = ("fp32", "fp32-default", "tf32", "amp-bf16", "amp-fp16")
FULL_PRECISIONS = ("bf16", "fp16", "f16", "f32")
LORA_RANK = 16  # rank of the adapters that a LoRA remedy suggests (a common default)
SAME_SIZE_RATIO = 1.03  # memory sizes within 3% count as equal
GPU_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)
MIN_CONTEXT = 512  # tokens below which no context is suggested


class Remedy(msgspec.Struct, frozen=True):
    """A change that saves memory: its fields, bytes saved on the fullest GPU, the verdict, and that with earlier remedies too."""

    id: str
    what: Message
    change: dict[str, Any]
    saves: int
    fits: Verdict
    together: Verdict


class FitProblem(msgspec.Struct, frozen=True):
    """A workload that does not fit `usable` bytes, with its required bytes as functions of batch and of context."""

    workload: Workload
    shape: Shape
    usable: int
    memory: MemoryOf
    batch: MemoryCurve
    context: MemoryCurve

    def need(self, workload: Workload) -> Figure:
        """Return the memory in bytes that a changed workload requires."""
        return required_memory(self.memory(workload), workload)


def remedies(problem: FitProblem, gpu: Gpu, able: Sequence[Gpu] = ()) -> tuple[Remedy, ...]:
    """Return every remedy that applies and saves memory; `able` are the GPUs that fit, smallest first (`gpus_that_fit`)."""
    results: list[Remedy] = []
    before = problem.need(problem.workload).value
    running = problem.workload
    for id, step in STEPS:
        for changed in _tried(step, problem):
            alone = problem.need(changed)
            if alone.value >= before:
                continue
            change = _difference(problem.workload, changed)
            running = replace(running, **change)
            together = problem.need(running)
            what = _words(id, change, problem.workload)
            fields = {name: _plain(value) for name, value in change.items()}
            limits = (verdict(alone, problem.usable), verdict(together, problem.usable))
            results.append(Remedy(id, what, fields, int(before - alone.value), *limits))
    return (*results, *_next_gpu(gpu, able))


def _tried(step: Callable[[FitProblem], Iterator[Workload]], problem: FitProblem) -> list[Workload]:
    """Return the changed workloads that a remedy proposes; none if they cannot be estimated."""
    try:
        return [changed for changed in step(problem) if problem.memory(changed)]
    except WhichGpuError:
        return []


def _smaller_batch(problem: FitProblem) -> Iterator[Workload]:
    workload, local = problem.workload, problem.workload.local_batch
    if local == 1:
        return
    room = max(1, min(local - 1, problem.batch.largest(problem.usable)))
    if not workload.training:
        yield replace(workload, batch=room * workload.parallel.dp, micro_batch=None)
        return
    micro = next(size for size in range(room, 0, -1) if local % size == 0)
    yield replace(workload, micro_batch=micro, accumulation=workload.accumulation * (local // micro))


def _shorter_context(problem: FitProblem) -> Iterator[Workload]:
    workload = problem.workload
    if not problem.shape.is_transformer or not workload.seq_in:
        return
    answer = 0 if workload.training else workload.seq_out or 0
    room = (problem.context.to_user_units(problem.context.largest(problem.usable)) - answer) // 128 * 128
    if MIN_CONTEXT <= room < workload.seq_in:
        yield replace(workload, seq_in=room)


def _checkpointing(problem: FitProblem) -> Iterator[Workload]:
    if problem.workload.training and problem.workload.checkpointing == "none":
        yield replace(problem.workload, checkpointing="full")


def _half_precision(problem: FitProblem) -> Iterator[Workload]:
    if problem.workload.precision in FP32_WEIGHT_PRECISIONS:
        yield replace(problem.workload, precision="fp16" if problem.workload.precision == "amp-fp16" else "bf16")


def _eight_bit_optimizer(problem: FitProblem) -> Iterator[Workload]:
    workload = problem.workload
    if workload.training and workload.optimizer in ("adam", "adamw") and not workload.lora_rank:
        yield replace(workload, optimizer="adamw-8bit")


def _lora(problem: FitProblem) -> Iterator[Workload]:
    if problem.workload.traits.finetuning and problem.shape.is_transformer and not problem.workload.lora_rank:
        yield replace(problem.workload, lora_rank=LORA_RANK)


def _qlora(problem: FitProblem) -> Iterator[Workload]:
    workload = problem.workload
    if workload.traits.finetuning and problem.shape.is_transformer and not workload.qlora:
        yield replace(workload, qlora=True, lora_rank=workload.lora_rank or LORA_RANK)


def _kv_cache(problem: FitProblem) -> Iterator[Workload]:
    if problem.workload.kv_precision in ("bf16", "fp16", "fp32") and not problem.workload.training:
        yield replace(problem.workload, kv_precision="fp8")
    elif problem.workload.kv_precision == "f16":
        yield replace(problem.workload, kv_precision="q8_0")


def _quantise(problem: FitProblem) -> Iterator[Workload]:
    workload = problem.workload
    if workload.training or not problem.shape.is_transformer:
        return
    steps = ("q8_0", "q4_k_m") if engine_record(workload.engine).kernels.weight_only_gemm == "gguf" else ("int8", "int4")
    if workload.precision in (*FP32_WEIGHT_PRECISIONS, *FULL_PRECISIONS):
        yield replace(workload, precision=steps[0])
    if workload.precision in (*FP32_WEIGHT_PRECISIONS, *FULL_PRECISIONS, "fp8", "int8", "q8_0"):
        yield replace(workload, precision=steps[1])


def _offload(problem: FitProblem) -> Iterator[Workload]:
    """Yield the request with experts, or else some layers, in host memory, if its engine computes with them there.

    Of a diffusion model, the parts that do not run are in host memory.
    """
    workload, shape = problem.workload, problem.shape
    if pipeline_of(workload, shape) and workload.offload is None:
        yield replace(workload, offload=Offload(parts=True))
        return
    hosted = engine_record(workload.engine, workload.year).splits_layers and workload.offload is None
    if workload.training or not hosted or not isinstance(shape, Transformer):
        return

    def fits(offload: Offload) -> bool:
        return problem.need(replace(workload, offload=offload)).high <= problem.usable

    yield replace(workload, offload=fewest_on_host(shape, fits))


def _more_gpus(problem: FitProblem) -> Iterator[Workload]:
    """Yield the workload on the smallest multiple of its GPUs that fits: tensor parallelism for inference, ZeRO 3 for training.

    If none fits, yield the smallest multiple on which it is tight, else the largest tried.
    """
    workload, layout = problem.workload, problem.workload.parallel
    tried = tight = None
    for times in GPU_MULTIPLES:
        if workload.training:
            split = replace(layout, dp=layout.dp * times, zero=3)
        elif isinstance(problem.shape, Transformer) and problem.shape.heads % (layout.tp * times) == 0:
            split = replace(layout, tp=layout.tp * times)
        else:
            break
        tried = replace(workload, gpus=workload.gpus * times, parallel=split)
        outcome = verdict(problem.need(tried), problem.usable)
        if outcome == "fits":
            yield tried
            return
        tight = tight or (tried if outcome == "tight" else None)
    if (nearest := tight or tried) is not None:
        yield nearest


# Remedies in the order suggested: first those that cost time, then quality, then money.
STEPS: tuple[tuple[str, Callable[[FitProblem], Iterator[Workload]]], ...] = (
    ("smaller-batch", _smaller_batch),
    ("checkpointing", _checkpointing),
    ("half-precision", _half_precision),
    ("8-bit-optimizer", _eight_bit_optimizer),
    ("kv-cache", _kv_cache),
    ("shorter-context", _shorter_context),
    ("lora", _lora),
    ("qlora", _qlora),
    ("quantise", _quantise),
    ("offload", _offload),
    ("more-gpus", _more_gpus),
)


def gpus_that_fit(need: Figure, workload: Workload, gpus: Sequence[Gpu], allowed: float | None = None) -> tuple[Gpu, ...]:
    """Return the GPUs on which the workload fits without warnings, smallest first; of nearly equal sizes the newest first."""
    sizes: dict[str, int] = {}
    for gpu in gpus:
        answer = fit(need, workload, gpu, allowed)
        if answer.fits == "fits" and not answer.warnings:
            sizes[gpu.id] = answer.usable
    return smallest_first(gpus, sizes)


def smallest_first(gpus: Sequence[Gpu], sizes: Mapping[str, int]) -> tuple[Gpu, ...]:
    """Return the GPUs ordered by `sizes` in bytes, smallest first; of nearly equal sizes the newest first."""
    able = sorted((gpu for gpu in gpus if gpu.id in sizes), key=lambda gpu: sizes[gpu.id])
    classes: list[list[Gpu]] = []
    for gpu in able:
        if classes and sizes[gpu.id] <= SAME_SIZE_RATIO * sizes[classes[-1][0].id]:
            classes[-1].append(gpu)
        else:
            classes.append([gpu])
    return tuple(gpu for same in classes for gpu in sorted(same, key=lambda gpu: gpu.launch_date, reverse=True))


def _next_gpu(gpu: Gpu, able: Sequence[Gpu]) -> tuple[Remedy, ...]:
    """Return the smallest GPU that fits, preferably of the same vendor and segment, else of the same vendor, else of any."""
    kin: tuple[Callable[[Gpu], bool], ...] = (
        lambda other: other.vendor == gpu.vendor and other.segment == gpu.segment,
        lambda other: other.vendor == gpu.vendor,
        lambda other: other.segment != "soc",
    )
    for test in kin:
        if chosen := next(filter(test, able), None):
            return (Remedy("next-gpu", msg("remedy.next-gpu", gpu=chosen.name), {"gpu": chosen.id}, 0, "fits", "fits"),)
    return ()


def _difference(before: Workload, after: Workload) -> dict[str, Any]:
    return {name: value for name, value in asdict(after).items() if value != getattr(before, name)}


def _words(id: str, change: dict[str, Any], workload: Workload) -> Message:
    """Return the message of a remedy, worded from the fields it changes."""
    if id == "smaller-batch" and workload.training:
        return msg("remedy.smaller-micro-batch", micro_batch=change["micro_batch"], accumulation=change["accumulation"])
    if id == "smaller-batch":
        return msg("remedy.smaller-batch", size=change["batch"])
    if id == "more-gpus":
        layout = change["parallel"]
        split = "ZeRO 3" if workload.training else f"TP {layout.tp}"
        return msg("remedy.more-gpus", gpus=change["gpus"], split=split)
    if id == "offload":
        offload = change["offload"]
        if offload.parts:
            return msg("remedy.offload-parts")
        kind = ("some-experts" if offload.layers else "experts") if offload.experts else "layers"
        return msg(f"remedy.offload-{kind}", layers=offload.layers)
    return msg(f"remedy.{id}", **change)


def _plain(value: Any) -> Any:
    if isinstance(value, Offload):
        return KINDS["offload"].write(value)
    return KINDS["parallel"].write(value) if isinstance(value, Parallel) else value
