"""Options to launch equal replicas of a served model with, the same for every target."""

from __future__ import annotations

import msgspec

from whichgpu.decide.launch.placement import Placement
from whichgpu.workload.decoding.offload import Offload
from whichgpu.workload.decoding.speculative import Speculative


class LaunchOptions(msgspec.Struct, frozen=True):
    """Options to launch one group of equal replicas with: model, GPUs, layout, lengths, batch; None is the engine's own."""

    group: str  # a name for files and services
    model: str
    copies: int
    gpu: str
    gpus_per_copy: int
    tensor_parallel_size: int
    max_num_seqs: int | None
    max_model_len: int | None
    max_num_batched_tokens: int | None
    dtype: str
    memory_share: float | None
    provider: str
    instance: str
    region: str
    spot: bool
    earlier: dict[str, str] = msgspec.field(default_factory=dict)  # earlier engine releases that run on the GPU, by engine
    releases: dict[str, str] = msgspec.field(default_factory=dict)  # the latest of these releases where it is known, by engine
    pipeline_parallel_size: int = 1  # pipeline parallel ranks
    data_parallel_size: int = 1  # data parallel ranks
    expert_parallel_size: int = 1  # expert parallel ranks
    kv_dtype: str | None = None  # precision of the KV cache
    nodes: int = 1  # of one replica
    machines: int = 0  # of all replicas; 0 if the offer is unknown
    vendor: str = "nvidia"  # of the GPU
    architecture: str = ""  # of the GPU
    has_bf16: bool = True  # whether the GPU computes in bf16; others use fp16 for it
    request_length: int | None = None  # tokens reserved for each sequence by engines that do so; `max_model_len` may allow more
    role: str = "both"  # prefill worker, decode worker, or both
    published: str = ""  # precision of the model's published weights: fp8, int4, mxfp4; empty for bf16
    context_reason: str = ""  # sentence on `max_model_len`
    checkpoint: str | None = None  # repository whose weights are already in `dtype`, if another than `model`
    is_embedding: bool = False  # whether texts are embedded rather than generated
    speculative: Speculative | None = None  # the draft model is a Hugging Face repository
    offload: Offload | None = None  # weights in host memory
    layers: int = 0  # of the model; 0 if unknown
    host_weight_bytes: int = 0  # weights that each GPU leaves in host memory
    download_bytes: int = 0  # weights as they are published, on disk; 0 if unknown

    @property
    def gpus_per_node(self) -> int:
        """Return the number of GPUs of one replica on each of its nodes."""
        return max(1, self.gpus_per_copy // self.nodes)

    @property
    def attention_ranks(self) -> int:
        """Return the attention data parallel ranks of an MoE model with sharded experts; 1 if it has none."""
        return self.data_parallel_size if self.expert_parallel_size > 1 else 1

    @property
    def placement(self) -> Placement:
        """Return the machines of one replica."""
        return Placement(
            self.gpu, self.vendor, self.nodes, self.gpus_per_node, self.provider, self.instance, self.region, self.spot
        )
