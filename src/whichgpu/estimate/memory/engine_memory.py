"""Memory of serving engines and drivers other than tensors, from the defaults in the engine's record and from the GPU."""

from __future__ import annotations

from whichgpu.base.units import GIB, MIB
from whichgpu.catalog.engines.record import EngineMemory, EngineRecord, step_below
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory import overhead
from whichgpu.workload.tasks import TASK_TRAITS, Task
from whichgpu.workload.workload import Workload

LOADED_KERNELS = 245 * MIB  # bytes, measured on an H200 (source truth-h200) after a model has run
WORKSPACE_HOPPER = 65 * MIB  # bytes of cuBLAS workspace on Hopper, measured
WORKSPACE = 8.5 * MIB  # bytes of cuBLAS workspace before Hopper (https://docs.pytorch.org/docs/stable/notes/cuda.html)
# Bytes of the buffers of NCCL and custom all-reduce (https://github.com/vllm-project/vllm/pull/10511, profile of Llama-3-8B).
COLLECTIVES = 512 * MIB
HOPPER, BLACKWELL = 9.0, 10.0  # compute capabilities
DEFAULT_MEMORY = 80 * GIB  # bytes assumed if no GPU is given
MANY_GPUS = 4  # number of tensor-parallel ranks from which SGLang captures larger graphs
MIN_RESERVE_CHUNK = 2048  # tokens of the smallest prefill chunk for which SGLang reserves memory
MIN_STATIC_SHARE = 0.1  # lower limit of SGLang's `mem_fraction_static`


def engine_of(workload: Workload) -> EngineRecord:
    """Return the record of the engine in a request, or of the default engine of its task."""
    return engine_record(workload.engine or default_engine(workload.task), workload.year)


def chunk_tokens(memory: EngineMemory, gpu: Gpu | None, task: Task, context: int) -> int | None:
    """Return the most tokens that an engine processes in one step; None if it does not limit them."""
    if memory.whole_prompts:
        return max(context, memory.least_batched_tokens)
    if memory.chunk_by_memory:
        return int(step_below(memory.chunk_by_memory, _gibibytes(gpu)))
    offline = TASK_TRAITS[task].offline
    if is_large_gpu(memory, gpu):
        return memory.chunk_large_offline if offline else memory.chunk_large
    return (offline and memory.chunk_offline) or memory.chunk or None


def is_large_gpu(memory: EngineMemory, gpu: Gpu | None) -> bool:
    """Whether a GPU has enough memory for an engine's defaults for large GPUs, such as longer prefill chunks."""
    if not memory.large_gpu:
        return False
    return gpu is None or (gpu.memory_bytes >= memory.large_gpu and gpu.family not in memory.large_gpu_except)


def context_bytes(gpu: Gpu | None, gpus: int = 1, memory: EngineMemory | None = None) -> int:
    """Return the bytes of the CUDA context and loaded kernels, plus communication buffers if there are several GPUs."""
    kernels = overhead.kernel_bytes(memory, gpu, LOADED_KERNELS) if memory else LOADED_KERNELS
    return overhead.context_bytes(gpu, kernels) + (COLLECTIVES if gpus > 1 else 0)


def workspace_bytes(memory: EngineMemory, gpu: Gpu | None) -> int:
    """Return the bytes of cuBLAS's workspace, plus FlashInfer's on Blackwell, where it is the default attention backend."""
    generation = _generation(gpu)
    size = WORKSPACE_HOPPER if generation >= HOPPER else WORKSPACE
    return int(size + (memory.workspace_blackwell if generation >= BLACKWELL else 0))


def graph_bytes(memory: EngineMemory, gpu: Gpu | None, layers: int, gpus: int) -> int:
    """Return the bytes of the CUDA graphs that an engine captures for decoding."""
    captured = memory.graph_per_sequence * _graph_sequences(memory, gpu, gpus)
    return int(memory.graph + memory.graph_per_layer * layers + captured)


def budget_bytes(workload: Workload, gpu: Gpu, share: float | None = None) -> int:
    """Return the most bytes an engine uses on a GPU: its share of the memory plus memory outside it, such as the context.

    `share` overrides the engine's default (vLLM's `gpu_memory_utilization`). TensorRT-LLM's is of the memory that weights leave
    free, so it does not limit the model.
    """
    memory, layout = engine_of(workload).memory, workload.parallel
    if memory.reservation == "device-share":
        return min(gpu.memory_bytes, device_share_budget(memory, gpu, layout.tp * layout.pp, share or memory.share))
    if share and memory.reservation != "free-share":
        return int(gpu.memory_bytes * share)
    if memory.reservation == "static-share":
        share = static_share(memory, gpu, layout.tp, layout.pp)  # This share covers weights and KV cache only.
        uncounted = context_bytes(gpu) * (1 - share) + memory.graph_per_sequence * _graph_sequences(memory, gpu, layout.tp)
        return min(gpu.memory_bytes, int(gpu.memory_bytes * share + uncounted))
    return gpu.memory_bytes


def device_share_budget(memory: EngineMemory, gpu: Gpu, gpus: int, share: float) -> int:
    """Return the bytes vLLM may use: `share` of the GPU's memory, plus the CUDA context and unused allocator blocks."""
    uncounted = overhead.context_bytes(gpu, LOADED_KERNELS if memory.kernels_beside_share else 0) + memory.slack
    if gpus > 1 and memory.collectives_beside_share:
        uncounted += COLLECTIVES
    return int(gpu.memory_bytes * share + uncounted)


def static_share(memory: EngineMemory, gpu: Gpu, tp: int, pp: int) -> float:
    """Return SGLang's `mem_fraction_static`, the share of free memory for weights and KV cache, by GPUs or by its reserve."""
    if memory.share_by_gpus:
        return next(share for gpus, share in memory.share_by_gpus if tp * pp >= gpus)
    chunk = max(chunk_tokens(memory, gpu, "serve", 0) or 0, MIN_RESERVE_CHUNK)
    reserved = memory.reserve + memory.reserve_per_chunk_token * chunk
    reserved += memory.graph_per_sequence * _graph_sequences(memory, gpu, tp)
    reserved += memory.reserve_of_eight_gpus * tp * pp / 8
    return max(MIN_STATIC_SHARE, 1 - reserved / gpu.memory_bytes)


def _graph_sequences(memory: EngineMemory, gpu: Gpu | None, tp: int) -> int:
    """Return the batch size of the largest captured CUDA graph."""
    steps = memory.graph_sequences_by_memory_4_gpus if tp >= MANY_GPUS else memory.graph_sequences_by_memory
    return int(step_below(steps, _gibibytes(gpu))) if steps else 0


def _gibibytes(gpu: Gpu | None) -> float:
    return (gpu.memory_bytes if gpu else DEFAULT_MEMORY) / GIB


def _generation(gpu: Gpu | None) -> float:
    """Return the compute capability of an NVIDIA GPU; others count as Hopper, which has the larger workspace."""
    return float(gpu.compute_capability) if gpu and gpu.compute_capability else HOPPER
