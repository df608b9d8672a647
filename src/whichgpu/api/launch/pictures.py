"""Pictures and videos to make, and header lines, from the answers of fit, estimate and recommend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.launch.from_answers import (
    chosen_values,
    figure_text,
    fitting_row,
    header,
    memory_text,
    price_text,
)
from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.api.workloads.fit import FitAnswer
from whichgpu.base.units import format_memory
from whichgpu.catalog.find import find_gpus
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.launch.diffusers_script import Pictures, has_fp16_files, loaded_precision
from whichgpu.decide.launch.models import file_name, pytorch_image, repository_of
from whichgpu.decide.launch.picture_targets import PicturePlan
from whichgpu.decide.launch.placement import Placement
from whichgpu.estimate.memory.pipeline import part_bytes
from whichgpu.price.run import STARTUP
from whichgpu.workload.defaults import from_echo
from whichgpu.workload.denoisers import denoiser
from whichgpu.workload.shapes import TracedShape

COMPILED_ENGINES = ("pytorch-compile", "cuda-graphs")
SCRIPT_ENGINES = ("pytorch", *COMPILED_ENGINES)  # what the script runs as


def diffusion_shape(answer: FitAnswer | EstimateAnswer | RecommendAnswer, context: Context) -> TracedShape | None:
    """Return the shape of the answer's model if it makes pictures or videos, else None."""
    shape = context.lookups_for(True).shape(answer.request["model"])
    return shape if isinstance(shape, TracedShape) and denoiser(shape) and shape.pipeline else None


def picture_plan(
    answer: FitAnswer | EstimateAnswer | RecommendAnswer, shape: TracedShape, context: Context
) -> PicturePlan | None:
    """Return the pictures that an answer is about; None if they fit on no GPU."""
    if isinstance(answer, RecommendAnswer):
        return _recommended(answer, shape, context)
    echo = answer.request
    day = (context.as_of or context.today).isoformat()
    if isinstance(answer, FitAnswer):
        row = fitting_row(answer)
        if row is None:
            return None
        figures = [f"memory {format_memory(row.needed)} of {format_memory(row.usable)} a GPU"]
        return _plan({**echo, "batch": row.batch * echo["gpus"]}, shape, context, day, figures, gpu=row.gpu)
    if answer.fits == "no":
        return None
    figures = [figure_text("time", answer.time), figure_text("throughput", answer.throughput)]
    figures += [f"memory {memory_text(answer.memory_device)} of {format_memory(answer.usable or 0)} a GPU"]
    figures += [f"evidence: {answer.tier}"] if answer.tier else []
    limit = answer.run.time.high + STARTUP if answer.run else None
    return _plan(echo, shape, context, day, figures, gpu=echo["gpu"], max_seconds=limit)


def _recommended(answer: RecommendAnswer, shape: TracedShape, context: Context) -> PicturePlan:
    best, echo = answer.answer, chosen_values(answer)
    figures = [figure_text("throughput", best.throughput), figure_text("run", best.run_time)]
    figures += [f"memory {memory_text(best.needed)} of {format_memory(best.usable)} a GPU"]
    figures += [price_text(best), f"evidence: {best.tier}"]
    return _plan(
        {**echo, "gpus": int(best.gpus), "nodes": max(1, best.machines)}, shape, context, answer.as_of, figures, gpu=best.gpu,
        max_seconds=best.run_time.high if best.run_time else None, provider=best.provider, instance=best.instance,
        region=best.region, is_spot=best.term == "spot",
    )  # fmt: skip


def _plan(
    echo: Mapping[str, Any], shape: TracedShape, context: Context, day: str, figures: list[str], *, gpu: str, **values: Any
) -> PicturePlan:
    (variant, *_) = find_gpus(context.catalog, gpu)
    assert shape.pipeline
    model, gpus, nodes = repository_of(echo["model"], context.catalog), echo["gpus"], echo["nodes"]
    precision = loaded_precision(shape.table, echo["precision"], "bf16" in variant.supports)
    pictures = Pictures(
        model=model,
        table=shape.table,
        precision=precision,
        batch=max(1, echo["batch"] // gpus),
        side=echo["image"],
        steps=echo["denoising_steps"],
        is_guided=bool(echo["guidance"]),
        frames=echo["frames"] or shape.pipeline.frames,
        denoisers=shape.pipeline.denoisers,
        is_offloaded=echo["offload"] is not None,
        is_compiled=echo["engine"] in COMPILED_ENGINES,
        is_channels_last=shape.denoiser == "unet" and echo["memory_format"] == "channels_last",
    )
    what = f"{model}, {pictures.precision}, on {gpus}x {variant.id}"
    lines = header(echo, day, what, [f"{pictures.batch} at once on each GPU", *figures])
    other = [] if echo["engine"] in SCRIPT_ENGINES else [f"The estimate is for {echo['engine']}; {SCRIPT_ENGINES[0]} runs this."]
    other += [] if precision == echo["precision"] else [f"Made for {precision}, which is as fast as {echo['precision']}."]
    place = Placement(
        variant.id, variant.vendor, nodes, max(1, gpus // nodes), values.pop("provider", ""), values.pop("instance", ""),
        values.pop("region", ""), values.pop("is_spot", False),
    )  # fmt: skip
    published = "bf16" if has_fp16_files(pictures) else "fp32"  # Main files of a repository may be in fp32.
    parts = part_bytes(replace(from_echo(echo), precision=published), shape, shape.pipeline)
    name = file_name(f"{model.rpartition('/')[2]}-{variant.id}")
    return PicturePlan(
        name,
        pictures,
        place,
        pytorch_image(variant),
        header=lines,
        notes=tuple(other),
        download_bytes=sum(parts.values()),
        **values,
    )
