"""Engine properties that estimates use: the fields of `data/engines/<id>.csv` beyond the facts in the table `engines`.

A file has one value per line with unit, source and first year; the structs below are the record as of one year. Sizes are
bytes. A section with `like` inherits the other values from that engine's section.
"""

from typing import Literal

import msgspec

# A value that depends on a size, as pairs (limit, value): the first pair whose limit is above the size applies.
Steps = tuple[tuple[float, float], ...]
Style = Literal["framework", "compiled", "serving"]
Fusion = Literal["none", "inductor", "tensorrt", "cudnn-norm"]
ImageLayout = Literal["as-given", "channels-first", "channels-last", "channels-last-in-16-bits"]
MemoryFormat = Literal["contiguous", "channels_last"]
OptimizerKernels = Literal["loop", "foreach", "fused"]
# Memory reserved at start. device-share: a share of the GPU (vLLM); static-share: a share of free memory for weights and KV
# cache (SGLang); free-share: a share of the memory that the model leaves free, for the KV cache (TensorRT-LLM).
Reservation = Literal["none", "device-share", "static-share", "free-share"]


class RecordSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of the sections of an engine's record, such as its memory settings."""


class KernelTraits(RecordSection, frozen=True):
    """Which kernels an engine launches for one layer of a language model in inference."""

    # split: many thread blocks per sequence; per-head: as split, but each query head of a group reads the keys itself, from the
    # L2 cache (AMD: from memory); per-head-amd: per-head on AMD's GPUs only
    decode_attention: Literal["split", "per-head", "per-head-amd", "whole", "gguf"] = "whole"
    # chunked: linear attention of prompts runs in separate kernels; fused: in one, on GPUs with asynchronous matrix instructions
    recurrence: Literal["chunked", "fused"] = "chunked"
    rotary_kernels: int = 3  # kernels that apply rotary embeddings and write the KV cache
    # Inputs of low-precision GEMMs are quantised by the kernel that computes them, except by attention.
    quantises_in_producer: bool = True
    weight_only_gemm: Literal["tinygemm", "marlin", "gguf"] = "tinygemm"  # kernel for GEMMs with weight-only quantisation
    routing_kernels: int = 18  # kernels that route tokens to experts and sort them, without the experts' GEMMs
    fused_experts: bool = False  # experts run in a fused MoE kernel, not in the framework's grouped GEMM
    moe_kernels: Literal["vllm", "sglang", "tensorrt-llm"] = "vllm"  # engine whose choice of fused MoE kernels is timed
    fused_qk_norm: bool = False  # the norms of queries and keys run in the kernel that applies rotary embeddings
    separate_residual: bool = False  # the residual add is a kernel of its own
    fused_activation: bool = False  # the activation function runs in the epilogue of its GEMM
    sampling_kernels: int = 3  # kernels that sample a token from the logits
    calls_per_kernel: float = 1.0  # framework calls per kernel, if the engine uses no CUDA graphs
    # Further framework calls outside CUDA graphs, per layer: prefill of MLA, and experts whose weights are dequantised.
    mla_prefill_calls: float = 0.0
    dequantised_expert_calls: float = 0.0
    graph_tokens: int = 0  # tokens of the largest step that is replayed from a CUDA graph; 0: every step is
    graph_tokens_gpt_oss: int = 0  # the same for gpt-oss, if the engine captures larger steps of it
    launches_mixed_moe: bool = False  # steps of an MoE with prefill and decode tokens are launched kernel by kernel at any size
    fused_gate_up: bool = False  # a single row is multiplied by gate and up, and activated, in one kernel (llama.cpp since 2026)
    vector_expert_tokens: int = 1  # tokens up to which llama.cpp's vector kernels multiply the experts of an MoE
    unfused_graph: bool = False  # no kernels are fused, and prefill writes attention scores to memory (llama.cpp until 2025)


