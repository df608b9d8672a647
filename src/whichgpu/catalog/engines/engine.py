"""Engines (the software that runs a model): the tasks they do and the GPUs they support."""

from __future__ import annotations

from typing import Literal

import msgspec

from whichgpu.catalog.gpu import Gpu

# yes: the current release supports the GPU; earlier: only an older one did; unsure: not documented; no: unsupported.
Support = Literal["yes", "earlier", "unsure", "no"]
SUPPORT_ORDER: tuple[Support, ...] = ("yes", "earlier", "unsure", "no")
SAME_TASK = {"finetune": "train", "embed": "forward"}
GRAPHICS_API = "opencl"  # A GPU with OpenCL is assumed to have a graphics driver, and so Vulkan.
# From this compute capability on, binaries carry PTX that a newer GPU compiles just in time.
PTX_CAPABILITY = (7, 0)


class Engine(msgspec.Struct, frozen=True):
    """Facts about one serving engine or framework: its tasks and the GPUs it supports; compute capabilities are NVIDIA's."""

    id: str
    name: str
    maker: str
    what: str
    tasks: tuple[str, ...]
    models: str  # `any`, or `text`: only models that read or write text
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


def supports_task(engine: Engine, task: str, text: bool = True) -> bool:
    """Whether an engine supports a task; `text` says whether the model is a language model."""
    return SAME_TASK.get(task, task) in engine.tasks and (text or engine.models == "any")


def may_run_on(engine: Engine, gpu: Gpu) -> bool:
    """Whether an engine may run on a GPU: False only if it is known not to."""
    return engine_support(engine, gpu) != "no"


def engine_support(engine: Engine, gpu: Gpu) -> Support:
    """Return the support level of an engine on a GPU, from their common interfaces (CUDA, ROCm, ...) and its framework."""
    if gpu.software is None:
        return "unsure"
    shared = [interface for interface in engine.interfaces if interface in gpu.software.api]
    if "vulkan" in engine.interfaces and GRAPHICS_API in gpu.software.api:
        shared.append("vulkan")
    levels = [_interface_support(engine, gpu, interface) for interface in shared]
    best: Support = min(levels, key=SUPPORT_ORDER.index) if levels else "no"
    return max(best, _framework_support(engine, gpu), key=SUPPORT_ORDER.index)


def _interface_support(engine: Engine, gpu: Gpu, interface: str) -> Support:
    """Return the support level of an engine on a GPU through one interface, such as CUDA or ROCm."""
    if interface == "cuda":
        return _cuda_support(engine, gpu.compute_capability)
    if interface == "rocm" and engine.amd_targets:
        return "yes" if gpu.target in engine.amd_targets else "unsure"
    return "unsure" if interface == "vulkan" else "yes"


def _cuda_support(engine: Engine, capability: str | None) -> Support:
    own = _number(capability)
    if own is None:
        return "unsure"
    lowest, ever, highest = (_number(text) for text in (engine.min_capability, engine.min_capability_ever, engine.max_capability))
    if highest is not None and own > highest:
        return "unsure"
    if lowest is None or own >= lowest:
        return "yes"
    return "earlier" if ever is not None and own >= ever else "no"


def _framework_support(engine: Engine, gpu: Gpu) -> Support:
    """Return the support level of the framework that the engine is built on."""
    if engine.framework is None or gpu.software is None:
        return "yes"
    last: str | None = getattr(gpu.software, f"{engine.framework}_last")
    if last == "none":
        return "unsure" if (_number(gpu.compute_capability) or (0, 0)) >= PTX_CAPABILITY else "no"
    return "unsure" if last is None else "yes" if last == "current" else "earlier"


def _number(capability: str | None) -> tuple[int, int] | None:
    """Parse an NVIDIA compute capability to a pair of numbers that compares in order; None if there is none.

    >>> _number("7.5") < _number("12.0")
    True
    """
    if capability is None:
        return None
    major, _, minor = capability.partition(".")
    return int(major), int(minor)
