"""Where no model is named: how fast groups of GPUs are at the reference mix of a task, against one V100."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from math import exp, log

import numpy as np

from whichgpu.base.figure import Figure
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.reference_mix import MixItem
from whichgpu.catalog.store import Catalog
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.configurations.mix_amounts import UNIT, indices
from whichgpu.estimate.fit import required_memory, verdict
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.time.fallbacks import computes_fast
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.estimate.usable import usable_bytes
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Shape
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Parallel, Workload

BASE = "v100-sxm-16gb"


def mix_results(task: str, day: date, groups: Sequence[Group], catalog: Catalog, calibration: Calibration) -> list[GroupResult]:
    """Each group's speed: the weighted geometric mean over the mix of how many times one V100 it is."""
    names = indices(task, day)
    items = [item for item in catalog.reference_mix if item.index in names]
    gains = np.zeros(len(groups))
    needs: list[list[GroupResult | None]] = []
    for item in items:
        told, refused = _item(item, groups, catalog, calibration)
        gains += item.weight / len(names) * told
        needs.append(refused)
    found: list[GroupResult] = []
    first: dict[str, tuple[Workload, Figure]] = {}  # by precision: what the first of the mix asks for, and its memory
    for place, group in enumerate(groups):
        refusals = [one[place] for one in needs]
        if all(refusals) or not np.isfinite(gains[place]):
            found.append(next((one for one in refusals if one is not None), Infeasibility("memory", np.inf)))
            continue
        precision = _precision(items[0], group.gpu)
        if precision not in first:
            workload, shape = _asked(items[0], precision, catalog)
            first[precision] = workload, required_memory(estimate_memory(workload, shape), workload)
        found.append(_way(*first[precision], group, exp(float(gains[place]))))
    return found


def _way(workload: Workload, need: Figure, group: Group, speed: float) -> Configuration:
    room = usable_bytes(group.gpu, workload)
    return Configuration(
        precision=workload.precision or "", parallel=Parallel(dp=group.gpus), batch=(workload.batch or 1) * group.gpus,
        micro_batch=None, accumulation=1, checkpointing="none", seconds=1.0 / speed, rate=speed, unit=UNIT, need=int(need.value),
        usable=room, fits=verdict(need, room), bound="compute", kind="train" if workload.training else "forward",
    )  # fmt: skip


def _precision(item: MixItem, gpu: Gpu) -> str:
    able = (name for name in item.precisions if computes_fast(gpu, name))
    return next(able, item.precisions[-1])


def _asked(item: MixItem, precision: str, catalog: Catalog) -> tuple[Workload, Shape]:
    shape = find_model(item.request["model"], catalog)
    return fill_defaults(from_object({**item.request, "precision": precision}).workload, shape), shape


def _item(
    item: MixItem, groups: Sequence[Group], catalog: Catalog, calibration: Calibration
) -> tuple[np.ndarray, list[GroupResult | None]]:
    """Log of the speed against one V100, and which groups lack the memory."""
    base = catalog.gpu_by_id[BASE]
    workload, shape = _asked(item, _precision(item, base), catalog)
    alone = float(evaluate_grid(workload, shape, [base], calibration=calibration).seconds.wall[0, 0])
    classes: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    asked: dict[str, Workload] = {}
    for place, group in enumerate(groups):
        precision = _precision(item, group.gpu)
        if precision not in asked:
            asked[precision] = _asked(item, precision, catalog)[0]
        own = asked[precision]
        classes[precision, group.gpus if own.training else 1, group.machines if own.training else 1].append(place)
    told = np.full(len(groups), -np.inf)
    refused: list[GroupResult | None] = [None] * len(groups)
    least = {precision: replace(own, batch=1) for precision, own in asked.items()}  # a smaller batch is the usual way out
    needs = {precision: required_memory(estimate_memory(own, shape), own) for precision, own in least.items()}
    for (precision, gpus, machines), places in classes.items():
        own, chosen = asked[precision], [groups[place] for place in places]
        if gpus == 1:
            wall = evaluate_grid(own, shape, [one.gpu for one in chosen], calibration=calibration).seconds.wall[:, 0]
        else:
            many = replace(own, gpus=gpus, nodes=machines, parallel=Parallel(dp=gpus), batch=(own.batch or 1) * gpus)
            devices = Devices.of([one.gpu for one in chosen], [one.fabric for one in chosen], calibration)
            wall = evaluate_group(many, shape, devices).breakdown.wall[:, 0]
        for place, group, seconds in zip(places, chosen, wall.tolist(), strict=True):
            if np.isfinite(seconds) and seconds > 0:
                told[place] = log(group.gpus * alone / seconds)
            room = usable_bytes(group.gpu, own)
            if needs[precision].low > room:
                refused[place] = Infeasibility("memory", needs[precision].value / room - 1.0)
    return told, refused
