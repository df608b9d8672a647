"""Engine properties that estimates use: the fields of `data/engines/<id>.csv` beyond the facts in the table `engines`.

A file has one value per line with unit, source and first year; the structs below are the record as of one year. Sizes are
bytes. A section with `like` inherits the other values from that engine's section.
"""

from typing import Literal

import msgspec

# Steps of a value by size, as (limit, value): the value of the first limit above the size applies.
Steps = tuple[tuple[float, float], ...]
Style = Literal["framework", "compiled", "serving"]
Fusion = Literal["none", "inductor", "tensorrt", "cudnn-norm"]
ImageLayout = Literal["as-given", "channels-first", "channels-last", "channels-last-in-16-bits"]
# device-share: share of the GPU (vLLM); static-share: weights and KV cache get a share of free memory (SGLang);
# free-share: the KV cache gets a share of what the model leaves free (TensorRT-LLM).
Reservation = Literal["none", "device-share", "static-share", "free-share"]


class RecordSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of the sections of an engine's record, such as its memory settings."""


class KernelTraits(RecordSection, frozen=True):
    """Kernels launched for one layer of a language model in inference."""

    decode_attention: Literal["split", "whole", "gguf"] = "whole"  # split: over many blocks of one sequence's cache
    rotary_kernels: int = 3  # for rotary positions and writing the cache
    quantises_in_producer: bool = (
        True  # inputs of low-precision GEMMs are quantised by the kernel that makes them, attention aside
    )
    weight_only_gemm: Literal["tinygemm", "marlin", "gguf"] = "tinygemm"  # kernel for GEMMs with weight-only quantisation
    routing_kernels: int = 18  # that route and sort tokens to experts, beyond the GEMMs
    fused_experts: bool = False  # a fused MoE kernel, not the framework's grouped GEMM
    separate_residual: bool = False  # the residual add is a kernel of its own
    fused_activation: bool = False  # an activation is the epilogue of its GEMM
    sampling_kernels: int = 3  # on the logits
    calls_per_kernel: float = 1.0  # framework calls, where the host launches each kernel
    unfused_graph: bool = False  # nothing is fused; prefill attention scores are in memory (llama.cpp until 2025)


class EngineMemory(RecordSection, frozen=True):
    """Default memory settings; the user's own settings replace these values."""

    managed: bool = False  # own memory pool, sized by a profiling step; otherwise PyTorch's caching allocator
    reservation: Reservation = "none"  # what is taken at start
    share: float = 0.0
    share_by_gpus: Steps = ()  # from so many GPUs on
    reserve: float = 0.0  # static-share: left free, beside the next two
    reserve_per_chunk_token: float = 0.0
    reserve_of_eight_gpus: float = 0.0
    graphs_inside_share: bool = False
    kernels_beside_share: bool = False
    collectives_beside_share: bool = False
    block_tokens: int = 1  # of the KV cache
    windowed_cache: bool = False  # sliding-window layers cache no more than the window
    whole_prompts: bool = False  # prefill is one step, of at least `least_batched_tokens`
    least_batched_tokens: int = 0
    chunk: int = 0  # most tokens of a step; 0: no chunked prefill
    chunk_offline: int = 0  # the same for offline batches, and on large GPUs
    chunk_large: int = 0
    chunk_large_offline: int = 0
    chunk_by_memory: Steps = ()  # by the GPU's GiB
    large_gpu: float = 0.0  # memory from which a GPU counts as large; 0: none does
    large_gpu_except: tuple[str, ...] = ()  # families that never count as large
    sampled_rows: int = 0  # sequences the profile step samples for
    logit_bytes: int = 0  # of copies of a logit
    last_logits_only: bool = False  # logits of the last input token only
    logits_of_all_tokens: bool = False
    score_bytes: int = 0  # of a materialised attention score; 0: by precision
    activation_bytes: int = 0  # of an activation; 0: by precision
    embedding_on_host: bool = False
    graph: float = 0.0  # CUDA graphs: once, per layer, per sequence of the largest graph
    graph_per_layer: float = 0.0
    graph_per_sequence: float = 0.0
    graph_sequences_by_memory: Steps = ()  # by the GPU's GiB, under 4 GPUs
    graph_sequences_by_memory_4_gpus: Steps = ()
    slack: float = 0.0  # reserved by the allocator beyond what is allocated
    slack_of_activations: float = 0.0  # share of activations
    slack_of_growing_cache: float = 0.0  # share of the KV cache
    workspace_blackwell: float = 0.0  # of FlashInfer, from Blackwell on

    @property
    def capped(self) -> bool:
        """Whether model and KV cache together are limited to a share of the GPU's memory."""
        return self.reservation in ("device-share", "static-share")


class EngineLimits(RecordSection, frozen=True):
    """Scheduler limits under load."""

    max_sequences: int = 1
    max_sequences_large: int = 0  # on large GPUs; 0: the same
    max_batched_tokens: int = 0  # where prompts run whole
    chunked_prefill: bool = False
    mixed_steps: bool = False  # prefill chunks and decode tokens share a step
    reserve_answers: bool = False  # a request is admitted when its whole output fits, and never preempted
    prefix_caching: bool = False


class HostCosts(RecordSection, frozen=True):
    """Host work of a serving engine without CUDA graphs; zero for one that replays graphs."""

    launches_each_kernel: bool = False
    residual_adds: float = 0.0  # calls per layer beyond those of newer releases
    views: float = 0.0  # cheap calls per layer
    prompt_copies: float = 0.0  # calls per prefill attention
    shared_head_copies: float = 0.0  # the same with GQA or MQA
    worker_call: float = 0.0  # seconds to hand one worker its step


class ServeCommand(RecordSection, frozen=True):
    """The command line that starts one replica; an option the engine lacks is empty."""

    command: str = ""  # with {model}; empty: unknown
    package: str = ""  # on PyPI
    tensor_parallel: str = ""
    max_sequences: str = ""
    context: str = ""
    chunk: str = ""
    memory_share: str = ""
    precision: dict[str, str] = {}


class EngineRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine as of one year."""

    id: str
    name: str
    order: int  # position in lists
    style: Style  # unmeasured engines launch and fuse like others of their style
    synonyms: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()  # tasks of language models; gguf: such files; any: everything else
    compared_for: tuple[str, ...] = ()  # training or inference: where `recommend` compares it with the default
    measured_for: tuple[str, ...] = ()  # tasks that `measure` and `verify` can run with it
    attention: Literal["flash", "sdpa", "eager"] = "sdpa"
    eager: bool = (
        False  # runs the model's own code as written: intermediates in memory, adapters apart, a cache that is copied to grow
    )
    operator_by_operator: bool = False  # no fusion of transformer operators in inference
    captures_graphs: bool = False  # CUDA graphs: the host launches a whole step, not every kernel
    own_all_reduce: bool = False  # has a custom all-reduce
    half_gradients: bool = False  # mixed precision keeps 16-bit gradients
    fusion: Fusion = "none"  # of traced networks
    image_layout: ImageLayout = "as-given"
    half: str = ""  # 16-bit type of traced networks, whatever the request says
    kernels: KernelTraits = KernelTraits()
    memory: EngineMemory = EngineMemory()
    limits: EngineLimits = EngineLimits()
    host: HostCosts = HostCosts()
    serve: ServeCommand = ServeCommand()


def step_below(steps: Steps, size: float) -> float:
    """Return the value of the first step whose limit is above a size.

    >>> step_below(((20.0, 2048.0), (35.0, 4096.0)), 24.0)
    4096.0
    """
    return next(value for limit, value in steps if size < limit)
