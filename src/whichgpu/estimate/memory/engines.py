"""What is known of engines' memory: every constant with the year it holds from and its source.

`engines` lists this table. Where a user sets an engine's options otherwise, these do not hold: they are its defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from whichgpu.base.units import GIB, MIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.workload.workload import Task, Workload

Family = Literal["plain", "vllm", "sglang", "tensorrt-llm", "llama.cpp"]
DEFAULT_YEAR = 2026
MANAGED: tuple[Family, ...] = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
DEFAULT_ENGINE: dict[Task, str] = {"serve": "vllm", "batch": "vllm", "decode": "cuda-graphs"}  # pytorch for the others


@dataclass(frozen=True, slots=True)
class Constant:
    """One number of an engine ("any": of all): what it is, since which year, and who says so."""

    engine: str
    name: str
    value: float
    unit: str
    since: int
    source: str


CONSTANTS: tuple[Constant, ...] = (
    # The context of an H200 takes 527 MiB before any kernel (132 SMs, 4 MiB each) and 751-799 MiB after a model has run.
    Constant("any", "context_per_sm", 4 * MIB, "byte", 2023, "truth-h200"),
    Constant("any", "loaded_kernels", 245 * MIB, "byte", 2023, "truth-h200"),
    Constant("any", "workspace_hopper", 65 * MIB, "byte", 2023, "truth-h200"),
    Constant("any", "workspace", 8.5 * MIB, "byte", 2023, "pytorch-cuda-notes"),
    # NCCL's buffers and an engine's own all-reduce, once work is split (vLLM's profile of Llama-3-8B: none, then GiBs).
    Constant("any", "collectives", 512 * MIB, "byte", 2023, "vllm-pr-10511"),
    # What the caching allocator keeps beyond what is allocated.
    Constant("plain", "slack", 20 * MIB, "byte", 2023, "truth-h200"),
    Constant("plain", "slack_of_activations", 0.2, "share", 2023, "truth-h200"),
    Constant("plain", "slack_of_growing_cache", 0.05, "share", 2023, "transformers-cache"),
    Constant("plain", "block_tokens", 1, "token", 2023, "transformers-cache"),
    Constant("plain", "logit_bytes", 8, "byte", 2023, "transformers-generation"),  # beside the logits: an fp32 copy, shares
    Constant("plain", "last_logits_only", 0, "flag", 2023, "transformers-generation"),
    Constant("plain", "last_logits_only", 1, "flag", 2025, "transformers-generation"),
    Constant("plain", "windowed_cache", 1, "flag", 2023, "transformers-cache"),
    Constant("plain", "graph", 64 * MIB, "byte", 2023, "pytorch-cuda-graphs"),
    Constant("vllm", "memory_share", 0.90, "share", 2023, "vllm-cache-config"),
    Constant("vllm", "memory_share", 0.92, "share", 2026, "vllm-cache-config"),
    Constant("vllm", "graphs_inside_share", 0, "flag", 2023, "vllm-pr-10511"),
    Constant("vllm", "graphs_inside_share", 1, "flag", 2026, "vllm-v0.21"),
    # What it finds on the GPU before it measures is not counted into its share: always the bare context; at first (torch's own
    # allocations were all it asked for) and since it starts communication before that, what communication takes.
    Constant("vllm", "kernels_beside_share", 1, "flag", 2023, "vllm-gpu-worker"),
    Constant("vllm", "kernels_beside_share", 0, "flag", 2024, "vllm-gpu-worker"),
    Constant("vllm", "collectives_beside_share", 1, "flag", 2023, "vllm-gpu-worker"),
    Constant("vllm", "collectives_beside_share", 0, "flag", 2024, "vllm-gpu-worker"),
    Constant("vllm", "collectives_beside_share", 1, "flag", 2026, "vllm-gpu-worker"),
    Constant("vllm", "block_tokens", 16, "token", 2023, "vllm-cache-config"),
    Constant("vllm", "windowed_cache", 0, "flag", 2023, "vllm-hybrid-cache"),
    Constant("vllm", "windowed_cache", 1, "flag", 2025, "vllm-hybrid-cache"),
    # Tokens of one step: a whole prompt before V1; then by GPU (70 GiB and more, but not A100) and offline or online.
    Constant("vllm", "chunk_whole_prompt", 2048, "token", 2023, "vllm-batch-defaults"),
    Constant("vllm", "chunk_small_serve", 2048, "token", 2025, "vllm-batch-defaults"),
    Constant("vllm", "chunk_small_batch", 8192, "token", 2025, "vllm-batch-defaults"),
    Constant("vllm", "chunk_large_serve", 8192, "token", 2025, "vllm-batch-defaults"),
    Constant("vllm", "chunk_large_batch", 16384, "token", 2025, "vllm-batch-defaults"),
    # The profile run samples for 256 sequences with top-k and top-p, which sorts: 1.26 GiB at a vocabulary of 128,256.
    Constant("vllm", "sampled_rows", 256, "row", 2023, "vllm-pr-10511"),
    Constant("vllm", "logit_bytes", 39, "byte", 2023, "vllm-pr-10511"),
    Constant("vllm", "graph_per_layer", 8 * MIB, "byte", 2023, "vllm-graph-logs"),
    Constant("vllm", "slack", 150 * MIB, "byte", 2023, "vllm-gpu-worker"),
    Constant("vllm", "workspace_blackwell", 256 * MIB, "byte", 2025, "vllm-flashinfer"),
    # SGLang before mid-2025: a share by GPUs; then what its own rule leaves (sglang_share).
    Constant("sglang", "memory_share", 0.88, "share", 2023, "sglang-server-args"),
    Constant("sglang", "reserve", 512 * MIB, "byte", 2025, "sglang-server-args"),
    Constant("sglang", "reserve_per_token", 1.5 * MIB, "byte", 2025, "sglang-server-args"),
    Constant("sglang", "graph_per_sequence", 2 * MIB, "byte", 2023, "sglang-server-args"),
    Constant("sglang", "reserve_of_eight_gpus", 1024 * MIB, "byte", 2025, "sglang-server-args"),
    Constant("sglang", "block_tokens", 1, "token", 2023, "sglang-server-args"),
    Constant("sglang", "windowed_cache", 0, "flag", 2023, "sglang-server-args"),
    Constant("sglang", "windowed_cache", 1, "flag", 2025, "sglang-server-args"),
    Constant("sglang", "logit_bytes", 8, "byte", 2023, "sglang-server-args"),
    Constant("sglang", "slack", 150 * MIB, "byte", 2023, "vllm-gpu-worker"),
    Constant("tensorrt-llm", "memory_share", 0.90, "share", 2023, "tensorrt-llm-kv-cache"),  # of what is free
    Constant("tensorrt-llm", "block_tokens", 64, "token", 2023, "tensorrt-llm-kv-cache"),
    Constant("tensorrt-llm", "block_tokens", 32, "token", 2025, "tensorrt-llm-kv-cache"),
    Constant("tensorrt-llm", "chunk", 8192, "token", 2023, "tensorrt-llm-build-config"),
    Constant("tensorrt-llm", "windowed_cache", 0, "flag", 2023, "tensorrt-llm-kv-cache"),
    Constant("tensorrt-llm", "windowed_cache", 1, "flag", 2025, "tensorrt-llm-kv-cache"),
    Constant("tensorrt-llm", "logit_bytes", 8, "byte", 2023, "tensorrt-llm-memory"),
    Constant("tensorrt-llm", "graph_per_layer", 8 * MIB, "byte", 2023, "vllm-graph-logs"),
    Constant("tensorrt-llm", "slack", 150 * MIB, "byte", 2023, "vllm-gpu-worker"),
    Constant("llama.cpp", "chunk", 512, "token", 2023, "llama.cpp-common"),  # n_ubatch
    Constant("llama.cpp", "block_tokens", 256, "token", 2023, "llama.cpp-kv-cache"),
    Constant("llama.cpp", "windowed_cache", 0, "flag", 2023, "llama.cpp-kv-cache"),
    Constant("llama.cpp", "windowed_cache", 1, "flag", 2025, "llama.cpp-kv-cache"),
    Constant("llama.cpp", "score_bytes", 4, "byte", 2023, "llama.cpp-cuda"),  # without flash attention
    Constant("llama.cpp", "slack", 64 * MIB, "byte", 2023, "llama.cpp-cuda"),
)

# SGLang's defaults by GPU memory: up to so many MiB, tokens of a chunk, sequences of the largest graph (under 4 GPUs; 4 or more).
SGLANG_BY_MEMORY = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 2048, 24, 80),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
    (1 << 40, 16384, 512, 512),
)
SGLANG_SHARE_BY_GPUS = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))  # before its rule of mid-2025
VLLM_LARGE = 70 * GIB
HOPPER, BLACKWELL = 9.0, 10.0
TYPICAL_SMS = 132  # where no GPU is named


def constants(engine: str | None = None) -> tuple[Constant, ...]:
    """The table, or one engine's rows with those of all engines."""
    if engine is None:
        return CONSTANTS
    return tuple(row for row in CONSTANTS if row.engine in (family(engine), engine, "any"))


