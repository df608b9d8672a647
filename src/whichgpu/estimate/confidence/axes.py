"""The axes on which a question can differ from everything that was measured: engine, GPU, model family, precision, layout, …"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from whichgpu.catalog.engines.registry import default_engine
from whichgpu.catalog.gpu import Gpu
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Dlrm, Mlp, Shape, TracedShape, Transformer
from whichgpu.workload.tables import load_table
from whichgpu.workload.workload import Workload

NEWEST_SOFTWARE_YEAR = 2026  # year of the newest software in the measurements
ONE_GPU = "one GPU"
ATTENTION_OPERATORS = ("dot_product", "softmax", "bmm", "baddbmm")


class Axes(msgspec.Struct, frozen=True):
    """A step by the axes of confidence. Measurements and questions have one each."""

    task: str  # train, forward or generate
    engine: str
    year: int  # of the engine's release
    gpu: str
    generation: str
    maker: str
    family: str
    precision: str  # number format: 16-bit, fp8, int4, …
    layout: str  # parallel degrees above one, such as tp or dp+tp; `one GPU`
    regime: str  # what bounds the step: compute, bandwidth, overhead or interconnect
    batch: int  # sequences or samples of one replica
    context: int  # tokens of a sequence, or pixels of an image's side


NO_AXES = Axes("", "", 0, "", "", "", "", "", "", "", 0, 0)


def axes_of(workload: Workload, shape: Shape, gpu: Gpu, task: str, regime: str) -> Axes:
    """Return the axes of a workload (defaults filled in) on a GPU."""
    return Axes(
        task=task if task in ("train", "forward") else "generate",
        engine=workload.engine or default_engine(),
        year=workload.year or NEWEST_SOFTWARE_YEAR,
        gpu=gpu.id,
        generation=generation(gpu),
        maker=gpu.vendor,
        family=family_of(shape),
        precision=number_format(workload.precision or "", gpu),
        layout=layout_of(workload),
        regime=regime,
        batch=max(1, (workload.batch or 1) // max(1, workload.parallel.dp)),
        context=(workload.seq_in or 0) + (workload.seq_out or 0) or workload.image or 1,
    )


def number_format(precision: str, gpu: Gpu) -> str:
    """Return the number format by which measurements of a precision are grouped; emulated bf16 is one of its own."""
    emulated = precision.endswith("bf16") and "bf16" not in gpu.peaks
    return "emulated bf16" if emulated else PRECISION_BY_NAME[precision].evidence_format if precision else ""


def generation(gpu: Gpu) -> str:
    """Return a GPU's hardware generation, which decides how well kernels run: architecture and compute capability as one name."""
    return f"{gpu.architecture} {gpu.compute_capability or gpu.segment}"


def layout_of(workload: Workload) -> str:
    """Return the kinds of parallelism of a workload, joined by `+`; replicas that never communicate do not count.

    Experts over data-parallel ranks are a kind of their own: their tokens are dispatched and combined.
    """
    degrees = workload.parallel
    kinds = [name for name in ("tp", "pp", "cp", "ep") if getattr(degrees, name) > 1]
    if degrees.dp > 1 and (workload.training or degrees.ep > degrees.tp):
        kinds.insert(0, "dp")
    if workload.nodes > 1 and kinds:
        kinds.append("nodes")
    return "+".join(kinds) or ONE_GPU


def family_of(shape: Shape) -> str:
    """Return the family of a model by what it computes: dense decoder, mixture of experts, MLA, CNN, ViT, diffusion, …"""
    if isinstance(shape, Transformer):
        return _transformer_family(shape)
    if isinstance(shape, TracedShape):
        return "diffusion" if shape.denoiser else _traced_family(shape.table)
    return {Mlp: "MLP", Dlrm: "recommender"}.get(type(shape), "unknown")


def _transformer_family(shape: Transformer) -> str:
    if shape.patches:
        return "ViT"
    if shape.mla:
        return "MLA"
    if shape.experts:
        return "MoE"
    if shape.encoder_layers:
        return "encoder-decoder"
    return "dense decoder" if shape.causal else "encoder"


@lru_cache(maxsize=1024)
def _traced_family(table: str) -> str:
    """Return the family of a traced network: ViT if its operators include attention, else CNN."""
    if ":" in table:
        return "CNN"
    names = {operator.name for operator in load_table(table).run(False, "fp32").operators}
    return "ViT" if any(part in name for name in names for part in ATTENTION_OPERATORS) else "CNN"
