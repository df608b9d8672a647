"""Training steps: the layout, micro-batch and checkpointing of each group that get most done in the memory there is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whichgpu.base.figure import Figure
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.estimate.fit import adapts_by_default, verdict
from whichgpu.estimate.group.layout_memory import LayoutMemory
from whichgpu.estimate.group.layout_times import LayoutTimes, micro_batch_sizes
from whichgpu.estimate.group.layouts import divides_evenly
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.time.time_estimate import work_per_step
from whichgpu.estimate.usable import usable_bytes
from whichgpu.price.table import Floats
from whichgpu.workload.shapes import Transformer, as_transformer
from whichgpu.workload.training_defaults import default_batch, pipeline_passes
from whichgpu.workload.workload import Parallel, Workload

SURE = 0.08  # half the width of the range of a need that is read off lines
STAGES = (2, 4, 8, 16)
# Stages of ZeRO: the second sends no more than the first and holds less, so the first is never the better one.
SHARDS = (0, 2, 3)


@dataclass(frozen=True, slots=True)
class Try:
    """A layout with a micro-batch for every device: steps of `batch` in all."""

    parallel: Parallel
    checkpointing: str
    micro: float
    rounds: float
    need: float
    seconds: Floats  # by device

    @property
    def batch(self) -> float:
        """Sequences of a whole step."""
        return self.micro * self.rounds * self.parallel.dp


def train(asked: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    """The best way of each group, for models made of layers."""
    found: dict[int, GroupResult] = {}
    classes: dict[str, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        classes[asked.precision_on(group.gpu)].append(place)
    for precision, places in classes.items():
        workload = replace(asked.workload, precision=precision)
        found |= zip(places, _of_class(asked, workload, [groups[place] for place in places]), strict=True)
    return [found[place] for place in range(len(groups))]


def _of_class(asked: WorkloadRequest, workload: Workload, groups: Sequence[Group]) -> list[GroupResult]:
    shape = as_transformer(asked.shape)
    needs = LayoutMemory(workload, shape)
    kinds = {group.kind: group for group in groups}
    chosen, of = list(kinds.values()), {key: place for place, key in enumerate(kinds)}
    devices = Devices.of([group.gpu for group in chosen], [group.fabric for group in chosen], asked.calibration)
    room = np.array([usable_bytes(group.gpu, workload) for group in chosen], dtype=float)
    sizes = sorted({(group.gpus, group.machines) for group in groups})
    tried: dict[tuple[int, int], list[Try]] = {}
    least: dict[tuple[int, int], float] = {}
    like: LayoutTimes | None = None
    own = np.array([float(workload.micro_batch or default_batch(shape, 1).micro_batch)])
    if "batch" in asked.given and not workload.micro_batch:
        own = _all_micro(workload.batch or 1, {gpus for gpus, _ in sizes})
    for gpus, machines in sizes:
        screen = LayoutTimes(workload, shape, devices, gpus, machines, like, own)
        like = like or screen
        mine = np.array(sorted({of[group.kind] for group in groups if group.gpus == gpus}))
        tried[gpus, machines], least[gpus, machines] = _tries(asked, workload, shape, needs, screen, gpus, machines, room, mine)
    return [
        _best(workload, shape, of[group.kind], room, tried[group.gpus, group.machines],
              least[group.gpus, group.machines], adapts_by_default(workload, asked.given))
        for group in groups
    ]  # fmt: skip


def _all_micro(batch: int, sizes: Iterable[int]) -> Floats:
    """Whatever micro-batch some number of copies on so many GPUs may take of a batch."""
    copies = {gpus // part for gpus in sizes for part in range(1, gpus + 1) if gpus % part == 0}
    found: Floats = np.unique(
        np.concatenate([micro_batch_sizes(batch // dp) for dp in copies if batch >= dp and batch % dp == 0])
    )
    return found


def _tries(
    asked: WorkloadRequest, workload: Workload, shape: Transformer, needs: LayoutMemory, screen: LayoutTimes, gpus: int,
    machines: int, room: Floats, mine: np.ndarray,
) -> tuple[list[Try], float]:  # fmt: skip
    """Copies and shards first; tensor degrees only where some device of this size holds none of those."""
    found: list[Try] = []
    least = np.inf
    lacking = room[mine]
    for layouts in _families(asked, workload, shape, gpus, machines):
        for parallel in layouts:
            for checkpointing in _checkpointings(asked, workload):
                micro, rounds = _micro(asked, workload, parallel)
                if not len(micro):
                    continue
                need = needs.of(parallel, checkpointing, micro, rounds)
                least = min(least, float(need.min()))
                fitting = need <= lacking.max()
                if fitting.any():
                    seconds = screen.seconds(parallel, checkpointing, micro[fitting], rounds[fitting])
                    told = zip(micro[fitting], rounds[fitting], need[fitting], seconds.T, strict=True)
                    found += [
                        Try(parallel, checkpointing, float(size), float(times), float(held), by) for size, times, held, by in told
                    ]
        smallest = min((one.need for one in found), default=np.inf)
        lacking = room[mine][room[mine] < smallest]
        if not len(lacking):
            break
    return found, least


def _families(
    asked: WorkloadRequest, workload: Workload, shape: Transformer, gpus: int, machines: int
) -> Iterator[list[Parallel]]:
    if "parallel" in asked.given:
        yield [workload.parallel] if workload.gpus == gpus else []
        return
    shards = SHARDS if gpus > 1 else (0,)
    per_machine = gpus // machines
    yield [*(Parallel(dp=gpus, zero=zero) for zero in shards), *_pipelines(workload, shape, gpus, machines)]
    degrees = [tp for tp in (2, 4, 8) if tp <= per_machine and divides_evenly(workload, shape, tp, 1, 1)]
    yield [
        Parallel(dp=gpus // tp, tp=tp, sp=True, zero=zero)
        for tp in degrees
        for zero in ((0, 3) if gpus > tp else (0,))
    ]  # fmt: skip


def _pipelines(workload: Workload, shape: Transformer, gpus: int, machines: int) -> list[Parallel]:
    """Stages over machines, whose network would be slow to shards; tensor ranks within each."""
    found = []
    for pp in (stages for stages in STAGES if stages <= machines and machines % stages == 0):
        for tp in (degree for degree in (1, gpus // machines) if divides_evenly(workload, shape, degree, pp, 1)):
            dp = gpus // (tp * pp)
            found += [Parallel(dp=dp, tp=tp, pp=pp, sp=tp > 1, zero=zero) for zero in ((0, 1) if dp > 1 else (0,))]
    return list(dict.fromkeys(found))


def _checkpointings(asked: WorkloadRequest, workload: Workload) -> tuple[str, ...]:
    return (workload.checkpointing,) if "checkpointing" in asked.given else ("none", "full")


def _micro(asked: WorkloadRequest, workload: Workload, parallel: Parallel) -> tuple[Floats, Floats]:
    """Sequences at a time and passes of a step: of the batch asked for, or the defaults every command shares."""
    if "batch" not in asked.given:
        passes = workload.accumulation if "accumulation" in asked.given else None
        if "micro_batch" in asked.given and workload.micro_batch is not None:
            return np.array([float(workload.micro_batch)]), np.array([float(passes or pipeline_passes(parallel.pp))])
        usual = default_batch(asked.shape, parallel.dp, passes, parallel.pp)
        return np.array([float(usual.micro_batch)]), np.array([float(usual.accumulation)])
    share, rest = divmod(workload.batch or 1, parallel.dp)
    if rest or not share:
        return np.zeros(0), np.zeros(0)
    if workload.micro_batch is not None:
        fits = share % workload.micro_batch == 0
        return (np.array([float(workload.micro_batch)]), np.array([share / workload.micro_batch])) if fits else (np.zeros(0),) * 2
    micro = micro_batch_sizes(share)
    return micro, share / micro


def _preferred(tries: Sequence[Try]) -> list[Try]:
    """One configuration per layout, chosen as the training defaults do; every one of a pipeline, whose passes must fill it."""
    best: dict[Parallel, Try] = {}
    for one in sorted(tries, key=lambda one: (one.checkpointing == "none", one.micro)):
        best[one.parallel] = one
    return [one for one in tries if one.parallel.pp > 1 or best[one.parallel] is one]


def _best(
    workload: Workload,
    shape: Transformer,
    place: int,
    room: Floats,
    tried: Sequence[Try],
    least: float,
    by_defaults: bool = False,
) -> GroupResult:
    mine = float(room[place])
    held = [one for one in tried if one.need * (1 + SURE) <= mine] or [one for one in tried if one.need <= mine]
    if not held:
        return Infeasibility("memory" if np.isfinite(least) else "layout", least / mine - 1.0)
    one = max(_preferred(held) if by_defaults else held, key=lambda one: one.batch / one.seconds[place])
    done, unit = work_per_step(replace(workload, batch=int(one.batch)), shape)
    seconds = float(one.seconds[place])
    need = Figure(one.need, one.need * (1 - SURE), one.need * (1 + SURE), "byte", "modelled")
    return Configuration(
        precision=workload.precision or "bf16", parallel=one.parallel, batch=int(one.batch), micro_batch=int(one.micro),
        accumulation=int(one.rounds), checkpointing=one.checkpointing, seconds=seconds, rate=done / seconds, unit=unit,
        need=int(one.need), usable=int(mine), fits=verdict(need, int(mine)), bound="compute", kind="train",
    )  # fmt: skip