@lru_cache(maxsize=1024)
def constant(name: str, group: str = "any", year: int | None = None) -> float:
    """A constant as it stood in a year, or as first known before that; 0 where the engine has none such.

    >>> constant("memory_share", "vllm", 2024), constant("memory_share", "vllm", 2026)
    (0.9, 0.92)
    """
    rows = sorted((row for row in CONSTANTS if row.engine == group and row.name == name), key=lambda row: row.since)
    held = [row for row in rows if row.since <= (year or DEFAULT_YEAR)] or rows[:1]
    return held[-1].value if held else 0


def engine_of(workload: Workload) -> str:
    """The engine of a request, or its task's usual one."""
    return workload.engine or DEFAULT_ENGINE.get(workload.task, "pytorch")


def family(engine: str) -> Family:
    """Engines whose memory works alike: vendors' and older frameworks allocate as PyTorch does."""
    return next((name for name in MANAGED if name == engine), "plain")


def chunk_tokens(group: Family, gpu: Gpu | None, task: str, context: int, year: int | None = None) -> int | None:
    """Most tokens of one step; None where a prompt is run whole."""
    when = year or DEFAULT_YEAR
    if group == "vllm" and when < 2025:
        return max(context, int(constant("chunk_whole_prompt", group, when)))
    if group == "vllm":
        size = "large" if _vllm_large(gpu) else "small"
        return int(constant(f"chunk_{size}_{'batch' if task == 'batch' else 'serve'}", group, when))
    if group == "sglang":
        return _sglang_row(gpu)[1]
    return int(constant("chunk", group, when)) or None


