"""Notes on a workload request, and limits that several verbs share."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from whichgpu.base.messages import Message, msg
from whichgpu.workload.decoding.offload import HOST_BANDWIDTH
from whichgpu.workload.denoisers import denoiser_note, pipeline_of
from whichgpu.workload.era_defaults import era_note
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.spelling import ParsedWorkload
from whichgpu.workload.unused import beyond_context, unused
from whichgpu.workload.workload import Workload

MAX_SIMULATED_REQUESTS = 5_000_000  # Maximum number of inference requests in a simulation.
MAX_LINE_BYTES = 1 << 20  # Maximum size of one request; a config.json has a few thousand bytes.


def counted(spelled: ParsedWorkload, count: int | None) -> ParsedWorkload:
    """Return the request with the number of GPUs taken from a name such as `8xA100`, if it states no number itself."""
    if count is None or "gpus" in spelled.user_fields:
        return spelled
    return ParsedWorkload(replace(spelled.workload, gpus=count), spelled.user_fields | {"gpus"})


def made_to_fit(workload: Workload, shape: Shape, user_fields: Collection[str]) -> tuple[Message, ...]:
    """Return a note if checkpointing or a smaller micro-batch was chosen because the request does not fit otherwise."""
    if not workload.training:
        return ()
    notes = []
    if workload.checkpointing != "none" and "checkpointing" not in user_fields:
        notes.append(msg("note.checkpointing-default", checkpointing=workload.checkpointing))
    usual = shape.is_generative and "batch" not in user_fields
    passes_given = {"micro_batch", "accumulation"} & set(user_fields)
    if workload.accumulation > 1 and workload.parallel.pp == 1 and not usual and not passes_given:
        values = {"batch": workload.batch or 1, "micro": workload.local_batch, "n": workload.accumulation}
        notes.append(msg("note.accumulated-default", **values))
    return tuple(notes)


def decoding_notes(workload: Workload, shape: Shape) -> tuple[Message, ...]:
    """Return a note on what lies in host memory, and how fast it is assumed to be read."""
    offload = workload.offload
    if offload and offload.parts and pipeline_of(workload, shape):
        return (msg("note.offload-parts"),)
    if offload is None or offload.automatic or workload.training or not isinstance(shape, Transformer):
        return ()
    kind = ("some-experts" if offload.layers else "experts") if offload.experts else "layers"
    return (
        msg(
            f"note.offload-{kind}",
            layers=min(offload.layers, shape.layers),
            all=shape.layers,
            speed=f"{HOST_BANDWIDTH / 1e9:.0f}",
        ),
    )


def remarks(workload: Workload, shape: Shape, user_fields: Collection[str]) -> tuple[Message, ...]:
    """Return notes and warnings about a request's fields: unused ones, settings changed to fit memory, context exceeded."""
    messages = [*denoiser_note(workload, shape), *unused(workload, shape, user_fields)]
    messages += made_to_fit(workload, shape, user_fields)
    messages += era_note(workload, user_fields)
    if workload.training:  # For inference, the memory estimate already warns if the context is exceeded.
        messages += beyond_context(workload.seq_in or 0, shape)
    if workload.rate is not None and (not workload.serving or workload.gpu is None):
        messages.append(msg("warning.rate", batch=workload.batch or 1))
    if workload.serving and "percentile" in user_fields and workload.ttft_max is None and workload.tpot_max is None:
        messages.append(msg("warning.percentile-alone"))
    return tuple(messages)
