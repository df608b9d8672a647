"""Memory that engines and drivers take beside the tensors, from the defaults of the engine's record and the GPU.

Where a user sets an engine's options otherwise, its defaults do not hold.
"""

from __future__ import annotations

from whichgpu.base.units import GIB, MIB
from whichgpu.catalog.engines.record import EngineMemory, EngineRecord, step_below
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.workload.tasks import TASK_TRAITS, Task
from whichgpu.workload.workload import Workload

# Measured on an H200 (source truth-h200), whose context takes 527 MiB before any kernel and 751-799 MiB after a model has run.
CONTEXT_PER_SM = 4 * MIB
LOADED_KERNELS = 245 * MIB
WORKSPACE_HOPPER = 65 * MIB  # of cuBLAS
WORKSPACE = 8.5 * MIB  # of cuBLAS before Hopper (https://docs.pytorch.org/docs/stable/notes/cuda.html)
# NCCL's buffers and a custom all-reduce (https://github.com/vllm-project/vllm/pull/10511, profile of Llama-3-8B).
COLLECTIVES = 512 * MIB
HOPPER, BLACKWELL = 9.0, 10.0
TYPICAL_SMS, TYPICAL_MEMORY = 132, 80 * GIB  # where no GPU is named
MANY_GPUS = 4  # from which SGLang captures larger graphs
MIN_RESERVE_CHUNK = 2048  # tokens that SGLang's reserve is at least for
MIN_STATIC_SHARE = 0.1


def engine_of(workload: Workload) -> EngineRecord:
    """The engine of a request, or its task's default."""
    return engine_record(workload.engine or default_engine(workload.task), workload.year)


def chunk_tokens(memory: EngineMemory, gpu: Gpu | None, task: Task, context: int) -> int | None:
    """Most tokens of one step; None where a prompt is run whole."""
    if memory.whole_prompts:
        return max(context, memory.least_batched_tokens)
    if memory.chunk_by_memory:
        return int(step_below(memory.chunk_by_memory, _gibibytes(gpu)))
    offline = TASK_TRAITS[task].offline
    if is_large_gpu(memory, gpu):
        return memory.chunk_large_offline if offline else memory.chunk_large
    return (offline and memory.chunk_offline) or memory.chunk or None


def is_large_gpu(memory: EngineMemory, gpu: Gpu | None) -> bool:
    """Whether the engine's defaults for large GPUs hold."""
    if not memory.large_gpu:
        return False
    return gpu is None or (gpu.memory_bytes >= memory.large_gpu and gpu.family not in memory.large_gpu_except)


def context_bytes(gpu: Gpu | None, gpus: int = 1) -> int:
    """CUDA context and loaded kernels, outside any allocator; with communication buffers where there are several GPUs."""
    return CONTEXT_PER_SM * _sms(gpu) + LOADED_KERNELS + (COLLECTIVES if gpus > 1 else 0)


def workspace_bytes(memory: EngineMemory, gpu: Gpu | None) -> int:
    """cuBLAS's workspace, and FlashInfer's where that is the usual attention."""
    generation = _generation(gpu)
    size = WORKSPACE_HOPPER if generation >= HOPPER else WORKSPACE
    return int(size + (memory.workspace_blackwell if generation >= BLACKWELL else 0))


def graph_bytes(memory: EngineMemory, gpu: Gpu | None, layers: int, gpus: int) -> int:
    """CUDA graphs an engine captures for decoding."""
    captured = memory.graph_per_sequence * _graph_sequences(memory, gpu, gpus)
    return int(memory.graph + memory.graph_per_layer * layers + captured)


def budget_bytes(workload: Workload, gpu: Gpu, share: float | None = None) -> int:
    """The most an engine lets itself need on a GPU: all of it, or its share and what is beside it.

    `share` is one somebody set instead of the engine's own; a share of what the model leaves is no limit to the model.
    """
    memory, layout = engine_of(workload).memory, workload.parallel
    if memory.reservation == "device-share":
        return min(gpu.memory_bytes, device_share_budget(memory, gpu, layout.tp * layout.pp, share or memory.share))
    if share and memory.reservation != "free-share":
        return int(gpu.memory_bytes * share)
    if memory.reservation == "static-share":
        share = static_share(memory, gpu, layout.tp, layout.pp)  # of weights and cache; context and graphs come beside
        beside = context_bytes(gpu) * (1 - share) + memory.graph_per_sequence * _graph_sequences(memory, gpu, layout.tp)
        return min(gpu.memory_bytes, int(gpu.memory_bytes * share + beside))
    return gpu.memory_bytes


def device_share_budget(memory: EngineMemory, gpu: Gpu, gpus: int, share: float) -> int:
    """vLLM's share of a GPU and what it does not count into it: what it found there, and what its allocator keeps unused."""
    beside = CONTEXT_PER_SM * _sms(gpu) + memory.slack
    if memory.kernels_beside_share:
        beside += LOADED_KERNELS
    if gpus > 1 and memory.collectives_beside_share:
        beside += COLLECTIVES
    return int(gpu.memory_bytes * share + beside)


def static_share(memory: EngineMemory, gpu: Gpu, tp: int, pp: int) -> float:
    """SGLang's `mem_fraction_static`: weights and cache as a share of what was free, by GPUs or by the reserve it leaves."""
    if memory.share_by_gpus:
        return next(share for gpus, share in memory.share_by_gpus if tp * pp >= gpus)
    chunk = max(chunk_tokens(memory, gpu, "serve", 0) or 0, MIN_RESERVE_CHUNK)
    reserved = memory.reserve + memory.reserve_per_chunk_token * chunk
    reserved += memory.graph_per_sequence * _graph_sequences(memory, gpu, tp)
    reserved += memory.reserve_of_eight_gpus * tp * pp / 8
    return max(MIN_STATIC_SHARE, 1 - reserved / gpu.memory_bytes)


def _graph_sequences(memory: EngineMemory, gpu: Gpu | None, tp: int) -> int:
    """Sequences of the largest captured graph."""
    steps = memory.graph_sequences_by_memory_4_gpus if tp >= MANY_GPUS else memory.graph_sequences_by_memory
    return int(step_below(steps, _gibibytes(gpu))) if steps else 0


def _gibibytes(gpu: Gpu | None) -> float:
    return (gpu.memory_bytes if gpu else TYPICAL_MEMORY) / GIB


def _sms(gpu: Gpu | None) -> int:
    return (gpu.sms if gpu else None) or TYPICAL_SMS


def _generation(gpu: Gpu | None) -> float:
    """Compute capability of an NVIDIA GPU; others count as Hopper, whose workspace is the larger."""
    return float(gpu.compute_capability) if gpu and gpu.compute_capability else HOPPER
