"""An engine: the software that runs a model; what it does, and on which GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.tables import Row

# yes: its present release does. earlier: only an older one did. unsure: nobody says. no: it cannot.
Support = Literal["yes", "earlier", "unsure", "no"]
ORDER: tuple[Support, ...] = ("yes", "earlier", "unsure", "no")
SAME_TASK = {"finetune": "train", "embed": "forward"}
DRAWS = "opencl"  # GPUs that have it draw too, and so have a Vulkan driver
# No binary was made for it, but those for the capability before carry code a newer GPU translates for itself.
TRANSLATES = (7, 0)


@dataclass(frozen=True, slots=True)
class Engine:
    """Facts about an engine; compute capabilities are NVIDIA's."""

    id: str
    name: str
    maker: str
    what: str
    tasks: tuple[str, ...]
    models: str  # any, or text: only models that read or write text
    precisions: tuple[str, ...]
    interfaces: tuple[str, ...]
    framework: str | None
    min_capability: str | None
    min_capability_ever: str | None
    max_capability: str | None
    amd_targets: tuple[str, ...]
    first_release: str
    last_release: str | None
    note: str | None
    sources: tuple[str, ...]
    recorded: str
    checked: str


def build_engine(row: Row) -> Engine:
    """The engine of a table row."""
    return Engine(**{name: row[name] for name in Engine.__dataclass_fields__})


def supports_task(engine: Engine, task: str, text: bool = True) -> bool:
    """Whether an engine does a task, on a model that reads or writes text or on another."""
    return SAME_TASK.get(task, task) in engine.tasks and (text or engine.models == "any")


def may_run_on(engine: Engine, gpu: Gpu) -> bool:
    """Whether it may run there: false only where it cannot."""
    return engine_support(engine, gpu) != "no"


def engine_support(engine: Engine, gpu: Gpu) -> Support:
    """How sure it is that an engine runs on a GPU: the interface they share, and the framework the engine is built on."""
    if gpu.software is None:
        return "unsure"
    shared = [interface for interface in engine.interfaces if interface in gpu.software.api]
    if "vulkan" in engine.interfaces and DRAWS in gpu.software.api:
        shared.append("vulkan")
    ways = [_way(engine, gpu, interface) for interface in shared]
    best: Support = min(ways, key=ORDER.index) if ways else "no"
    return max(best, _framework(engine, gpu), key=ORDER.index)


def _way(engine: Engine, gpu: Gpu, interface: str) -> Support:
    """Support by one interface alone."""
    if interface == "cuda":
        return _capable(engine, gpu.compute_capability)
    if interface == "rocm" and engine.amd_targets:
        return "yes" if gpu.target in engine.amd_targets else "unsure"
    return "unsure" if interface == "vulkan" else "yes"


def _capable(engine: Engine, capability: str | None) -> Support:
    own = _number(capability)
    if own is None:
        return "unsure"
    least, ever, most = (_number(text) for text in (engine.min_capability, engine.min_capability_ever, engine.max_capability))
    if most is not None and own > most:
        return "unsure"
    if least is None or own >= least:
        return "yes"
    return "earlier" if ever is not None and own >= ever else "no"


def _framework(engine: Engine, gpu: Gpu) -> Support:
    """What the framework's own binaries run on, where the engine needs them."""
    if engine.framework is None or gpu.software is None:
        return "yes"
    last: str | None = getattr(gpu.software, f"{engine.framework}_last")
    if last == "none":
        return "unsure" if (_number(gpu.compute_capability) or (0, 0)) >= TRANSLATES else "no"
    return "unsure" if last is None else "yes" if last == "current" else "earlier"


def _number(capability: str | None) -> tuple[int, int] | None:
    """A compute capability that can be compared.

    >>> _number("7.5") < _number("12.0")
    True
    """
    if capability is None:
        return None
    major, _, minor = capability.partition(".")
    return int(major), int(minor)
