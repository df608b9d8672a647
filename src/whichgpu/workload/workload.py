"""A workload: the task, the model and every choice that decides memory and speed, each with a visible value.

Flags, TOML, URL query and JSON are spellings of this one value (`spelling.py`); the fields bear the contract's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from whichgpu.workload.tasks import TASK_TRAITS, Task, TaskTraits

OPTIMIZERS = ("adamw", "adam", "sgd", "sgd-momentum", "adafactor", "adamw-8bit")
CHECKPOINTING = ("none", "full", "selective")
ATTENTION = ("flash", "sdpa", "eager")
INTERCONNECTS = ("nvswitch", "cube-mesh", "mesh", "pairs", "pcie", "pcie-host")
NETWORKS = ("infiniband", "roce", "efa", "gpudirect-tcpx", "ethernet")
MEMORY_FORMATS = ("channels_last", "contiguous")


@dataclass(frozen=True, slots=True)
class Parallel:
    """How work is split: data, tensor, pipeline, expert and context parallel degrees, sequence parallel, ZeRO stage.

    `chunks` of a pipeline stage's layers are interleaved with other stages' (1: plain 1F1B); `threads`: one process drives all
    copies, as torch.nn.DataParallel does.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1
    sp: bool = False
    zero: int = 0
    chunks: int = 1
    threads: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """One request. `model` is a name, or a config.json's content as it stands; `None` asks for the default."""

    task: Task
    model: str | Mapping[str, Any]
    gpu: str | None = None
    gpus: int = 1
    nodes: int = 1
    precision: str | None = None
    kv_precision: str | None = None
    batch: int | None = None
    micro_batch: int | None = None
    rate: float | None = None
    seq_in: int | None = None
    seq_out: int | None = None
    image: int | None = None
    memory_format: str | None = None
    optimizer: str | None = None
    optimizer_fused: bool = True
    include_optimizer_step: bool = True
    checkpointing: str = "none"
    lora_rank: int | None = None
    lora_targets: str = "all-linear"
    qlora: bool = False
    attention: str | None = None
    parallel: Parallel = field(default_factory=Parallel)
    accumulation: int = 1
    epochs: float | None = None
    steps: int | None = None
    tokens: int | None = None
    samples: int | None = None
    ttft_max: float | None = None
    tpot_max: float | None = None
    percentile: float = 95
    engine: str | None = None
    year: int | None = None
    host_speed: float = 1.0  # of the CPU that launches kernels, against the one measured with
    interconnect: str | None = None  # how the GPUs of a node reach one another, where it is not as usual
    network: str | None = None  # what joins the nodes
    network_gbps: float | None = None  # of one GPU's share of it
    method: str | None = None  # another way to count memory: blog-2015

    def with_defaults(self, **values: Any) -> Workload:
        """The same request with values put where none was given."""
        wanted = {name: value for name, value in values.items() if getattr(self, name) is None}
        return replace(self, **wanted) if wanted else self

    @property
    def traits(self) -> TaskTraits:
        """What sets the task apart."""
        return TASK_TRAITS[self.task]

    @property
    def training(self) -> bool:
        """Whether gradients are computed."""
        return self.traits.training

    @property
    def serving(self) -> bool:
        """Whether requests arrive at a rate and have latency objectives."""
        return self.traits.serving

    @property
    def generating(self) -> bool:
        """Whether generative models produce whole responses: prefill and decode."""
        return self.traits.generating

    @property
    def local_batch(self) -> int:
        """Sequences or samples one GPU works on at a time."""
        if self.micro_batch is not None:
            return self.micro_batch
        split = self.parallel.dp * (self.accumulation if self.training else 1)
        return max(1, -(-(self.batch or 1) // split))


FIELDS = tuple(field.name for field in fields(Workload))
