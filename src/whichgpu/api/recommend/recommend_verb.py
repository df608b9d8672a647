"""The verb `recommend`: which GPU, on which offer, in which layout, at what cost, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichgpu.api.context import Context
from whichgpu.api.request.read import read, workload
from whichgpu.base.errors import UsageError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import msg
from whichgpu.workload.kinds import Word
from whichgpu.workload.tasks import RECOMMEND_TASKS, task_of_question

if TYPE_CHECKING:
    from whichgpu.api.request.recommend import RecommendRequest
    from whichgpu.decide.answer.recommend_answer import RecommendAnswer
    from whichgpu.estimate.lookup_cache import LookupCache
    from whichgpu.workload.spelling import ParsedWorkload
    from whichgpu.workload.workload import Workload


def recommend(request: RecommendRequest, context: Context) -> RecommendAnswer:
    """Return the recommended GPU, offer and layout for a request, with cost and reasons."""
    from whichgpu.api.recommend.recommend import recommend_spelled
    from whichgpu.api.request.recommend import RecommendRequest
    from whichgpu.decide.question import ANY_MODEL
    from whichgpu.decide.requirements import Requirements, states_limits_only

    word, model = _task_word(request.get("task")), request.get("model")
    if isinstance(model, str) and not model.strip():
        raise UsageError("bad-field", msg("error.bad-field", name="MODEL", value=repr(model)), msg("hint.empty-model"))
    names = [name for name in request if name in Requirements.__struct_fields__]
    query = Requirements(**read(RecommendRequest, request, context.spell, names))
    prices = read(RecommendRequest, request, context.spell, ("prices",)).get("prices")
    task = task_of_question(word, [name for name, value in request.items() if value is not None])
    parsed = workload({"model": ANY_MODEL.name, **request, "task": task}, context.spell, without=("gpu", "gpus"))
    if "emit" in request:
        from whichgpu.api.launch.emit import check_target  # The launch targets are imported only if one is named.

        check_target(request, task, context)
    lookups = context.lookups_for(not request.get("no_own_measurements"))
    if word == "images":
        _check_picture_model(parsed.workload if model is not None else None, lookups)
    answer = None
    if word == "serve" and model is not None and states_limits_only(parsed, query):
        from whichgpu.api.recommend.highest_load import highest_load

        answer = highest_load(parsed, query, context.as_of, lookups, prices)
    if answer is None and query.owned and model is not None and _generates(parsed, lookups):
        from whichgpu.api.recommend.owned_engine import recommend_owned

        answer = recommend_owned(parsed, query, context.as_of, lookups, prices)
    answer = answer or recommend_spelled(parsed, query, context.as_of, lookups, prices, model is not None)
    if "emit" not in request:
        return answer
    from whichgpu.api.launch.emit import with_launch_files

    return with_launch_files(answer, request, context)


def _task_word(task: object) -> str:
    """Return the task or the word for one that a user typed; raise an error with the choices for any other word."""
    try:
        return Word(RECOMMEND_TASKS).read(task)
    except InvalidValue as problem:
        hint = msg("hint.choices", choices=RECOMMEND_TASKS)
        raise UsageError("bad-field", msg("error.bad-field", name="TASK", value=task), hint, RECOMMEND_TASKS) from problem


def _generates(parsed: ParsedWorkload, lookups: LookupCache) -> bool:
    """Return whether a model produces text and the user names no engine for it."""
    generating = parsed.workload.generating and "engine" not in parsed.user_fields
    return generating and lookups.shape_for(parsed.workload).is_generative


def _check_picture_model(workload: Workload | None, lookups: LookupCache) -> None:
    """Raise an error that names models for pictures unless the workload has one; None is a question without a model."""
    from whichgpu.workload.denoisers import denoiser

    if workload is not None and denoiser(lookups.shape_for(workload)):
        return
    models = tuple(model.id for model in lookups.catalog.models if model.kind == "diffusion")
    raise UsageError("wrong-task", msg("error.no-picture-model"), msg("hint.choices", choices=models), models)
