"""Validation of fields that contradict each other or the model."""

from __future__ import annotations

from collections.abc import Callable, Collection

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.workload.denoisers import denoiser
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

LENGTHS = ("epochs", "steps", "tokens")  # Fields that state the length of a training run; only one may be given.
ADAPTERS = ("lora_rank", "qlora")


def contradiction(workload: Workload, user_fields: Collection[str], spell: Callable[[str], str]) -> UsageError | None:
    """Return an error if fields of a workload exclude each other, else None; `spell` writes a field's name as the user does."""
    lengths = [name for name in LENGTHS if name in user_fields]
    if len(lengths) > 1:
        names = tuple(spell(name) for name in lengths)
        return UsageError("contradiction", msg("error.lengths", names=names), msg("hint.lengths", names=names), names)
    if workload.serving and {"rate", "batch"} <= set(user_fields):
        values = {"rate": spell("rate"), "batch": spell("batch")}
        return UsageError("contradiction", msg("error.rate-and-batch", **values), msg("hint.rate-and-batch", **values))
    return None


def check_decoding(workload: Workload, shape: Shape) -> None:
    """Raise if speculative decoding or weights in host memory are requested of an engine whose steps do not model them."""
    options = [name for name in ("speculative", "offload") if getattr(workload, name) is not None]
    if not options or workload.training or not shape.is_generative or workload.engine is None:
        return
    if engine_record(workload.engine, workload.year).operator_by_operator:
        values = {"engine": workload.engine, "name": options[0]}
        raise UsageError("contradiction", msg("error.decoding-engine", **values), msg("hint.decoding-engine"))


def check_adapters(workload: Workload, shape: Shape) -> None:
    """Raise if LoRA adapters are given for a model that is neither a transformer nor a denoiser with an operator table."""
    if workload.training and not takes_adapters(shape) and (workload.lora_rank or workload.qlora):
        flags = tuple("--" + name.replace("_", "-") for name in ADAPTERS if getattr(workload, name))
        message = msg("error.adapters", model=shape.name, flags=flags)
        raise UsageError("bad-field", message, msg("hint.adapters"), flags)


def takes_adapters(shape: Shape) -> bool:
    """Whether LoRA adapters are modelled: for transformers and for denoisers with an operator table."""
    return shape.is_transformer or bool(denoiser(shape))


def check_output_tokens(workload: Workload, shape: Shape) -> None:
    """Raise if a generative task has no output tokens."""
    if workload.generating and shape.is_generative and workload.seq_out == 0:
        raise UsageError("bad-field", msg("error.no-output", task=workload.task), msg("hint.no-output"), ("--seq-out",))


def check_expert_parallel(workload: Workload, shape: Shape) -> None:
    """Raise for expert parallelism of a dense model, or of a degree that does not divide the ranks and the experts.

    In inference, experts are distributed over all ranks of a pipeline stage; in training, over the data-parallel ranks.
    """
    layout = workload.parallel
    if layout.ep == 1:
        return
    experts = shape.experts if isinstance(shape, Transformer) else None
    if experts is None:
        message = msg("error.no-experts", ep=layout.ep, model=shape.name)
        raise UsageError("bad-field", message, msg("hint.no-experts"), ("parallel",))
    ranks = layout.dp if workload.training else layout.dp * layout.tp
    if ranks % layout.ep or experts.count % layout.ep:
        values = {"ep": layout.ep, "ranks": ranks, "experts": experts.count}
        degrees = tuple(str(degree) for degree in range(1, ranks + 1) if ranks % degree == 0 and experts.count % degree == 0)
        message = msg("error.expert-parallel-training" if workload.training else "error.expert-parallel", **values)
        raise UsageError("bad-field", message, msg("hint.expert-parallel", degrees=degrees), ("parallel",))
