"""Fields of a request that say two things at once, or what its model cannot do: refused, with what would work."""

from __future__ import annotations

from collections.abc import Callable, Collection

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

LENGTHS = ("epochs", "steps", "tokens")  # each says by itself how long a run is
ADAPTERS = ("lora_rank", "qlora")


def contradiction(workload: Workload, given: Collection[str], spell: Callable[[str], str]) -> UsageError | None:
    """The error of fields that exclude each other; `spell` writes a field's name as the user does."""
    lengths = [name for name in LENGTHS if name in given]
    if len(lengths) > 1:
        names = tuple(spell(name) for name in lengths)
        return UsageError("contradiction", msg("error.lengths", names=names), msg("hint.lengths", names=names), names)
    if workload.task == "serve" and {"rate", "batch"} <= set(given):
        values = {"rate": spell("rate"), "batch": spell("batch")}
        return UsageError("contradiction", msg("error.rate-and-batch", **values), msg("hint.rate-and-batch", **values))
    return None


def refuse_adapters(workload: Workload, shape: Shape) -> None:
    """Adapters beside what has no projections of a transformer."""
    if workload.training and not isinstance(shape, Transformer) and (workload.lora_rank or workload.qlora):
        flags = tuple("--" + name.replace("_", "-") for name in ADAPTERS if getattr(workload, name))
        message = msg("error.adapters", model=shape.name, flags=flags)
        raise UsageError("bad-field", message, msg("hint.adapters"), flags)


def refuse_silence(workload: Workload, shape: Shape) -> None:
    """Answers of no token."""
    speaks = isinstance(shape, Transformer) and shape.causal and shape.patches is None
    if workload.task in ("serve", "batch") and speaks and workload.seq_out == 0:
        raise UsageError("bad-field", msg("error.no-output", task=workload.task), msg("hint.no-output"), ("--seq-out",))
