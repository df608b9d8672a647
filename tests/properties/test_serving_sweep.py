"""Properties of serving estimates over every language model of the catalog, with the number of cases of each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.serving.kv_capacity import kv_tokens
from whichgpu.estimate.time.grid import TimeGrid, evaluate_grid
from whichgpu.estimate.time.lower import lower
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Workload

pytestmark = pytest.mark.long
CATALOG = Catalog()
NEWER = ["h100-sxm", "h200-sxm", "b200", "b300"]  # each has at least as much of everything as the one before
SWITCHED = ["a100-sxm-80gb", *NEWER]  # GPUs on NVSwitch
GPUS = [CATALOG.gpu_by_id[name] for name in (*NEWER, "a100-sxm-80gb", "l40s", "mi300x", "rtx-5090")]
ENGINES = ["vllm", "sglang", "tensorrt-llm"]
BATCHES = np.array([1.0, 8, 32, 64, 128, 256])
FAST_HOST = 10.0  # relative speed of a host that launches every step in time
SMALLEST = 1024  # hidden size below which a decode step is mostly the latency of its kernels
LARGE = 4096  # hidden size from which weights are most of a decode step; smaller models are mostly launches and latencies
every_engine = pytest.mark.parametrize("engine", ENGINES)
every_task = pytest.mark.parametrize("task", ["decode", "prefill"])


def language_models() -> dict[str, Transformer]:
    """Decoder-only transformers of the catalog, by name: the models these engines serve."""
    shapes = {model.id: find_model(model.id, CATALOG) for model in CATALOG.models}
    return {name: one for name, one in shapes.items() if isinstance(one, Transformer) and one.causal and not one.encoder_layers}


MODELS = language_models()


def question(task: str, model: str, engine: str, **fields: object) -> Workload:
    request = {"task": task, "model": model, "engine": engine, "batch": 1, "seq_in": 1024, "precision": "bf16", **fields}
    return fill_defaults(from_object(request).workload, MODELS[model])


def grids(task: str, engine: str, precision: str, **fields: object) -> Iterator[tuple[str, TimeGrid]]:
    """Steps of every model that the engine serves in a precision, by GPU and batch."""
    for model, shape in MODELS.items():
        try:
            yield model, evaluate_grid(question(task, model, engine, precision=precision, **fields), shape, GPUS, BATCHES)
        except WhichGpuError:
            continue


@every_task
@every_engine
def test_no_step_beats_its_floor_and_no_newer_gpu_is_slower(engine: str, task: str) -> None:
    """Newer GPUs within 0.1%, in models of which a step is more than the latency of its kernels, 0.3% longer on a B200."""
    cases = 0
    for precision in ("bf16", "fp8"):
        for model, grid in grids(task, engine, precision):
            wall = grid.seconds.wall
            assert (wall >= grid.floor).all(), (model, precision)
            newer = wall[: len(NEWER)] * (MODELS[model].hidden >= SMALLEST)
            assert (newer[1:] <= newer[:-1] * 1.001).all(), (model, precision)
            cases += wall.size
    assert cases > 3000


@every_engine
def test_throughput_does_not_fall_by_more_than_a_tile_as_the_batch_grows_within_memory(engine: str) -> None:
    cases = 0
    for model, grid in grids("decode", engine, "bf16", host_speed=FAST_HOST):
        rates = BATCHES / grid.seconds.wall
        tokens = [kv_tokens(question("serve", model, engine, seq_out=1), MODELS[model], gpu) for gpu in GPUS]
        fits = np.array([[one is not None and one.value >= 1024 * batch for batch in BATCHES] for one in tokens])
        assert (~fits[:, 1:] | (rates[:, 1:] >= rates[:, :-1] * 0.95)).all(), model
        cases += fits.sum()
    assert cases > 1500


@every_engine
def test_narrower_native_weights_are_not_slower_in_decode(engine: str) -> None:
    cases = 0
    wide = dict(grids("decode", engine, "bf16"))
    for model, grid in grids("decode", engine, "fp8"):
        if MODELS[model].hidden < LARGE:
            continue
        one, other = (each.seconds.wall[: len(NEWER)] for each in (grid, wide[model]))
        assert (one <= other * 1.03).all(), model
        cases += one.size
    assert cases > 750


@every_engine
def test_decode_reads_at_most_the_window_of_windowed_layers(engine: str) -> None:
    cases = 0
    for model, shape in MODELS.items():
        if not shape.window:
            continue
        reads = []
        for context in (2 * shape.window, 8 * shape.window):
            ops = lower(question("decode", model, engine, seq_in=context), shape, 4.0).ops
            reads.append({float(op.read) for op in ops if op.kind == "decode_attention" and op.sizes["keys"] <= shape.window})
        assert reads[0] == reads[1] != set(), model
        cases += 1
    assert cases >= 5


@every_engine
def test_two_gpus_on_nvlink_are_not_slower_than_one_while_weights_dominate(engine: str) -> None:
    cases = 0
    for model, shape in MODELS.items():
        if shape.hidden < LARGE:
            continue
        gpus = [CATALOG.gpu_by_id[name] for name in SWITCHED]
        devices = Devices.of(gpus, [fabric_of(gpu) for gpu in gpus])
        try:
            one, two = (
                evaluate_group(question("decode", model, engine, gpus=tp, parallel={"tp": tp}), shape, devices, BATCHES[:3])
                for tp in (1, 2)
            )
        except WhichGpuError:
            continue
        assert (two.breakdown.wall <= one.breakdown.wall).all(), model
        cases += one.breakdown.wall.size
    assert cases > 300


@every_engine
def test_a_slower_network_does_not_change_a_step_on_one_node(engine: str) -> None:
    cases = 0
    gpu = CATALOG.gpu_by_id["h100-sxm"]
    for model, shape in MODELS.items():
        for layout in ({"tp": 8}, {"tp": 8, "ep": 8}, {"dp": 8, "ep": 8}, {"tp": 4, "pp": 2}):
            walls = []
            for gbps in (100, 3200):
                try:
                    workload = question("decode", model, engine, gpus=8, batch=64, parallel=layout, network_gbps=gbps)
                    fabric = fabric_of(gpu, None, workload.interconnect, workload.network_gbps, workload.network)
                    walls.append(evaluate_group(workload, shape, Devices.of([gpu], [fabric])).breakdown.wall[0, 0])
                except WhichGpuError:
                    continue
            assert len(set(walls)) <= 1, (model, layout)
            cases += len(walls) == 2
    assert cases > 100
