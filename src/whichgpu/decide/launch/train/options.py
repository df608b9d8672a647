"""Options to start a training run with, the same for every target."""

from __future__ import annotations

import msgspec

from whichgpu.decide.launch.placement import Placement
from whichgpu.decide.launch.train.rotary import Rotary
from whichgpu.workload.parallel import Parallel
from whichgpu.workload.shapes import Shape


class TrainOptions(msgspec.Struct, frozen=True):
    """A training run on one group of GPUs: model, layout, batch, precision, optimizer and adapters."""

    group: str  # a name for files and jobs
    model: str  # repository whose weights, or only config and tokenizer, it starts from
    shape: Shape
    gpu: str
    gpus: int
    nodes: int
    parallel: Parallel
    precision: str
    batch: int  # samples per step on all GPUs
    accumulation: int
    sequence: int | None  # tokens of a sample
    optimizer: str = "adamw"
    is_fused: bool = True
    checkpointing: str = "none"
    lora_rank: int | None = None
    is_qlora: bool = False
    lora_targets: str = ""
    steps: int | None = None  # of the whole run
    has_assumed_length: bool = False  # whether `steps` follows from an amount of work that the request does not state
    max_seconds: float | None = None  # upper end of the run's time, with its start
    provider: str = ""
    instance: str = ""
    region: str = ""
    is_spot: bool = False
    vendor: str = "nvidia"  # of the GPU
    image: str = ""  # container image with PyTorch; empty if none is known for the GPU
    is_finetuning: bool = False  # whether it starts from the weights of `model`
    rotary: Rotary | None = None  # rotary embeddings that the model's own config.json states
    has_main_weights: bool = True  # whether the estimate counts the fp32 weights and gradients that Megatron-LM keeps
    base_model: str = ""  # repository of the weights before instruction tuning, if another than `model` is listed

    @property
    def placement(self) -> Placement:
        """Return the machines of the run."""
        return Placement(
            self.gpu, self.vendor, self.nodes, self.gpus_per_node, self.provider, self.instance, self.region, self.is_spot
        )

    @property
    def gpus_per_node(self) -> int:
        """Return the GPUs on each node."""
        return max(1, self.gpus // self.nodes)

    @property
    def replicas(self) -> int:
        """Return the data-parallel ranks."""
        layout = self.parallel
        return max(1, self.gpus // (layout.tp * layout.pp * layout.cp))

    @property
    def micro_batch(self) -> int:
        """Return the samples of one pass on one data-parallel rank."""
        return max(1, self.batch // (self.replicas * self.accumulation))

    @property
    def half(self) -> str | None:
        """Return the 16-bit type of the computation, bf16 or fp16; None in fp32."""
        return next((name for name in ("bf16", "fp16") if self.precision.endswith(name)), None)

    @property
    def splits_model(self) -> bool:
        """Whether ranks hold parts of the model's layers, as only tools with models of their own do."""
        layout = self.parallel
        return layout.tp * layout.pp * layout.cp * layout.ep > 1

    @property
    def uses_deepspeed(self) -> bool:
        """Whether only optimizer state is sharded (ZeRO 1), which a script does with DeepSpeed."""
        return self.parallel.zero == 1 and self.replicas > 1

    @property
    def model_files(self) -> tuple[str, ...]:
        """Return the folder of a model on the user's disk; nothing for a repository."""
        return (self.model.rstrip("/") + "/",) if self.model.startswith("/") else ()

    @property
    def is_repository(self) -> bool:
        """Whether the model is a repository of the Hugging Face hub, which may ask for a token."""
        return self.model.count("/") == 1 and not self.model.startswith((".", "/", "~"))


class TrainPlan(msgspec.Struct, frozen=True):
    """A training run to start, and lines on its estimate for the head of each file."""

    options: TrainOptions
    header: tuple[str, ...] = ()
