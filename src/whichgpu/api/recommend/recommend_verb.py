"""The verb `recommend`: which GPU, on which offer, in which layout, at what cost, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichgpu.api.context import Context
from whichgpu.api.request.read import read, workload
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.workload.tasks import RUN_TASKS

if TYPE_CHECKING:
    from whichgpu.api.request.recommend import RecommendRequest
    from whichgpu.decide.answer.recommend_answer import RecommendAnswer


def recommend(request: RecommendRequest, context: Context) -> RecommendAnswer:
    """Return the recommended GPU, offer and layout for a request, with cost and reasons."""
    from whichgpu.api.recommend.recommend import recommend_spelled
    from whichgpu.api.request.recommend import RecommendRequest
    from whichgpu.decide.question import ANY_MODEL
    from whichgpu.decide.requirements import Requirements

    task, model = request.get("task"), request.get("model")
    if task not in RUN_TASKS:
        raise UsageError(
            "bad-field", msg("error.bad-field", name="TASK", value=task), msg("hint.choices", choices=RUN_TASKS), RUN_TASKS
        )
    if isinstance(model, str) and not model.strip():
        raise UsageError("bad-field", msg("error.bad-field", name="MODEL", value=repr(model)), msg("hint.empty-model"))
    names = [name for name in request if name in Requirements.__struct_fields__]
    query = Requirements(**read(RecommendRequest, request, context.spell, names))
    prices = read(RecommendRequest, request, context.spell, ("prices",)).get("prices")
    parsed = workload({"model": ANY_MODEL.name, **request}, context.spell, without=("gpu", "gpus"))
    lookups = context.lookups_for(not request.get("no_own_measurements"))
    answer = recommend_spelled(parsed, query, context.as_of, lookups, prices, model is not None)
    if "emit" not in request:
        return answer
    from whichgpu.api.launch.emit import with_launch_files

    return with_launch_files(answer, request, context)
