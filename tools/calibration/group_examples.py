"""Measured rows on several GPUs as examples for the fit: the parts of each step, with single-GPU corrections held fixed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from calibration.examples import PAGEABLE_COPY, regime
from calibration.group_alone import key, replicas_of
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.architecture import architecture_of
from whichgpu.catalog.evidence import Measurement
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.confidence.axes import NEWEST_SOFTWARE_YEAR, Axes, axes_of
from whichgpu.estimate.group.breakdown import StepParts
from whichgpu.estimate.group.fabric import Fabric, fabric_of
from whichgpu.estimate.group.group_answer import MIN_COMMUNICATION_BOUND_SHARE
from whichgpu.estimate.group.group_calibration import NO_CORRECTIONS, GroupSetting, group_setting
from whichgpu.estimate.group.step import Devices, RankPass, inference_pass, step_pass
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Parallel, Workload

NONE: Mapping[str, float] = MappingProxyType({})


class GroupExample(msgspec.Struct, frozen=True):
    """A measured step on several GPUs: its passes with how often each runs, and the time of one GPU alone."""

    seconds: float
    passes: tuple[tuple[float, StepParts], ...]
    setting: GroupSetting
    row: Measurement
    axes: Axes
    alone: float = 0.0  # predicted seconds of the same on one GPU, 0 if unmeasured
    alone_measured: float = 0.0

    @property
    def ratio(self) -> float:
        """Measured over predicted time of one GPU alone; 1 if unmeasured."""
        return self.alone_measured / self.alone if self.alone_measured and self.alone else 1.0


def group_examples(
    rows: Sequence[Measurement], catalog: Catalog, calibration: Calibration | None = None, singles: Mapping[str, float] = NONE
) -> list[GroupExample]:
    """Examples of these rows; rows that the tool rejects are listed on stderr. `singles` are measured seconds of one GPU."""
    lookups = LookupCache(catalog)
    results, failed = [], dict[str, int]()
    for row in rows:
        if architecture_of(catalog.gpu_by_id[row.gpu]).roofline:
            continue  # Accelerators that are no GPUs have a fit of their own (fit_rooflines).
        try:
            results.append(group_example(row, lookups, catalog.gpu_by_id[row.gpu], calibration, singles))
        except WhichGpuError as error:
            why = f"{row.source}: {error.kind} {row.family}"
            failed[why] = failed.get(why, 0) + 1
    for why, count in sorted(failed.items()):
        print(f"rejected: {why} x{count}", file=sys.stderr)
    return results


def group_example(
    row: Measurement, lookups: LookupCache, gpu: Gpu, calibration: Calibration | None, singles: Mapping[str, float] = NONE
) -> GroupExample:
    """Example of one measured step on several GPUs."""
    workload, shape = workload_of(row, lookups)
    fabric = fabric_of(gpu, None, workload.interconnect, workload.network_gbps, workload.network)
    devices = Devices.of([gpu], [fabric], calibration, NO_CORRECTIONS)
    passes = _passes(workload, shape, devices, row.kind)
    copied = row.pageable_copy_bytes / PAGEABLE_COPY
    measured = singles.get(key(row, replicas_of(row)), 0.0)
    return GroupExample(
        seconds=max(row.seconds - copied, row.seconds * 0.2),
        passes=tuple((times, one.parts) for times, one in passes),
        setting=_setting(workload, fabric, passes[0][1].kind),
        row=row,
        axes=axes_of(workload, shape, gpu, row.kind, _regime(passes[0][1])),
        alone=_alone(workload, shape, gpu, devices.calibration, row.kind) if measured else 0.0,
        alone_measured=measured,
    )


def workload_of(row: Measurement, lookups: LookupCache) -> tuple[Workload, Shape]:
    """The workload and model shape of a row's request."""
    shape = lookups.shape(row.request["model"])
    request: dict[str, Any] = {name: value for name, value in row.request.items() if name != "id"}
    return fill_defaults(from_object(request).workload, shape), shape


def _passes(workload: Workload, shape: Shape, devices: Devices, kind: str) -> list[tuple[float, RankPass]]:
    batch = float(workload.local_batch)
    if kind in ("generate", "serve") and isinstance(shape, Transformer):
        length = float(max(1, workload.seq_out or 1))
        prompt = float(workload.seq_in or 1)
        token = inference_pass(workload, shape, devices, batch, 1.0, prompt + length / 2)
        if kind == "serve":
            return [(1.0, token), (batch / length, inference_pass(workload, shape, devices, 1.0, prompt, None))]
        return [(length, token), (1.0, inference_pass(workload, shape, devices, batch, prompt, None))]
    return [(1.0, step_pass(workload, shape, devices, batch))]


def _regime(one: RankPass) -> str:
    """What bounds a rank's pass before corrections: links, the host, compute or bandwidth."""
    parts = one.parts
    communication = float(parts.exposed_latency.sum() + parts.exposed_volume.sum())
    if communication > MIN_COMMUNICATION_BOUND_SHARE * (float(parts.device.sum()) + communication):
        return "interconnect"
    return "overhead" if float(parts.calls.sum()) > float(parts.device.sum()) else regime(one.terms)


def _setting(workload: Workload, fabric: Fabric, kind: str) -> GroupSetting:
    return group_setting(
        fabric, workload.engine or "pytorch", workload.year or NEWEST_SOFTWARE_YEAR, kind, workload.parallel.threads
    )


def _alone(workload: Workload, shape: Shape, gpu: Gpu, calibration: Calibration, kind: str) -> float:
    """Predicted seconds on one GPU: of one replica's batch under data parallelism, else of the whole model."""
    replicas = workload.parallel.dp
    single = replace(workload, gpus=1, nodes=1, parallel=Parallel(), batch=max(1, (workload.batch or 1) // replicas))
    seconds = float(evaluate_grid(single, shape, [gpu], calibration=calibration).seconds.wall[0, 0])
    return seconds * max(1, workload.seq_out or 1) if kind == "generate" else seconds


def logs(examples: Sequence[GroupExample]) -> np.ndarray:
    """Logarithms of the measured seconds."""
    return np.log([example.seconds for example in examples])
