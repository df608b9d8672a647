"""Default concurrency of offline inference: the one with the highest throughput that fits in memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.fit import MemoryCurve, MemoryOf, required_memory
from whichgpu.estimate.group.fabric import Fabric
from whichgpu.estimate.memory.engine_memory import engine_of
from whichgpu.estimate.memory.kv import kv_bytes
from whichgpu.estimate.serving.kv_capacity import cache_room
from whichgpu.estimate.serving.scheduler_limits import default_max_sequences
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.usable import usable_bytes
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

Floats = np.ndarray
SecondsOf = Callable[[Floats], Floats]  # maps concurrencies of one replica to seconds of a step
# Concurrencies tried on one replica, besides the largest that fits.
CONCURRENCY = np.array(
    [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192], dtype=float
)
MIN_CACHE_SHARE = 0.02  # A KV cache below this share of the GPU fits if the weights do, to within their own uncertainty.
MAX_CONCURRENCY = int(CONCURRENCY[-1])
# Batches tried on one GPU for models that do not generate text.
SAMPLES = np.array([1 << power for power in range(MAX_CONCURRENCY.bit_length())], dtype=float)


def default_sequences(workload: Workload, shape: Shape, gpu: Gpu) -> int | None:
    """Return the engine's default limit of running sequences on one replica (vLLM: max_num_seqs); None if it has none."""
    engine = engine_of(workload)
    return (
        default_max_sequences(engine, gpu) if engine.serve.max_sequences and workload.generating and shape.is_generative else None
    )


def offline_batch(workload: Workload, shape: Shape, gpu: Gpu, memory: MemoryOf, seconds_of: SecondsOf | None) -> int:
    """Return the batch over all replicas with the highest throughput that fits; one sequence per replica if none fits.

    Without `seconds_of` (the GPU's speed is unknown), return the largest batch that fits.
    """
    sizes = _fitting(workload, shape, gpu, memory)
    at = len(sizes) - 1 if seconds_of is None else int(np.argmax(sizes / seconds_of(sizes)))
    return int(sizes[at]) * workload.parallel.dp


def fitting_batch(workload: Workload, shape: Shape, gpu: Gpu) -> int:
    """Return the batch of an offline request, reduced to the sequences whose complete KV cache fits; the others wait for them.

    A batch of which not one sequence fits is unchanged, as is one for an engine without a memory pool of its own.
    """
    batch, memory = workload.batch or 1, engine_of(workload).memory
    if not (workload.generating and isinstance(shape, Transformer) and shape.is_generative and memory.managed):
        return batch
    context, precision = (workload.seq_in or 1) + (workload.seq_out or 0), workload.kv_precision or "bf16"
    layout, block = workload.parallel, memory.block_tokens
    sequence = kv_bytes(shape, 1, context, precision, block, parallel=layout, memory=memory)
    if not sequence or sequence * workload.local_batch < gpu.memory_bytes * MIN_CACHE_SHARE:
        return batch
    fitting = cache_room(workload, shape, gpu) // sequence * layout.dp
    return min(batch, fitting) if fitting > 0 else batch


def _fitting(workload: Workload, shape: Shape, gpu: Gpu, memory: MemoryOf) -> Floats:
    """Return the concurrencies of one replica that fit in memory, ascending; only 1 if none does."""
    usable = usable_bytes(gpu, workload)
    if workload.generating and shape.is_generative:
        largest = MemoryCurve(workload, shape, "batch", memory, max_size=MAX_CONCURRENCY).largest(usable)
        if engine_of(workload).memory.reservation == "free-share":  # The KV cache takes a share of what is left, not all.
            largest_request = replace(workload, batch=max(1, largest) * workload.parallel.dp, micro_batch=None)
            largest = fitting_batch(largest_request, shape, gpu) // workload.parallel.dp
        return np.append(CONCURRENCY[largest > CONCURRENCY], max(1, largest))

    def need(size: float) -> Figure:
        one = replace(workload, batch=int(size) * workload.parallel.dp, micro_batch=None)
        return required_memory(memory(one), one)

    needs = [need(size) for size in SAMPLES]
    fitting = np.array([figure.high <= usable for figure in needs])
    if not fitting.any():
        fitting = np.array([figure.value <= usable for figure in needs])
    return SAMPLES[fitting] if fitting.any() else SAMPLES[:1]


def single_replica(workload: Workload) -> Workload:
    """Return a request for one replica, without data parallelism."""
    layout = workload.parallel
    gpus = max(1, workload.gpus // layout.dp)
    nodes = max(1, workload.nodes * gpus // workload.gpus)
    return replace(workload, gpus=gpus, nodes=nodes, parallel=replace(layout, dp=1), batch=1, micro_batch=None)


def replica_seconds(
    workload: Workload, shape: Shape, gpu: Gpu, fabric: Callable[[], Fabric], calibration: Calibration
) -> SecondsOf:
    """Return a function from concurrency to step seconds of one replica; `fabric` connects the replica's GPUs."""
    one = single_replica(workload)

    def seconds(sizes: Floats) -> Floats:
        if one.gpus == 1:
            from whichgpu.estimate.time.grid import evaluate_grid

            wall = evaluate_grid(one, shape, [gpu], sizes, calibration).seconds.wall
        else:
            from whichgpu.estimate.group.step import Devices, evaluate_group

            wall = evaluate_group(one, shape, Devices.of([gpu], [fabric()], calibration), sizes).breakdown.wall
        row: Floats = np.broadcast_to(wall, (1, len(sizes)))[0]
        return row

    return seconds
