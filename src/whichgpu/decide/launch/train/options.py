"""Options to start a training run with, the same for every target."""

from __future__ import annotations

import msgspec

from whichgpu.decide.launch.placement import Placement
from whichgpu.workload.parallel import Parallel
from whichgpu.workload.shapes import Shape


class TrainOptions(msgspec.Struct, frozen=True):
    """A training run on one group of GPUs: model, layout, batch, precision, optimizer and adapters."""

    group: str  # a name for files and jobs
    model: str
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
    steps: int | None = None
    max_seconds: float | None = None  # upper end of the run's time
    provider: str = ""
    instance: str = ""
    region: str = ""
    is_spot: bool = False
    vendor: str = "nvidia"  # of the GPU
    image: str = ""  # container image with PyTorch; empty if none is known for the GPU

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


class TrainPlan(msgspec.Struct, frozen=True):
    """A training run to start, and lines on its estimate for the head of each file."""

    options: TrainOptions
    header: tuple[str, ...] = ()
