"""Time to evaluate every layout of a group on every GPU of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.start import Result, timed
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.layout_search import screen_layouts
from whichgpu.estimate.group.step import Devices
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import fill_defaults, from_object

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("train", "llama-3.1-8b", {"gpus": 8, "batch": 64, "seq_in": 4096}),
    ("train", "llama-3.1-70b", {"gpus": 32, "nodes": 4, "batch": 64, "seq_in": 4096}),
    ("batch", "llama-3.1-70b", {"gpus": 8, "batch": 64}),
    ("batch", "mixtral-8x7b", {"gpus": 8, "batch": 64}),
]


def results() -> Iterator[Result]:
    """Seconds of each case in turn."""
    catalog = Catalog()
    gpus = [gpu for gpu in catalog.gpus if gpu.peaks and gpu.memory_bandwidth]
    devices = Devices.of(gpus, [fabric_of(gpu) for gpu in gpus])
    for task, model, fields in CASES:
        name = f"layouts of {task} {model} on {fields['gpus']} x {len(gpus)} GPUs"
        yield timed(name, 1.0, _screen(task, model, fields, catalog, devices), 3)


def _screen(task: str, model: str, fields: dict[str, Any], catalog: Catalog, devices: Devices) -> Callable[[], object]:
    shape = find_model(model, catalog)
    workload = fill_defaults(from_object({"task": task, "model": model, **fields}).workload, shape)
    return lambda: screen_layouts(workload, shape, devices, workload.gpus, workload.nodes)
