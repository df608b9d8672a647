"""Speed of groups of GPUs on a task's reference mix of workloads, relative to one V100; used if no model is named."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import cache
from math import exp, log

import numpy as np
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.reference_mix import MixItem
from whichgpu.catalog.store import Catalog
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility
from whichgpu.decide.configurations.groups import Group, solve_by_class
from whichgpu.estimate.fit import required_memory, verdict
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.time.fallbacks import computes_fast
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.estimate.usable import usable_bytes
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Shape
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Parallel, Workload

BASE_GPU = "v100-sxm-16gb"
UNIT = "x V100"
TRANSFORMER_YEAR = 2018  # The year after which training meant transformers (BERT, GPT); image models before (assumed).
LLM_YEAR = 2023  # The year from which inference meant language models; vision before (assumed).
AMOUNT = MONTH_HOURS * 3600.0  # The amount of work, in V100 seconds: one V100 for a month.


def indices(task: str, day: date) -> tuple[str, ...]:
    """Return the names of the speed indices (weighted reference workloads) that represent a task on a day."""
    if task == "train":
        return ("cnn-training", "transformer-training") if day.year >= TRANSFORMER_YEAR else ("cnn-training",)
    if task == "finetune":
        return ("transformer-training",)
    return ("llm-inference",) if day.year >= LLM_YEAR else ("vision-inference",)


def mix_results(task: str, day: date, groups: Sequence[Group], catalog: Catalog, calibration: Calibration) -> list[GroupResult]:
    """Return each group of GPUs' speed relative to one V100: the weighted geometric mean over reference workloads."""
    names = indices(task, day)
    items = [item for item in catalog.reference_mix if item.index in names]
    log_speeds = np.zeros(len(groups))
    shortages: list[list[Infeasibility | None]] = []
    for item in items:
        item_results = _item_results(item, groups, catalog, calibration)
        log_speeds += item.weight / len(names) * np.array([speed for speed, _ in item_results])
        shortages.append([short for _, short in item_results])
    needs: dict[str, tuple[Workload, Figure]] = {}  # This holds workload and memory of the mix's first item, by precision.
    results: list[GroupResult] = []
    for at, group in enumerate(groups):
        short = [one[at] for one in shortages]
        if all(short) or not np.isfinite(log_speeds[at]):
            results.append(next((one for one in short if one is not None), Infeasibility("memory", np.inf)))
            continue
        precision = _precision(items[0], group.gpu)
        if precision not in needs:
            workload, shape = _workload(items[0], precision, catalog)
            needs[precision] = workload, required_memory(estimate_memory(workload, shape), workload)
        results.append(_configuration(*needs[precision], group, exp(float(log_speeds[at]))))
    return results


def _configuration(workload: Workload, need: Figure, group: Group, speed: float) -> Configuration:
    usable = usable_bytes(group.gpu, workload)
    return Configuration(
        precision=workload.precision or "", parallel=Parallel(dp=group.gpus), batch=(workload.batch or 1) * group.gpus,
        micro_batch=None, accumulation=1, checkpointing="none", seconds=1.0 / speed, rate=speed, unit=UNIT, need=int(need.value),
        usable=usable, fits=verdict(need, usable), bound="compute", kind="train" if workload.training else "forward",
    )  # fmt: skip


def _precision(item: MixItem, gpu: Gpu) -> str:
    return next((name for name in item.precisions if computes_fast(gpu, name)), item.precisions[-1])


def _workload(item: MixItem, precision: str, catalog: Catalog) -> tuple[Workload, Shape]:
    shape = find_model(item.request["model"], catalog)
    return fill_defaults(from_object({**item.request, "precision": precision}).workload, shape), shape


def _item_results(
    item: MixItem, groups: Sequence[Group], catalog: Catalog, calibration: Calibration
) -> list[tuple[float, Infeasibility | None]]:
    """Return, per group of GPUs, the log of its speed relative to one V100 (-inf if unknown), and its lack of memory, if any."""
    base = catalog.gpu_by_id[BASE_GPU]
    workload, shape = _workload(item, _precision(item, base), catalog)
    base_seconds = float(evaluate_grid(workload, shape, [base], calibration=calibration).seconds.wall[0, 0])
    training = workload.training

    @cache
    def by_precision(precision: str) -> tuple[Workload, Figure]:
        own, _ = _workload(item, precision, catalog)
        smallest = replace(own, batch=1)  # A group that lacks memory for the item's batch may still run a smaller one.
        return own, required_memory(estimate_memory(smallest, shape), smallest)

    def solve(key: tuple[str, int, int], members: list[Group]) -> list[tuple[float, Infeasibility | None]]:
        precision, gpus, machines = key
        own, need = by_precision(precision)
        devices = [one.gpu for one in members]
        if gpus == 1:
            wall = evaluate_grid(own, shape, devices, calibration=calibration).seconds.wall[:, 0]
        else:
            many = replace(own, gpus=gpus, nodes=machines, parallel=Parallel(dp=gpus), batch=(own.batch or 1) * gpus)
            fabrics = [one.fabric for one in members]
            wall = evaluate_group(many, shape, Devices.of(devices, fabrics, calibration)).breakdown.wall[:, 0]
        results: list[tuple[float, Infeasibility | None]] = []
        for group, seconds in zip(members, wall.tolist(), strict=True):
            timed = np.isfinite(seconds) and seconds > 0
            usable = usable_bytes(group.gpu, own)
            short = Infeasibility("memory", need.value / usable - 1.0) if need.low > usable else None
            results.append((log(group.gpus * base_seconds / seconds) if timed else -np.inf, short))
        return results

    def class_of(group: Group) -> tuple[str, int, int]:
        return _precision(item, group.gpu), group.gpus if training else 1, group.machines if training else 1

    return solve_by_class(groups, class_of, solve)