def context_bytes(gpu: Gpu | None, gpus: int = 1) -> int:
    """CUDA context and loaded kernels, outside any allocator; with communication buffers where there are several GPUs."""
    sms = (gpu.sms if gpu else None) or TYPICAL_SMS
    own = int(constant("context_per_sm") * sms + constant("loaded_kernels"))
    return own + (int(constant("collectives")) if gpus > 1 else 0)


def workspace_bytes(group: Family, gpu: Gpu | None, year: int | None = None) -> int:
    """cuBLAS's workspace, and FlashInfer's where that is the usual attention."""
    generation = _generation(gpu)
    size = constant("workspace_hopper" if generation >= HOPPER else "workspace")
    if generation >= BLACKWELL and group in ("vllm", "sglang"):
        size += constant("workspace_blackwell", "vllm", year)
    return int(size)


def graph_bytes(group: Family, engine: str, gpu: Gpu | None, layers: int, gpus: int, year: int | None = None) -> int:
    """CUDA graphs an engine captures for decoding."""
    if group == "sglang":
        return int(constant("graph_per_sequence", group) * _sglang_graph(gpu, gpus))
    if engine == "cuda-graphs":
        return int(constant("graph", "plain", year))
    return int(constant("graph_per_layer", group, year) * layers)


def budget_bytes(workload: Workload, gpu: Gpu, share: float | None = None) -> int:
    """The most an engine lets itself need on a GPU: all of it, or its share and what is beside it.

    `share` is one somebody set instead of the engine's own; TensorRT-LLM's is of what the model leaves, and no limit to it.
    """
    engine, year, layout = engine_of(workload), workload.year or DEFAULT_YEAR, workload.parallel
    group = family(engine)
    if group == "vllm":
        return min(
            gpu.memory_bytes, vllm_budget(gpu, layout.tp * layout.pp, share or constant("memory_share", group, year), year)
        )
    if share and group != "tensorrt-llm":
        return int(gpu.memory_bytes * share)
    if group == "sglang":
        share = sglang_share(gpu, layout.tp, layout.pp, year)  # of weights and cache; context and graphs come beside
        beside = context_bytes(gpu) * (1 - share) + constant("graph_per_sequence", group) * _sglang_graph(gpu, layout.tp)
        return min(gpu.memory_bytes, int(gpu.memory_bytes * share + beside))
    return gpu.memory_bytes


