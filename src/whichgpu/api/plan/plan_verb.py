"""The verb `plan`: a fleet for models and their traffic, or for a plan file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.plan.plan_file import FILTERS, READERS, TRAFFIC, parse_quotas, read_plan, read_setting, requested_model
from whichgpu.api.plan.previous import previous_fleet
from whichgpu.api.request.field import fields_of
from whichgpu.api.request.kinds import python_number
from whichgpu.api.request.plan import PlanRequest
from whichgpu.api.request.read import read
from whichgpu.api.request.workload import ServingFields
from whichgpu.base.errors import UsageError
from whichgpu.base.files import user_path
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import msg
from whichgpu.catalog.engines.registry import default_engine
from whichgpu.decide.plan.question import PlanQuestion, parse_owned
from whichgpu.workload.workload import KINDS

if TYPE_CHECKING:
    from whichgpu.decide.plan.plan_answer import PlanAnswer

MODEL_FIELDS = (*fields_of(ServingFields), *TRAFFIC)  # Fields of a plan request that apply to all its models.
NOT_FLAGS = ("rate", "profiles", "workers")  # Settings read separately; `rate` belongs to a model unless there are profiles.
PLAN_FILE = ".toml"


def plan(request: PlanRequest, context: Context) -> PlanAnswer:
    """Return the cheapest fleet for a plan request, solved and simulated."""
    from whichgpu.api.plan.plan import plan as plan_question

    if "emit" in request:
        from whichgpu.api.launch.emit import check_target  # The launch targets are imported only if one is named.

        check_target(request, "serve", context)
    prices = read(PlanRequest, request, context.spell, ("prices",)).get("prices")
    own = not request.get("no_own_measurements")
    answer = plan_question(question_of(request, context), context.as_of, context.catalog, prices, own, context.progress)
    if not {"emit", "hints", "export"} & request.keys():
        return answer
    from whichgpu.api.launch.emit import with_launch_files

    target = request.get("emit") or request.get("hints") or default_engine("serve")
    return with_launch_files(answer, {"emit": target}, context)


def question_of(request: Mapping[str, Any], context: Context) -> PlanQuestion:
    """Return what to plan for, from a plan file or from models that share the request's traffic, with the request's settings."""
    what = _models(request.get("what", ()))
    files = [word for word in what if isinstance(word, str) and word.endswith(PLAN_FILE)]
    if files:
        if len(what) > 1:
            raise UsageError("bad-plan", msg("error.plan-file-alone", name=files[0]), msg("hint.plan"))
        return _with_settings(read_plan(user_path(files[0])), request, context)
    if "profiles" in request and what:
        raise UsageError("bad-plan", msg("error.plan-file-alone", name="--profiles"), msg("hint.plan"))
    shared = {name: _plan_file_text(name, request[name]) for name in MODEL_FIELDS if name in request}
    shared |= read(PlanRequest, request, context.spell, ("in_histogram", "out_histogram", "trace"))
    models = tuple(requested_model({"name": word, **shared}, "plan") for word in what)
    return _with_settings(PlanQuestion(models=models), request, context)


def _plan_file_text(name: str, value: Any) -> Any:
    """Return a field of a `serve` request as text for a plan file: numbers with their unit."""
    kind = KINDS.get(name)
    if kind is None or isinstance(value, str | Mapping | list | tuple):
        return value
    try:
        return kind.write_text(kind.read(python_number(value)))
    except InvalidValue:
        return value  # The parser of the model's fields reports the error.


def _models(what: Any) -> tuple[Any, ...]:
    """Return the models in a comma-separated text or a list, or the one given by its config."""
    if isinstance(what, str):
        return (what,) if what.lstrip().startswith("{") else tuple(part.strip() for part in what.split(",") if part.strip())
    return tuple(what) if isinstance(what, list | tuple) else (what,)


def _with_settings(question: PlanQuestion, request: Mapping[str, Any], context: Context) -> PlanQuestion:
    """Return a plan request whose own settings replace those of its plan file."""
    changes: dict[str, Any] = {
        name: value if isinstance(value, bool) else read_setting(context.spell(name), name, value)
        for name, value in request.items()
        if name in READERS and name not in NOT_FLAGS
    }
    values = read(PlanRequest, request, context.spell, ("owned", "quota", "profiles", "previous", *FILTERS))
    if "jobs" in request:
        changes["workers"] = read_setting(context.spell("jobs"), "workers", request["jobs"])
    if "previous" in values and "current" not in changes:
        changes["current"] = previous_fleet(values["previous"])
    if "owned" in values:
        changes["owned"] = parse_owned(",".join(values["owned"]))
    if "quota" in values:
        changes["quotas"] = parse_quotas(values["quota"])
    if "profiles" in values:
        changes["profiles"] = values["profiles"]
        if "rate" in request:
            changes["rate"] = read_setting(context.spell("rate"), "rate", request["rate"])
    filters = {**question.filters, **{name: values[name] for name in FILTERS if name in values}}
    changes["filters"] = {name: filters[name] for name in FILTERS if name in filters}
    return replace(question, **changes)
