"""What an engine is to the estimates: the fields of a record `data/engines/<id>.csv` beyond the facts that `engines` lists.

A record holds one value per line with its unit and source, and the year it holds from where it changed; the structs below are the
record as of one year. Sizes are bytes. A section that says `like` takes what it leaves out from that engine's section.
"""

from typing import Literal

import msgspec

# Thresholds and the value up to each: (limit, value), first match counts.
Steps = tuple[tuple[float, float], ...]
Style = Literal["framework", "compiled", "serving"]
Fusion = Literal["none", "inductor", "tensorrt", "cudnn-norm"]
ImageLayout = Literal["as-given", "channels-first", "channels-last", "channels-last-in-16-bits"]
# device-share: a share of the GPU (vLLM); static-share: weights and cache get a share of what was free (SGLang);
# free-share: the cache gets a share of what the model leaves (TensorRT-LLM).
Reservation = Literal["none", "device-share", "static-share", "free-share"]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a record."""


class KernelTraits(Section, frozen=True):
    """Kernels launched for one layer of a language model in inference."""

    decode_attention: Literal["split", "whole", "gguf"] = "whole"  # split: over many blocks of one sequence's cache
    rotary_kernels: int = 3  # for rotary positions and writing the cache
    quantises_in_producer: bool = (
        True  # inputs of low-precision GEMMs are quantised by the kernel that makes them, attention aside
    )
    weight_only_gemm: Literal["tinygemm", "marlin", "gguf"] = "tinygemm"  # kernel for GEMMs with weight-only quantisation
    routing_kernels: int = 18  # that find a token's experts and sort tokens to them, beyond the GEMMs
    fused_experts: bool = False  # a kernel made for MoE, not the framework's grouped GEMM
    separate_residual: bool = False  # the residual add is a kernel of its own
    fused_activation: bool = False  # an activation is the epilogue of its GEMM
    sampling_kernels: int = 3  # on the logits
    calls_per_kernel: float = 1.0  # framework calls, where the host launches each kernel
    unfused_graph: bool = False  # nothing is fused and a prompt's attention scores are in memory (llama.cpp until 2025)


class EngineMemory(Section, frozen=True):
    """Memory the engine takes by default; a user's own settings replace these values."""

    managed: bool = False  # the engine has its own pool, sized by a step nobody sees; otherwise PyTorch's caching allocator
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
    windowed_cache: bool = False  # layers with a sliding window keep no more than the window
    whole_prompts: bool = False  # a prompt is one step, of at least `least_batched_tokens`
    least_batched_tokens: int = 0
    chunk: int = 0  # most tokens of a step; 0: prompts run whole
    chunk_offline: int = 0  # the same for offline batches, and on large GPUs
    chunk_large: int = 0
    chunk_large_offline: int = 0
    chunk_by_memory: Steps = ()  # by the GPU's GiB
    large_gpu: float = 0.0  # memory from which a GPU counts as large; 0: none does
    large_gpu_except: tuple[str, ...] = ()  # families that never do
    sampled_rows: int = 0  # sequences the profile step samples for
    logit_bytes: int = 0  # of a logit, beside the logit itself
    last_logits_only: bool = False  # a prompt's last token alone has logits
    logits_of_all_tokens: bool = False
    score_bytes: int = 0  # of an attention score that is written out; 0: by precision
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
        """Whether model and cache together are held to a share of the GPU."""
        return self.reservation in ("device-share", "static-share")


class EngineLimits(Section, frozen=True):
    """Scheduler limits under load."""

    max_sequences: int = 1
    max_sequences_large: int = 0  # on large GPUs; 0: the same
    max_batched_tokens: int = 0  # where prompts run whole
    chunked_prefill: bool = False
    mixed_steps: bool = False  # prefill chunks and decode tokens share a step
    reserve_answers: bool = False  # a request is admitted when its whole output fits, and never preempted
    prefix_caching: bool = False


class HostCosts(Section, frozen=True):
    """Host work of a serving engine that launches every kernel itself; no cost to one that replays graphs."""

    launches_each_kernel: bool = False
    residual_adds: float = 0.0  # calls a layer beyond the kernels of newer releases
    views: float = 0.0  # cheap calls a layer
    prompt_copies: float = 0.0  # calls per attention over a prompt
    shared_head_copies: float = 0.0  # the same where heads share keys and values
    worker_call: float = 0.0  # seconds to hand one worker its step


class ServeCommand(Section, frozen=True):
    """The command line that starts one replica; an option the engine lacks is empty."""

    command: str = ""  # with {model}; empty: none is known
    package: str = ""  # on PyPI
    tensor_parallel: str = ""
    max_sequences: str = ""
    context: str = ""
    chunk: str = ""
    memory_share: str = ""
    precision: dict[str, str] = {}


class EngineRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine as of one year."""

    id: str
    name: str
    order: int  # place in lists
    style: Style  # engines of one style launch and fuse alike; one never measured is taken to be like its style
    synonyms: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()  # tasks of language models it is the default of; gguf: such files; any: everything else
    compared_for: tuple[str, ...] = ()  # training, inference: `recommend` compares it with the default there
    measured_for: tuple[str, ...] = ()  # tasks that `measure` and `verify` can run under it
    attention: Literal["flash", "sdpa", "eager"] = "sdpa"
    eager: bool = (
        False  # runs the model's own code as written: intermediates in memory, adapters apart, a cache that is copied to grow
    )
    operator_by_operator: bool = False  # fuses nothing of a transformer in inference
    captures_graphs: bool = False  # the host starts a whole step; otherwise every kernel
    own_all_reduce: bool = False  # has a custom all-reduce
    half_gradients: bool = False  # mixed precision keeps 16-bit gradients
    fusion: Fusion = "none"  # of networks known by their operators
    image_layout: ImageLayout = "as-given"
    half: str = ""  # 16-bit type of networks, whatever is asked
    kernels: KernelTraits = KernelTraits()
    memory: EngineMemory = EngineMemory()
    limits: EngineLimits = EngineLimits()
    host: HostCosts = HostCosts()
    serve: ServeCommand = ServeCommand()


def step_below(steps: Steps, size: float) -> float:
    """The value of the first limit above a size.

    >>> step_below(((20.0, 2048.0), (35.0, 4096.0)), 24.0)
    4096.0
    """
    return next(value for limit, value in steps if size < limit)
