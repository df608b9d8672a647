"""Networks that draft tokens in speculative decoding: a smaller model, or one layer that shares embedding and head."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.workload.decoding.speculative import Speculative
from whichgpu.workload.shapes import Shape, Transformer


def with_draft(shape: Shape, speculative: Speculative, find: Callable[[str], Shape]) -> Shape:
    """Return the model with the network that drafts for it; `find` returns the shape of a named model."""
    if not isinstance(shape, Transformer) or not shape.is_generative:
        return shape
    if speculative.method != "draft":
        return replace(shape, draft=prediction_layer(shape, speculative.method))
    draft = find(speculative.draft)
    if not isinstance(draft, Transformer) or not draft.is_generative:
        raise UsageError("wrong-task", msg("error.wrong-task", task="decode", model=draft.name), msg("hint.wrong-task"))
    return replace(shape, draft=draft)


def prediction_layer(shape: Transformer, method: str) -> Transformer | None:
    """Return the one layer that predicts further tokens: like the model's own (MTP), or dense (EAGLE); None for n-grams."""
    if method == "ngram":
        return None
    layer = replace(shape, layers=1, pattern="", recurrent=None, sparse=None, window=0, global_every=0, other=0, draft=None)
    experts = shape.experts
    if method == "mtp" and experts:
        return replace(layer, experts=replace(experts, dense_layers=0, every=1))
    ffn = max(shape.ffn, experts.active * experts.ffn + experts.shared_ffn) if experts else shape.ffn
    return replace(layer, experts=None, ffn=ffn)
