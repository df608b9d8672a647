"""GPUs of the user's own that the usual engine does not run on: the recommendation under an engine that runs on most GPUs."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from msgspec.structs import replace

from whichgpu.api.recommend.recommend import recommend_spelled
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidates import PORTABLE_ENGINES
from whichgpu.decide.requirements import Requirements
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.spelling import ParsedWorkload

OWNED = "owned"  # term of the user's own GPUs


def recommend_owned(
    parsed: ParsedWorkload, query: Requirements, as_of: date | None, lookups: LookupCache, overlay: Path | None
) -> RecommendAnswer:
    """Return the recommendation for a generative model; GPUs that the user owns come first under any engine that runs on them."""
    usual: RecommendAnswer | NoAnswer
    try:
        usual = recommend_spelled(parsed, query, as_of, lookups, overlay)
    except NoAnswer as problem:
        usual = problem
    if isinstance(usual, RecommendAnswer) and usual.answer.term == OWNED:
        return usual
    engine = PORTABLE_ENGINES[0]
    portable = ParsedWorkload(replace(parsed.workload, engine=engine), parsed.user_fields | {"engine"})
    try:
        answer = recommend_spelled(portable, query, as_of, lookups, overlay)
    except NoAnswer:
        answer = None
    if answer is None or answer.answer.term != OWNED:
        if isinstance(usual, NoAnswer):
            raise usual
        return usual
    why = msg("assumed.engine-of-owned", engine=engine, gpu=answer.answer.gpu_name)
    return replace(answer, assumptions=(why, *answer.assumptions))