class EngineMemory(RecordSection, frozen=True):
    """Default memory settings of an engine; the user's own settings replace these values."""

    managed: bool = False  # the engine has its own memory pool, sized by a profiling step; if False, PyTorch's caching allocator
    reservation: Reservation = "none"  # memory that the engine reserves at start
    share: float = 0.0
    share_by_gpus: Steps = ()  # the value of `share` as pairs (from this number of GPUs, share)
    reserve: float = 0.0  # static-share: bytes left free; the next two fields are added to it
    reserve_per_chunk_token: float = 0.0
    reserve_of_eight_gpus: float = 0.0
    graphs_inside_share: bool = False
    kernels_beside_share: bool = False
    collectives_beside_share: bool = False
    block_tokens: int = 1  # tokens per block of the KV cache
    windowed_cache: bool = False  # sliding-window layers cache no more than the window
    state_bytes: int = 4  # of an element of recurrent states (linear attention, Mamba) if the model's config states no type
    window_steps: int = 0  # steps in flight whose tokens a sliding-window layer is granted besides its window at admission
    whole_prompts: bool = False  # a prompt is prefilled in one step, sized for at least `least_batched_tokens`
    least_batched_tokens: int = 0
    chunk: int = 0  # largest number of tokens per step; 0: no chunked prefill
    chunk_offline: int = 0  # as `chunk`, for offline batches; the next two fields are for large GPUs
    chunk_large: int = 0
    chunk_large_offline: int = 0
    chunk_by_memory: Steps = ()  # as `chunk`, by the GPU's memory in GiB
    large_gpu: float = 0.0  # memory size from which a GPU counts as large; 0: no GPU does
    large_gpu_except: tuple[str, ...] = ()  # GPU families that never count as large
    sampled_rows: int = 0  # sequences for which the profiling step samples a token
    logit_bytes: int = 0  # bytes that the copies of one logit take
    last_logits_only: bool = False  # logits are computed for the last input token only
    logits_of_all_tokens: bool = False
    score_bytes: int = 0  # bytes of an attention score written to memory; 0: depends on the precision
    activation_bytes: int = 0  # bytes of an activation; 0: depends on the precision
    embedding_on_host: bool = False
    graph: float = 0.0  # bytes of CUDA graphs: fixed; the next two per layer and per sequence of the largest graph
    graph_per_layer: float = 0.0
    graph_per_sequence: float = 0.0
    graph_sequences_by_memory: Steps = ()  # sequences of the largest CUDA graph by the GPU's GiB, below 4 GPUs
    graph_sequences_by_memory_4_gpus: Steps = ()
    slack: float = 0.0  # bytes that the allocator reserves beyond those allocated
    slack_of_activations: float = 0.0  # such bytes as a share of activations
    slack_of_growing_cache: float = 0.0  # such bytes as a share of a KV cache that grows
    workspace_blackwell: float = 0.0  # bytes of FlashInfer's workspace on Blackwell and newer GPUs
    # Bytes of kernels in the CUDA context if modules are loaded eagerly, all when the process starts; 0: loaded when first run.
    eager_kernels: float = 0.0
    eager_kernels_ampere: float = 0.0  # as `eager_kernels`, on Ampere and newer GPUs, which need builds for CUDA 11
    eager_convolution_kernels: float = 0.0  # further such bytes if a network has convolutions (cuDNN)

    @property
    def capped(self) -> bool:
        """Whether model and KV cache together are limited to a share of the GPU's memory."""
        return self.reservation in ("device-share", "static-share")


class EngineLimits(RecordSection, frozen=True):
    """Limits of an engine's scheduler under load, such as running sequences and tokens per step."""

    max_sequences: int = 1
    max_sequences_large: int = 0  # as `max_sequences`, on large GPUs; 0: the same number
    max_batched_tokens: int = 0  # tokens per step of an engine without chunked prefill
    chunked_prefill: bool = False
    mixed_steps: bool = False  # prefill chunks and decode tokens share a step
    reserve_answers: bool = False  # a request is admitted only if its longest output fits in the KV cache; never preempted
    prefix_caching: bool = False


class HostCosts(RecordSection, frozen=True):
    """CPU work of a serving engine per step; from `residual_adds` on, of an engine without CUDA graphs."""

    overlaps_device: bool = False  # the host's work for each sequence is done while the device runs another step
    sequence_work: float = 1.0  # host work for each sequence at every step, relative to vLLM of 2024
    schedules_ahead: bool = False  # a step is scheduled while the device runs the one before it
    # Seconds of the engine's own loop for a decode step (scheduling, inputs, sampled tokens) that runs beside the device, and
    # more for each sequence; with the launches of kernels it is one thread's work.
    loop: float = 0.0
    sequence_loop: float = 0.0
    request_latency: float = 0.0  # seconds from a request's arrival to its first step and from the first token to the client
    launches_each_kernel: bool = False
    residual_adds: float = 0.0  # calls per layer for residual adds that newer releases fuse into norms
    views: float = 0.0  # calls per layer for views and slices, which are cheap
    prompt_copies: float = 0.0  # copy calls per attention of a prefill
    shared_head_copies: float = 0.0  # further copy calls if the model has GQA or MQA
    worker_call: float = 0.0  # seconds to send one worker process its step
    calls_workers: bool = True  # the host calls the worker processes of a group at every step and waits for them


