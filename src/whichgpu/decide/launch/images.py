"""Container images of engines, and how an engine is installed without one."""

from __future__ import annotations

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.decide.launch.options import LaunchOptions


def image_of(options: LaunchOptions, engine: str) -> str:
    """Return the container image of an engine for the vendor of the GPUs, of an earlier release if only that runs on them."""
    serve = engine_record(engine).serve
    if options.vendor != "nvidia":
        return serve.images.get(options.architecture) or serve.images.get(options.vendor, "")
    release = options.releases.get(engine)
    return f"{serve.image}:{serve.tag.format(release=release)}" if release and serve.tag else serve.image


def check_image(options: LaunchOptions, engine: str, target: str) -> None:
    """Raise an error if no image of the engine is known that runs on the GPUs."""
    if not image_of(options, engine):
        message = msg("error.emit-image", target=target, engine=engine, gpu=options.gpu)
        raise UsageError("emit-image", message, msg("hint.emit-image"))


def needs_image(options: LaunchOptions, engine: str) -> bool:
    """Whether the engine's package does not serve on the GPUs: it has none, or one for GPUs of NVIDIA only."""
    return options.vendor != "nvidia" or not engine_record(engine).serve.package


def install_notes(options: LaunchOptions, engine: str) -> list[str]:
    """Return how to install an engine where the launch file does not."""
    record = engine_record(engine)
    if not needs_image(options, engine):
        return [] if engine in options.earlier else [f"Install: pip install {record.serve.package}"]
    image = image_of(options, engine)
    why = "" if options.vendor == "nvidia" else f"; its package on PyPI is for GPUs of NVIDIA, not {options.gpu}"
    return [f"Install: {record.name} is in the image {image}{why}."] if image else []
