"""Training of transformers: the layout, micro-batch and checkpointing with the highest throughput on each group of GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import product

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from whichgpu.base.figure import Figure
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility, WorkloadRequest
from whichgpu.decide.configurations.groups import Group, solve_by_class
from whichgpu.estimate.fit import adapts_by_default, verdict
from whichgpu.estimate.group.layout_memory import LayoutMemory
from whichgpu.estimate.group.layout_times import LayoutStep, LayoutTimes, micro_batch_sizes
from whichgpu.estimate.group.layouts import divides_evenly
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.time.time_estimate import work_per_step
from whichgpu.estimate.usable import usable_bytes
from whichgpu.price.table import Floats, Ints
from whichgpu.workload.shapes import Transformer, as_transformer
from whichgpu.workload.training_defaults import default_batch, pipeline_passes
from whichgpu.workload.workload import Parallel, Workload

NEED_RANGE = 0.08  # Half the width of an interpolated memory need's range, as a share of the need.
STAGES = (2, 4, 8, 16)  # These numbers of pipeline stages are tried.
TENSOR_DEGREES = (1, 2, 4, 8)  # Tensor parallel degrees tried within a machine.
MAX_STAGE_PASSES = 16  # Most micro-batches per pipeline stage (assumed): 6% of such a step is pipeline bubble.
ZERO_STAGES = (0, 2, 3)  # Stage 1 is left out, since stage 2 sends no more and stores less.
# Sequences per pass tried on several GPUs if no batch is given.
DEFAULT_MICRO_BATCHES: Floats = 2.0 ** np.arange(6, dtype=np.float64)
RATE_TIE = 0.03  # Share of throughput within which two steps count as equally fast (assumed).
# Most tokens of one optimizer step that a default batch may have: 4M in training and 64 sequences of 4,096 in fine-tuning, as
# Llama 2 was trained (https://arxiv.org/abs/2307.09288, 2023-07).
MAX_STEP_TOKENS, MAX_FINETUNE_STEP_TOKENS = 4_194_304, 262_144


class ScreenedSteps(msgspec.Struct, frozen=True):
    """Training steps (layout, checkpointing, micro-batch) on one number of GPUs, and their interpolated needs and rates."""

    steps: tuple[tuple[Parallel, str], ...]  # layout and checkpointing of each step
    micro: Floats  # sequences of a micro-batch
    rounds: Floats  # micro-batches of an optimizer step
    batch: Floats  # sequences that an optimizer step processes on all GPUs
    plain: NDArray[np.bool_]  # whether activations are kept without checkpointing
    need: Floats  # bytes needed on each GPU
    seconds: Floats  # seconds of a step on each device, [devices, steps]
    smallest: float  # smallest need of all, also of steps that fit no device, in bytes per GPU

    @staticmethod
    def of(layouts: Sequence[LayoutStep], needs: list[Floats], seconds: list[Floats], smallest: float) -> ScreenedSteps:
        """Return one step for every micro-batch of every layout."""
        steps = tuple((one.parallel, one.checkpointing) for one in layouts for _ in one.micro)
        if not steps:
            none = np.zeros(0)
            return ScreenedSteps((), none, none, none, none > 0, none, none[None, :], smallest)
        micro, rounds = np.concatenate([one.micro for one in layouts]), np.concatenate([one.accumulation for one in layouts])
        batch = micro * rounds * np.array([parallel.dp for parallel, _ in steps], dtype=np.float64)
        plain = np.array([checkpointing == "none" for _, checkpointing in steps])
        return ScreenedSteps(
            steps, micro, rounds, batch, plain, np.concatenate(needs), np.concatenate(seconds, axis=1), smallest
        )  # fmt: skip


def train(request: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    """Return the best training layout, micro-batch and checkpointing of each group of GPUs, or why it has none."""

    def solve(precision: str, members: list[Group]) -> list[GroupResult]:
        return _of_precision(request, replace(request.workload, precision=precision), members)

    return solve_by_class(groups, lambda group: group.precision or request.precision_on(group.gpu), solve)


def _of_precision(request: WorkloadRequest, workload: Workload, groups: Sequence[Group]) -> list[GroupResult]:
    shape = as_transformer(request.shape)
    memory = LayoutMemory(workload, shape)
    kinds = {group.kind: group for group in groups}
    representatives, device_of = list(kinds.values()), {kind: at for at, kind in enumerate(kinds)}
    fabrics = [group.fabric for group in representatives]
    devices = Devices.of([group.gpu for group in representatives], fabrics, request.calibration)
    usable = np.array([usable_bytes(group.gpu, workload) for group in representatives], dtype=float)
    sizes = sorted({(group.gpus, group.machines) for group in groups})
    steps: dict[tuple[int, int], ScreenedSteps] = {}
    first: LayoutTimes | None = None
    micro_batches = _all_micro_batches(request, workload, {gpus for gpus, _ in sizes})
    for size in sizes:
        times = LayoutTimes(workload, shape, devices, *size, first, micro_batches)
        first = first or times
        own = np.array(sorted({device_of[group.kind] for group in groups if group.gpus == size[0]}))
        steps[size] = _steps(request, workload, shape, memory, times, *size, usable[own])
    adapts = adapts_by_default(workload, shape, request.stated)
    return [_best(workload, shape, device_of[group.kind], usable, steps[group.gpus, group.machines], adapts) for group in groups]


def _all_micro_batches(request: WorkloadRequest, workload: Workload, sizes: Collection[int]) -> Floats:
    """Return every micro-batch size that some layout on these numbers of GPUs may have, in ascending order."""
    if "batch" not in request.stated or workload.micro_batch:
        if max(sizes) > 1 and _searches_micro_batch(request, workload):
            return DEFAULT_MICRO_BATCHES
        return np.array([float(workload.micro_batch or default_batch(request.shape, 1).micro_batch)])
    batch = workload.batch or 1
    replicas = {gpus // part for gpus in sizes for part in range(1, gpus + 1) if gpus % part == 0}
    micro_batches: Floats = np.unique(
        np.concatenate([micro_batch_sizes(batch // dp) for dp in replicas if batch >= dp and batch % dp == 0])
    )
    return micro_batches


def _searches_micro_batch(request: WorkloadRequest, workload: Workload) -> bool:
    """Return whether the micro-batch on several GPUs is chosen freely: all weights of a language model, and no batch given."""
    fixed = bool({"batch", "micro_batch", "accumulation"} & request.stated)
    return not fixed and request.shape.is_generative and not workload.lora_rank


def _steps(
    request: WorkloadRequest, workload: Workload, shape: Transformer, memory: LayoutMemory, times: LayoutTimes, gpus: int,
    machines: int, usable: Floats,
) -> ScreenedSteps:  # fmt: skip
    """Return training steps (layout, micro-batch) that fit at least one device.

    Data parallelism, ZeRO and pipelines are tried first; tensor parallelism only if none of those fits on some device.
    """
    steps: list[LayoutStep] = []
    needs: list[Floats] = []
    seconds: list[Floats] = []
    smallest = np.inf
    unserved = usable
    for layouts in _families(request, workload, shape, gpus, machines):
        fitting: list[LayoutStep] = []
        for parallel, checkpointing in product(layouts, _checkpointings(request, workload)):
            micro, rounds = _micro(request, workload, parallel)
            if not len(micro):
                continue
            need = memory.of(parallel, checkpointing, micro, rounds)
            smallest = min(smallest, float(need.min()))
            fits = need <= unserved.max()
            if fits.any():
                fitting.append(LayoutStep(parallel, checkpointing, micro[fits], rounds[fits]))
                needs.append(need[fits])
        seconds += times.seconds(fitting) if fitting else []
        steps += fitting
        unserved = usable[usable < min((float(need.min()) for need in needs), default=np.inf)]
        if not len(unserved):
            break
    return ScreenedSteps.of(steps, needs, seconds, smallest)


def _families(
    request: WorkloadRequest, workload: Workload, shape: Transformer, gpus: int, machines: int
) -> Iterator[list[Parallel]]:
    if "parallel" in request.stated:
        yield [workload.parallel] if workload.gpus == gpus else []
        return
    zero_stages = ZERO_STAGES if gpus > 1 else (0,)
    per_machine = gpus // machines
    data_parallel = [Parallel(dp=gpus, zero=stage) for stage in zero_stages]
    yield list(dict.fromkeys([*data_parallel, *_pipelines(workload, shape, gpus, machines)]))
    degrees = [tp for tp in (2, 4, 8) if tp <= per_machine and divides_evenly(workload, shape, tp, 1, 1)]
    yield [
        Parallel(dp=gpus // tp, tp=tp, sp=True, zero=zero)
        for tp in degrees
        for zero in ((0, 3) if gpus > tp else (0,))
    ]  # fmt: skip


def _pipelines(workload: Workload, shape: Transformer, gpus: int, machines: int) -> list[Parallel]:
    """Return layouts of several machines: pipeline stages over them (ZeRO over the network is slow), tensor ranks within each."""
    layouts = []
    degrees = [degree for degree in TENSOR_DEGREES if (gpus // machines) % degree == 0]
    for pp in (stages for stages in (1, *STAGES) if machines > 1 and machines % stages == 0):
        for tp in (degree for degree in degrees if divides_evenly(workload, shape, degree, pp, 1)):
            dp = gpus // (tp * pp)
            layouts += [Parallel(dp=dp, tp=tp, pp=pp, sp=tp > 1, zero=zero) for zero in ((0, 1) if dp > 1 else (0,))]
    return layouts


def _checkpointings(request: WorkloadRequest, workload: Workload) -> tuple[str, ...]:
    return (workload.checkpointing,) if "checkpointing" in request.stated else ("none", "full")


def _micro(request: WorkloadRequest, workload: Workload, parallel: Parallel) -> tuple[Floats, Floats]:
    """Return micro-batch sizes and the passes per step at each, for the given batch or else the defaults all commands share."""
    if "batch" not in request.stated:
        passes = workload.accumulation if "accumulation" in request.stated else None
        if "micro_batch" in request.stated and workload.micro_batch is not None:
            return np.array([float(workload.micro_batch)]), np.array([float(passes or pipeline_passes(parallel.pp))])
        usual = default_batch(request.shape, parallel.dp, passes, parallel.pp)
        if parallel.dp * parallel.tp * parallel.pp > 1 and _searches_micro_batch(request, workload):
            return _searched_micro(workload, parallel, float(usual.accumulation))
        return np.array([float(usual.micro_batch)]), np.array([float(usual.accumulation)])
    share, rest = divmod(workload.batch or 1, parallel.dp)
    if rest or not share:
        return np.zeros(0), np.zeros(0)
    if workload.micro_batch is not None:
        fits = share % workload.micro_batch == 0
        return (np.array([float(workload.micro_batch)]), np.array([share / workload.micro_batch])) if fits else (np.zeros(0),) * 2
    micro = micro_batch_sizes(share)
    return micro, share / micro


def _searched_micro(workload: Workload, parallel: Parallel, passes: float) -> tuple[Floats, Floats]:
    """Return micro-batch sizes and passes per step up to the tokens of a step in recipes; a pipeline takes more than `passes`."""
    max_tokens = MAX_FINETUNE_STEP_TOKENS if workload.traits.finetuning else MAX_STEP_TOKENS
    possible = max_tokens / (DEFAULT_MICRO_BATCHES * float(parallel.dp * (workload.seq_in or 1)))
    sizes = DEFAULT_MICRO_BATCHES[: max(1, int((possible >= passes).sum()))]
    max_passes = max(passes, MAX_STAGE_PASSES * parallel.pp) if parallel.pp > 1 else passes
    return sizes, np.clip(np.floor(possible[: len(sizes)]), passes, max_passes)


def _default_steps(steps: ScreenedSteps, fitting: Ints) -> Ints:
    """Return, per layout and batch, the step that training defaults prefer: no checkpointing, then the largest micro-batch.

    All steps of a pipeline are returned, since small micro-batches may fill its stages better.
    """
    ordered = fitting[np.lexsort((steps.micro[fitting], steps.plain[fitting]))].tolist()
    best = {(steps.steps[at][0], steps.batch[at]): at for at in ordered}
    layouts = {at: steps.steps[at][0] for at in ordered}
    preferred = [at for at in fitting.tolist() if layouts[at].pp > 1 or best[layouts[at], steps.batch[at]] == at]
    return np.array(preferred, dtype=np.int64)


def _simplest_fast_step(steps: ScreenedSteps, fitting: Ints, device: int) -> int:
    """Return the step with the highest throughput; within 3% of it one without checkpointing, then the smallest batch."""
    rates = steps.batch[fitting] / steps.seconds[device, fitting]
    fast = rates >= rates.max() * (1.0 - RATE_TIE)
    ties = fitting[fast]
    return int(ties[np.lexsort((-rates[fast], steps.batch[ties], ~steps.plain[ties]))[0]])


def _best(
    workload: Workload, shape: Transformer, device: int, usable: Floats, steps: ScreenedSteps, by_defaults: bool = False
) -> GroupResult:
    """Return the step with the highest throughput that fits a device, preferably even at the high end of its memory need."""
    own = float(usable[device])
    fitting = np.flatnonzero(steps.need * (1 + NEED_RANGE) <= own)
    fitting = fitting if len(fitting) else np.flatnonzero(steps.need <= own)
    if not len(fitting):
        return Infeasibility("memory" if np.isfinite(steps.smallest) else "layout", steps.smallest / own - 1.0)
    at = _simplest_fast_step(steps, _default_steps(steps, fitting) if by_defaults else fitting, device)
    parallel, checkpointing = steps.steps[at]
    batch, need, seconds = int(steps.batch[at]), float(steps.need[at]), float(steps.seconds[device, at])
    done, unit = work_per_step(replace(workload, batch=batch), shape)
    figure = Figure(need, need * (1 - NEED_RANGE), need * (1 + NEED_RANGE), "byte", "modelled")
    return Configuration(
        precision=workload.precision or "bf16", parallel=parallel, batch=batch, micro_batch=int(steps.micro[at]),
        accumulation=int(steps.rounds[at]), checkpointing=checkpointing, seconds=seconds, rate=done / seconds, unit=unit,
        need=int(need), usable=int(own), fits=verdict(figure, int(own)), bound="compute", kind="train",
    )  # fmt: skip
