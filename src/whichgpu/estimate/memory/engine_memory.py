"""Memory that serving engines and drivers take beside tensors, from the defaults in the engine's record and the GPU."""

from __future__ import annotations

from whichgpu.base.units import GIB, MIB
from whichgpu.catalog.engines.record import EngineMemory, EngineRecord, step_below
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory import overhead
from whichgpu.workload.tasks import TASK_TRAITS, Task
from whichgpu.workload.workload import Workload

LOADED_KERNELS = 245 * MIB  # measured on an H200 (source truth-h200) after a model has run
WORKSPACE_HOPPER = 65 * MIB  # cuBLAS, measured
WORKSPACE = 8.5 * MIB  # cuBLAS before Hopper (https://docs.pytorch.org/docs/stable/notes/cuda.html)
# Buffers of NCCL and of the custom all-reduce (https://github.com/vllm-project/vllm/pull/10511, profile of Llama-3-8B).
COLLECTIVES = 512 * MIB
HOPPER, BLACKWELL = 9.0, 10.0  # compute capabilities
DEFAULT_MEMORY = 80 * GIB  # if no GPU is given
MANY_GPUS = 4  # tensor-parallel ranks from which SGLang captures larger graphs
MIN_RESERVE_CHUNK = 2048  # tokens: smallest chunk in SGLang's reserve
MIN_STATIC_SHARE = 0.1  # lower limit of SGLang's `mem_fraction_static`


def engine_of(workload: Workload) -> EngineRecord:
    """Record of a request's engine, or of its task's default engine."""
    return engine_record(workload.engine or default_engine(workload.task), workload.year)


def chunk_tokens(memory: EngineMemory, gpu: Gpu | None, task: Task, context: int) -> int | None:
    """Maximum tokens of one step; None if prompts are not chunked."""
    if memory.whole_prompts:
        return max(context, memory.least_batched_tokens)
    if memory.chunk_by_memory:
        return int(step_below(memory.chunk_by_memory, _gibibytes(gpu)))
    offline = TASK_TRAITS[task].offline
    if is_large_gpu(memory, gpu):
        return memory.chunk_large_offline if offline else memory.chunk_large
    return (offline and memory.chunk_offline) or memory.chunk or None


def is_large_gpu(memory: EngineMemory, gpu: Gpu | None) -> bool:
    """Whether the engine's defaults for large GPUs apply."""
    if not memory.large_gpu:
        return False
    return gpu is None or (gpu.memory_bytes >= memory.large_gpu and gpu.family not in memory.large_gpu_except)


def context_bytes(gpu: Gpu | None, gpus: int = 1) -> int:
    """Bytes of the CUDA context and loaded kernels, and of communication buffers for several GPUs."""
    return overhead.context_bytes(gpu, LOADED_KERNELS) + (COLLECTIVES if gpus > 1 else 0)


def workspace_bytes(memory: EngineMemory, gpu: Gpu | None) -> int:
    """Bytes of cuBLAS's workspace, and of FlashInfer's on Blackwell, where it is the default attention."""
    generation = _generation(gpu)
    size = WORKSPACE_HOPPER if generation >= HOPPER else WORKSPACE
    return int(size + (memory.workspace_blackwell if generation >= BLACKWELL else 0))


def graph_bytes(memory: EngineMemory, gpu: Gpu | None, layers: int, gpus: int) -> int:
    """Bytes of the CUDA graphs an engine captures for decoding."""
    captured = memory.graph_per_sequence * _graph_sequences(memory, gpu, gpus)
    return int(memory.graph + memory.graph_per_layer * layers + captured)


def budget_bytes(workload: Workload, gpu: Gpu, share: float | None = None) -> int:
    """Maximum bytes an engine uses on a GPU: its share of the memory and what it does not count into the share.

    `share` overrides the engine's default; a share of the memory left by the model does not limit the model.
    """
    memory, layout = engine_of(workload).memory, workload.parallel
    if memory.reservation == "device-share":
        return min(gpu.memory_bytes, device_share_budget(memory, gpu, layout.tp * layout.pp, share or memory.share))
    if share and memory.reservation != "free-share":
        return int(gpu.memory_bytes * share)
    if memory.reservation == "static-share":
        share = static_share(memory, gpu, layout.tp, layout.pp)  # Weights and cache only.
        uncounted = context_bytes(gpu) * (1 - share) + memory.graph_per_sequence * _graph_sequences(memory, gpu, layout.tp)
        return min(gpu.memory_bytes, int(gpu.memory_bytes * share + uncounted))
    return gpu.memory_bytes


def device_share_budget(memory: EngineMemory, gpu: Gpu, gpus: int, share: float) -> int:
    """Bytes of vLLM's share of a GPU and of what it does not count into the share: the context and unused allocator blocks."""
    uncounted = overhead.context_bytes(gpu, LOADED_KERNELS if memory.kernels_beside_share else 0) + memory.slack
    if gpus > 1 and memory.collectives_beside_share:
        uncounted += COLLECTIVES
    return int(gpu.memory_bytes * share + uncounted)


def static_share(memory: EngineMemory, gpu: Gpu, tp: int, pp: int) -> float:
    """SGLang's `mem_fraction_static`: share of the free memory for weights and cache, by GPUs or by the reserve it leaves."""
    if memory.share_by_gpus:
        return next(share for gpus, share in memory.share_by_gpus if tp * pp >= gpus)
    chunk = max(chunk_tokens(memory, gpu, "serve", 0) or 0, MIN_RESERVE_CHUNK)
    reserved = memory.reserve + memory.reserve_per_chunk_token * chunk
    reserved += memory.graph_per_sequence * _graph_sequences(memory, gpu, tp)
    reserved += memory.reserve_of_eight_gpus * tp * pp / 8
    return max(MIN_STATIC_SHARE, 1 - reserved / gpu.memory_bytes)


def _graph_sequences(memory: EngineMemory, gpu: Gpu | None, tp: int) -> int:
    """Batch size of the largest captured graph."""
    steps = memory.graph_sequences_by_memory_4_gpus if tp >= MANY_GPUS else memory.graph_sequences_by_memory
    return int(step_below(steps, _gibibytes(gpu))) if steps else 0


def _gibibytes(gpu: Gpu | None) -> float:
    return (gpu.memory_bytes if gpu else DEFAULT_MEMORY) / GIB


def _generation(gpu: Gpu | None) -> float:
    """Compute capability of an NVIDIA GPU; others count as Hopper, which has the larger workspace."""
    return float(gpu.compute_capability) if gpu and gpu.compute_capability else HOPPER