class TrainingTraits(RecordSection, frozen=True):
    """How an engine's own training code differs from a plain PyTorch loop over a model of the transformers library."""

    megatron: bool = False  # layouts of tensor and pipeline ranks run in Megatron, whose recipes shard optimizer and sequences
    main_weights: bool = False  # 16-bit weights are trained with fp32 main weights, optimizer states and gradients beside them
    ties_head: bool = True  # a tied output head shares the embedding's tensor
    compiles_head: bool = True  # a compiled step compiles the output head with the loss
    fp32_logits: bool = False  # logits of all tokens are converted to fp32 before the loss
    head_chunk: int = 0  # tokens of each sequence per GEMM of the output head; 0: all
    joint_projections: bool = False  # queries, keys and values are one linear layer with one adapter
    expands_heads: bool = False  # keys and values are copied for each query head before attention (GQA, MQA)
    writes_capped_scores: bool = False  # attention whose scores are capped (Gemma 2) runs unfused, its scores written to memory
    keeps_last_logits: bool = False  # the loop's variable holds a step's logits, and its graph, until the next forward pass ends
    # QLoRA: bytes of a weight with its scales (4 bits; an 8-bit scale per 64 weights, a 32-bit one per 64 x 256), 16-bit copies
    # of a weight while its GEMM is prepared, the output head quantised too, and the inputs of quantised GEMMs kept in the graph
    # although their weights are frozen.
    nf4_bytes: float = 0.5 + 1 / 64 + 4 / (64 * 256)
    dequantised_copies: int = 1
    quantises_head: bool = False
    keeps_quantised_inputs: bool = False


class EngineStart(RecordSection, frozen=True):
    """Seconds from the start of an engine to its first request, besides reading the weights; 0 if not measured."""

    fixed: float = 0.0  # seconds of imports, process starts, the profiling step and the warm-up
    compile_per_layer: float = 0.0  # seconds to compile one layer with a cold cache
    capture: float = 0.0  # seconds to capture CUDA graphs of one batch size
    capture_moe: float = 0.0  # as `capture`, if the model is an MoE
    graph_sizes: int = 0  # number of batch sizes for which CUDA graphs are captured


class ServeCommand(RecordSection, frozen=True):
    """The parts of the command line that starts one replica with an engine; an option the engine lacks is empty."""

    command: str = ""  # contains the placeholder {model}; empty if unknown
    programs: tuple[str, ...] = ()  # other programs that start the server, without the model
    aliases: dict[str, str] = {}  # main names of options by their other names
    package: str = ""  # name on PyPI
    image: str = ""  # container image for GPUs of NVIDIA whose entry point or shell runs the command
    images: dict[str, str] = {}  # images for other GPUs, by architecture or vendor
    image_program: str = ""  # path of the program in the images if it is not on their PATH
    version: str = ""  # release whose documented options these are
    releases: dict[str, str] = {}  # latest release that runs on GPUs the present one does not support, by compute capability
    tag: str = ""  # tag of the image of a release, with the placeholder {release}
    fixed: str = ""  # options that do not depend on the request
    embedding: str = ""  # switch without which the engine does not serve embeddings
    separate_values: bool = False  # an option and its value are two words; otherwise joined by an equals sign
    reads_gguf: bool = False  # {model} is a GGUF file, not a Hugging Face repository
    port: str = "--port"
    host: str = ""  # option to listen on all network interfaces; empty if the server does so by default
    tensor_parallel: str = ""
    counts_attention_data_parallel: bool = False  # the tensor-parallel size includes attention data parallel ranks
    pipeline_parallel: str = ""
    data_parallel: str = ""
    attention_data_parallel: str = ""  # switch for attention data parallel with sharded experts, beside `data_parallel`
    attention_data_parallel_size: str = ""  # option of later releases that replaces both; it is read, not written
    attention_data_parallel_file: str = ""  # as the switch: a line of the file of `config_file`
    # Sequences and tokens of a step are those of all attention data parallel ranks together, not of each.
    limits_of_all_ranks: bool = False
    expert_parallel: str = ""  # contains the placeholder {ep} if the option takes a size
    nodes: str = ""  # options on each node of a replica that spans several; {nodes} is their number
    other_nodes: str = ""  # options on all nodes but the first
    max_sequences: str = ""
    context: str = ""
    context_of_all: bool = False  # the context is that of all running sequences together
    chunk: str = ""
    memory_share: str = ""
    precision: dict[str, str] = {}
    kv_precision: dict[str, str] = {}
    kv_precision_file: dict[str, str] = {}  # as these options: lines of the file of `config_file`; {share} is `memory_share`
    # Options for weights in host memory: `none`, `experts` or `layers`. {gpu_layers} are the layers on GPUs and one for the head,
    # {gib} is the size of the weights that each GPU leaves to the host.
    offload: dict[str, str] = {}
    config_file: str = ""  # option that names a YAML file ({file}) with settings that have no option of their own
    # Speculative decoding by method: {draft} is the draft model, {tokens} those drafted per step, {verified} one more.
    speculative: dict[str, str] = {}  # options
    speculative_file: dict[str, str] = {}  # line of the file of `config_file`, for an engine that has no options for it


class EngineRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All properties of one engine as of one year that estimates use."""

    id: str
    name: str
    order: int  # position of the engine in lists
    style: Style  # an engine without measurements is assumed to launch and fuse kernels like others of its style
    synonyms: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()  # tasks of language models; `gguf`: GGUF files; `any`: all other models
    default_on: tuple[str, ...] = ()  # interfaces (xla, neuron, …) of chips on which it is the default for the tasks it does
    compared_for: tuple[str, ...] = ()  # training or inference: `recommend` compares it with the default engine there
    measured_for: tuple[str, ...] = ()  # tasks that `measure` and `verify` can run with it
    attention: Literal["flash", "sdpa", "eager"] = "sdpa"
    # Runs the model's code unfused: intermediates go to memory, adapters are not merged, the KV cache is copied to grow.
    eager: bool = False
    kernels_of: str = ""  # engine that runs kernels as fast, so that it shares their corrections; gaps and host work differ
    operator_by_operator: bool = False  # in inference, operators of transformers are not fused
    captures_graphs: bool = False  # uses CUDA graphs: the host launches a step at once, not every kernel
    own_all_reduce: bool = False  # has a custom all-reduce over NVLink
    own_all_reduce_mesh: bool = False  # also over links without a switch, such as AMD's Infinity Fabric
    low_latency_exchange: bool = False  # dispatches tokens to experts with DeepEP or similar kernels
    # Heads are padded to a multiple of the tensor-parallel ranks, and a rank caches keys and values of each of its heads.
    splits_layers: bool = False  # several GPUs share the layers by default; for one user, one GPU works at a time
    pads_heads: bool = False
    overlaps_tensor_parallel: bool = False  # training under sequence parallelism sends activations in chunks while GEMMs run
    # Trains transformers as Megatron Core does: fused projections, gradients added up inside GEMMs, weights gathered in large
    # buckets during the forward pass under ZeRO 1 and 2, quantised operands gathered under tensor parallelism.
    megatron: bool = False
    exchange_once_per_node: bool = False  # training sends a token once to each node and GPU that has some of its experts
    overlaps_expert_exchange: bool = False  # training exchanges tokens of one micro-batch while another one computes
    half_gradients: bool = False  # gradients are 16-bit in mixed precision
    fusion: Fusion = "none"  # fusion rules applied to models given as operator tables
    image_layout: ImageLayout = "as-given"
    memory_format: MemoryFormat = "channels_last"  # of images, if the request states none and `image_layout` is `as-given`
    # Precision if the request states none, by kind of work: vision or language, with `-train` for training. A kind that is not
    # listed has the precision of today's recipes.
    usual_precisions: dict[str, str] = {}
    tf32_matmul: bool = False  # precision fp32-default runs GEMMs in TF32, not only convolutions
    optimizer_kernels: OptimizerKernels = "fused"  # loop: kernels of their own for every tensor; foreach: for lists of tensors
    kv_precisions: dict[str, str] = {}  # KV cache precision that checkpoints for the engine state, by weight precision
    half_dtype: str = ""  # 16-bit dtype of models given by operator tables, whatever the request states; empty: the request's
    kernels: KernelTraits = KernelTraits()
    memory: EngineMemory = EngineMemory()
    limits: EngineLimits = EngineLimits()
    host: HostCosts = HostCosts()
    training: TrainingTraits = TrainingTraits()
    start: EngineStart = EngineStart()
    serve: ServeCommand = ServeCommand()


def step_below(steps: Steps, size: float) -> float:
    """Return the value of the first (limit, value) step whose limit is above a size.

    >>> step_below(((20.0, 2048.0), (35.0, 4096.0)), 24.0)
    4096.0
    """
    return next(value for limit, value in steps if size < limit)
