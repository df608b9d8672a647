"""Warning about sequences longer than a model's context length."""

from __future__ import annotations

from whichgpu.base.messages import Message, msg
from whichgpu.workload.shapes import Shape, Transformer


def beyond_context(tokens: int, shape: Shape) -> tuple[Message, ...]:
    """Return a warning if a sequence of that many tokens is longer than the model was trained for; else ()."""
    limit = shape.max_context if isinstance(shape, Transformer) and shape.is_language_model else 0
    return (msg("warning.beyond-context", context=tokens, limit=limit, model=shape.name),) if limit and tokens > limit else ()
