"""Options of a serve line for weights in host memory, from an engine's record (`serve.offload`)."""

from __future__ import annotations

from whichgpu.base.units import GIB
from whichgpu.catalog.engines.record import EngineRecord, ServeCommand
from whichgpu.decide.launch.options import LaunchOptions


def offload_words(options: LaunchOptions, serve: ServeCommand) -> list[str]:
    """Return the words that place the weights on GPUs and in host memory as the estimate assumes."""
    kind = _kind(options)
    template = serve.offload.get(kind) or serve.offload.get(kind.removeprefix("some_"), "")
    gib = max(1, -(-options.host_weight_bytes // GIB))
    layers = options.offload.layers if options.offload else 0
    return template.format(gpu_layers=gpu_layers(options), layers=layers, gib=gib).split()


def gpu_layers(options: LaunchOptions) -> int:
    """Return how many layers are on GPUs as llama.cpp and Ollama count them: the head is one more."""
    return max(0, options.layers - (options.offload.whole_layers if options.offload else 0)) + 1


def offload_notes(options: LaunchOptions, record: EngineRecord) -> list[str]:
    """Return what is in host memory and how much of it, or that the engine has no option for it."""
    if _kind(options) == "none":
        return []
    layers = options.offload.layers if options.offload else 0
    what = f"{layers} of {options.layers} layers"
    if options.offload and options.offload.experts:
        what = f"the experts of the first {what}" if layers else "the experts"
    size = f"{options.host_weight_bytes / GIB:.3g} GiB of weights a GPU"
    if not offload_words(options, record.serve):
        return [f"Host memory: the estimate has {what} there ({size}); {record.name} has no option for it."]
    return [f"Host memory: {what}, {size}."]


def _kind(options: LaunchOptions) -> str:
    offload = options.offload
    if offload is None or not (offload.experts or offload.layers):
        return "none"
    if offload.experts:
        return "some_experts" if offload.layers else "experts"
    return "layers"