def vllm_budget(gpu: Gpu, gpus: int, share: float, year: int | None = None) -> int:
    """vLLM's share of a GPU and what it does not count into it: what it found there, and what its allocator keeps unused."""
    beside = constant("context_per_sm") * (gpu.sms or TYPICAL_SMS) + constant("slack", "vllm", year)
    if constant("kernels_beside_share", "vllm", year):
        beside += constant("loaded_kernels")
    if gpus > 1 and constant("collectives_beside_share", "vllm", year):
        beside += constant("collectives")
    return int(gpu.memory_bytes * share + beside)


def sglang_share(gpu: Gpu, tp: int, pp: int, year: int | None = None) -> float:
    """SGLang's `mem_fraction_static`: weights and cache as a share of what was free.

    Since mid-2025: all but 512 MiB, 1.5 MiB a token of a chunk, 2 MiB a sequence of the largest graph and 128 MiB a GPU.
    """
    if (year or DEFAULT_YEAR) < 2025:
        return next(share for gpus, share in SGLANG_SHARE_BY_GPUS if tp * pp >= gpus)
    reserved = constant("reserve", "sglang") + constant("reserve_per_token", "sglang") * max(_sglang_row(gpu)[1], 2048)
    reserved += constant("graph_per_sequence", "sglang") * _sglang_graph(gpu, tp)
    reserved += constant("reserve_of_eight_gpus", "sglang") * tp * pp / 8
    return max(0.1, 1 - reserved / gpu.memory_bytes)


def _sglang_row(gpu: Gpu | None) -> tuple[int, int, int, int]:
    size = gpu.memory_bytes if gpu else 80 * GIB
    return next(row for row in SGLANG_BY_MEMORY if size < row[0] * MIB)


def _sglang_graph(gpu: Gpu | None, tp: int) -> int:
    row = _sglang_row(gpu)
    return row[3] if tp >= 4 else row[2]


def _vllm_large(gpu: Gpu | None) -> bool:
    return gpu is None or (gpu.memory_bytes >= VLLM_LARGE and gpu.family != "A100")


def _generation(gpu: Gpu | None) -> float:
    """Compute capability of an NVIDIA GPU; others count as Hopper, whose workspace is the larger."""
    return float(gpu.compute_capability) if gpu and gpu.compute_capability else HOPPER
