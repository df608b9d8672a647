"""A workload: the task, the model and every choice that affects memory and speed.

Flags, TOML, URL queries and JSON are spellings of this one value (`spelling.py`). A field is declared once, here: its type and
default, the kind that reads and writes it, its placeholder in help texts and an example. `api/request/workload.py` repeats the
name for type checkers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from whichgpu.base.kinds import Flag, Number, ShareValue, Text, ValueKind, Whole
from whichgpu.base.units import parse_rate, parse_seconds
from whichgpu.workload.decoding.offload import Offload, OffloadValue
from whichgpu.workload.decoding.speculative import Speculative, SpeculativeValue
from whichgpu.workload.kinds import Checkpointing, EngineName, Layout, LoraTargets, ModelValue, Word
from whichgpu.workload.parallel import Parallel as Parallel
from whichgpu.workload.precisions import GGUF_PRECISIONS, KV_PRECISIONS, PRECISIONS
from whichgpu.workload.tasks import TASK_TRAITS, TASKS, Task, TaskTraits

OPTIMIZERS = ("adamw", "adam", "sgd", "sgd-momentum", "adafactor", "adamw-8bit")
CHECKPOINTING = ("none", "full", "selective")
INTERCONNECTS = ("nvswitch", "cube-mesh", "mesh", "torus", "pairs", "pcie", "pcie-host")
NETWORKS = ("infiniband", "roce", "efa", "gpudirect-tcpx", "ethernet")
SECONDS = Number("wants.seconds", 1e6, "s", parse_seconds)


class DeclaredField(NamedTuple):
    """Declaration of one workload field: how it is read and written, its placeholder in help texts and an example."""

    kind: ValueKind
    metavar: str
    example: str


_declared: list[DeclaredField] = []


def _declare(kind: ValueKind, metavar: str = "N", example: str = "", default: Any = None) -> Any:
    """Return a workload field with its kind (how it is read and written), help placeholder `metavar`, example and default."""
    _declared.append(DeclaredField(kind, metavar, example))
    return msgspec.field(default=default)


class Workload(msgspec.Struct, frozen=True):
    """A task, a model and its settings; `model` is a name or the content of a config.json; None means the default."""

    task: Task = _declare(Word(TASKS), "NAME", default=msgspec.NODEFAULT)
    model: str | Mapping[str, Any] = _declare(ModelValue(), "MODEL", default=msgspec.NODEFAULT)
    gpu: str | None = _declare(Text(200), "NAME")
    gpus: int = _declare(Whole(1, 2**20), default=1)
    nodes: int = _declare(Whole(1, 2**20), default=1)
    precision: str | None = _declare(Word((*PRECISIONS, *GGUF_PRECISIONS)), "NAME")
    kv_precision: str | None = _declare(Word(KV_PRECISIONS), "NAME")
    batch: int | None = _declare(Whole(), example="256")
    micro_batch: int | None = _declare(Whole())
    rate: float | None = _declare(Number("wants.rate", 1e6, "/s", parse_rate, is_unit_optional=True), "N/s", "5/s")
    seq_in: int | None = _declare(Whole(), example="2048")
    seq_out: int | None = _declare(Whole(0), example="256")
    image: int | None = _declare(Whole(1, 65536), example="224")
    denoising_steps: int | None = _declare(Whole(1, 10_000), example="30")
    guidance: bool | None = _declare(Flag())  # classifier-free guidance: two passes of the denoiser a step
    frames: int | None = _declare(Whole(1, 100_000), example="81")  # pictures of a video
    memory_format: str | None = _declare(Word(("channels_last", "contiguous")), "NAME")
    optimizer: str | None = _declare(Word(OPTIMIZERS), "NAME")
    optimizer_fused: bool = _declare(Flag(), default=True)
    include_optimizer_step: bool = _declare(Flag(), default=True)
    checkpointing: str = _declare(Checkpointing(CHECKPOINTING), "NAME", default="none")
    lora_rank: int | None = _declare(Whole(0, 65536), example="16")
    lora_targets: str = _declare(LoraTargets(), "NAMES", default="all-linear")
    lora_dropout: float | None = _declare(ShareValue(), "SHARE", "0.05")  # share of the adapters' inputs dropped in training
    qlora: bool = _declare(Flag(), default=False)
    attention: str | None = _declare(Word(("flash", "sdpa", "eager")), "NAME")
    parallel: Parallel = _declare(Layout(), "tp=N,…", default=Parallel())
    speculative: Speculative | None = _declare(SpeculativeValue(), "METHOD,…", "draft=llama-3.2-1b,tokens=4")
    prefix_hit: float | None = _declare(ShareValue(), "SHARE", "0.5")  # share of input tokens in the prefix cache
    offload: Offload | None = _declare(OffloadValue(), "WHAT", "experts")  # weights in host memory
    accumulation: int = _declare(Whole(), default=1)
    epochs: float | None = _declare(Number(), example="3")
    steps: int | None = _declare(Whole(1, 10**15, True))
    tokens: int | None = _declare(Whole(1, 10**18, True), example="300B")
    samples: int | None = _declare(Whole(1, 10**18, True), example="1281167")
    ttft_max: float | None = _declare(SECONDS, "TIME", "500ms")
    tpot_max: float | None = _declare(SECONDS, "TIME", "50ms")
    percentile: float = _declare(Number("wants.percentile", 99.9999), default=95)
    engine: str | None = _declare(EngineName(), "NAME")
    year: int | None = _declare(Whole(2006, 2100), "YEAR")
    host_speed: float = _declare(Number(high=100), default=1.0)  # kernel launch speed; 1 is the calibration's CPU
    interconnect: str | None = _declare(Word(INTERCONNECTS), "NAME")  # link between the GPUs of a node
    network: str | None = _declare(Word(NETWORKS), "NAME")  # network between nodes
    network_gbps: float | None = _declare(Number(high=1e6))  # network bandwidth per GPU, Gbit/s
    method: str | None = _declare(Word(("blog-2015",)), "NAME")  # alternative formula for memory

    def with_defaults(self, **values: Any) -> Workload:
        """Return the workload with the given values for those fields that are None."""
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        return replace(self, **missing) if missing else self

    @property
    def traits(self) -> TaskTraits:
        """Return the properties of the workload's task, such as whether it trains or serves."""
        return TASK_TRAITS[self.task]

    @property
    def training(self) -> bool:
        """Whether the workload computes gradients."""
        return self.traits.training

    @property
    def serving(self) -> bool:
        """Whether the workload is a service: requests arrive at a rate and have latency objectives."""
        return self.traits.serving

    @property
    def generating(self) -> bool:
        """Whether the task generates whole responses (prefill and decode) if the model is generative."""
        return self.traits.generating

    @property
    def local_batch(self) -> int:
        """Return how many sequences or samples of the batch one GPU processes at a time."""
        if self.micro_batch is not None:
            return self.micro_batch
        split = self.parallel.dp * (self.accumulation if self.training else 1)
        return max(1, -(-(self.batch or 1) // split))


FIELDS = Workload.__struct_fields__
DECLARED: Mapping[str, DeclaredField] = dict(zip(FIELDS, _declared, strict=True))
KINDS: Mapping[str, ValueKind] = {name: declared.kind for name, declared in DECLARED.items()}
