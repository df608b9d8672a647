"""The verb `relative`: speed of GPUs relative to one of them, by kind of work, on the standard workloads GPUs are ranked by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, hypot, isfinite, log

import msgspec
from msgspec.structs import replace

from whichgpu.base.figure import Basis, Figure
from whichgpu.catalog.find import find_gpu, find_gpus
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.reference_mix import MixItem
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.estimate.time.fallbacks import computes_fast
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.estimate.time.step_confidence import step_confidence
from whichgpu.estimate.time.time_estimate import CALIBRATION_SOURCE
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import fill_defaults, from_object

DEFAULT_BASE = "V100 SXM 16GB"


class RelativeRow(msgspec.Struct, frozen=True):
    """Speed of a GPU as a multiple of another's, by speed index; an index is left out if a peak rate it needs is unknown."""

    gpu: str
    gpu_name: str
    relative: Mapping[str, Figure]


class RelativeAnswer(msgspec.Struct, frozen=True):
    """Speeds of GPUs relative to one GPU; `mix` lists the standard workloads behind the speed indices."""

    against: str
    against_name: str
    rows: tuple[RelativeRow, ...]
    mix: tuple[MixItem, ...]


class Timed(msgspec.Struct, frozen=True):
    """Logarithm of a workload's seconds on a GPU, half the width of its 90% range, and whether the time is calibrated."""

    seconds: float
    spread: float
    near: bool


def relative(names: Sequence[str] | str = (), against: str = DEFAULT_BASE, catalog: Catalog | None = None) -> RelativeAnswer:
    """Return the speed of GPUs (all if none is named) as a multiple of that of `against`, for each speed index."""
    catalog = catalog or Catalog()
    listed = (names,) if isinstance(names, str) else tuple(names)
    gpus = list({gpu.id: gpu for name in listed for gpu in find_gpus(catalog, name)}.values()) if listed else list(catalog.gpus)
    return relative_to(gpus, find_gpu(catalog, against), catalog)


def relative_to(gpus: Sequence[Gpu], base: Gpu, catalog: Catalog) -> RelativeAnswer:
    """Return the speed of GPUs as a multiple of that of `base`, for each speed index (a set of standard workloads)."""
    mix = catalog.reference_mix
    everyone = list({gpu.id: gpu for gpu in (*gpus, base)}.values())
    timed = {item.id: times(item, everyone, catalog) for item in mix}
    indices = dict.fromkeys(item.index for item in mix)
    rows = []
    for gpu in gpus:
        items = {index: [item for item in mix if item.index == index] for index in indices}
        speeds = {index: _index(own, timed, gpu.id, base.id) for index, own in items.items()}
        rows.append(RelativeRow(gpu.id, gpu.name, {index: figure for index, figure in speeds.items() if figure is not None}))
    return RelativeAnswer(base.id, base.name, tuple(rows), mix)


def times(item: MixItem, gpus: Sequence[Gpu], catalog: Catalog) -> dict[str, Timed]:
    """Return the time of one workload by GPU id, in each GPU's best precision; GPUs without a time are left out."""
    calibration = load_calibration()
    groups: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(precision_for(gpu, item.precisions), []).append(gpu)
    shape = find_model(item.request["model"], catalog)
    time_by_gpu = {}
    for precision, group in groups.items():
        workload = fill_defaults(from_object({**item.request, "precision": precision}).workload, shape)
        grid = evaluate_grid(replace(workload, model=shape.name), shape, group, calibration=calibration)
        for place, gpu in enumerate(group):
            seconds = float(grid.seconds.wall[place, 0])
            if isfinite(seconds) and seconds > 0:
                confidence = step_confidence(workload, shape, gpu, grid.kind, grid.bound(place, 0))
                width = (confidence.high - confidence.low) / 2
                time_by_gpu[gpu.id] = Timed(log(seconds), width, confidence.basis == "calibrated")
    return time_by_gpu


def precision_for(gpu: Gpu, precisions: Sequence[str]) -> str:
    """Return the first precision that a GPU has units for; the last if it has units for none."""
    able = (name for name in precisions if computes_fast(gpu, name))
    return next(able, precisions[-1])


def _index(items: Sequence[MixItem], timed: Mapping[str, Mapping[str, Timed]], gpu: str, base: str) -> Figure | None:
    """Return a GPU's speed over that of `base`: weighted geometric mean over `items`; None if one has no time on either GPU."""
    if gpu == base:
        return Figure.exact(1.0, "x", "calibrated", (CALIBRATION_SOURCE,))
    gain = spread = 0.0
    near = True
    for item in items:
        own, other = timed[item.id].get(gpu), timed[item.id].get(base)
        if own is None or other is None:
            return None
        gain += item.weight * (other.seconds - own.seconds)
        spread += item.weight * hypot(own.spread, other.spread)
        near &= own.near and other.near
    basis: Basis = "calibrated" if near else "modelled"
    return Figure(exp(gain), exp(gain - spread), exp(gain + spread), "x", basis, (CALIBRATION_SOURCE,))
