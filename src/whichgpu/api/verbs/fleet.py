"""The verb `plan`: a fleet for models and their traffic, or for a plan file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from whichgpu.api.context import Context
from whichgpu.api.plan.plan_file import READERS, WISHES, model_asked, owned_text, quotas_text, read_plan, read_setting
from whichgpu.api.plan.request import PlanRequest as Plan
from whichgpu.api.request.field import fields_of
from whichgpu.api.request.kinds import python_number
from whichgpu.api.request.plan import PlanRequest
from whichgpu.api.request.read import read
from whichgpu.api.request.workload import ServingFields
from whichgpu.base.errors import UsageError
from whichgpu.base.files import user_path
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import msg
from whichgpu.workload.kinds import KINDS

if TYPE_CHECKING:
    from whichgpu.decide.plan.plan_answer import PlanAnswer

SERVING = tuple(fields_of(ServingFields))
TRAFFIC = ("trace", "hourly", "in_spread", "out_spread", "in_histogram", "out_histogram", "latency")
SETTINGS = tuple(name for name in READERS if name not in ("rate", "profiles", "workers"))
PLAN_FILE = ".toml"


def plan(request: PlanRequest, context: Context) -> PlanAnswer:
    """The cheapest fleet, solved and simulated."""
    from whichgpu.api.plan.plan import plan as planned

    prices = read(PlanRequest, request, context.spell, ("prices",)).get("prices")
    own = not request.get("no_own_measurements")
    return planned(plan_of(request, context), context.as_of, context.catalog, prices, own, context.progress)


def plan_of(request: Mapping[str, Any], context: Context) -> Plan:
    """The plan a request asks for: a file, or models that share the request's traffic."""
    what = _models(request.get("what", ()))
    files = [word for word in what if isinstance(word, str) and word.endswith(PLAN_FILE)]
    if files:
        if len(what) > 1:
            raise UsageError("bad-plan", msg("error.plan-file-alone", name=files[0]), msg("hint.plan"))
        return _over(read_plan(user_path(files[0])), request, context)
    if "profiles" in request and what:
        raise UsageError("bad-plan", msg("error.plan-file-alone", name="--profiles"), msg("hint.plan"))
    shared = {name: _spelled(name, request[name]) for name in (*SERVING, *TRAFFIC) if name in request}
    shared |= read(PlanRequest, request, context.spell, ("in_histogram", "out_histogram", "trace"))
    return _over(Plan(models=tuple(model_asked({"name": word, **shared}, "plan") for word in what)), request, context)


def _spelled(name: str, value: Any) -> Any:
    """A field of a `serve` request as a plan file spells it: numbers with their unit."""
    kind = KINDS.get(name)
    if kind is None or isinstance(value, str | Mapping | list | tuple):
        return value
    try:
        return kind.write_text(kind.read(python_number(value)))
    except InvalidValue:
        return value  # the model's own reader says what is wrong with it


def _models(what: Any) -> tuple[Any, ...]:
    """Models named in a text with commas, in a list, or one by its config."""
    if isinstance(what, str):
        return (what,) if what.lstrip().startswith("{") else tuple(part.strip() for part in what.split(",") if part.strip())
    return tuple(what) if isinstance(what, list | tuple) else (what,)


def _over(plan: Plan, request: Mapping[str, Any], context: Context) -> Plan:
    """The plan with the request's own fields over what a file says."""
    own = {name: value for name, value in request.items() if name in SETTINGS}
    changes: dict[str, Any] = {
        name: value if isinstance(value, bool) else read_setting(context.spell(name), name, value) for name, value in own.items()
    }
    values = read(PlanRequest, request, context.spell, ("owned", "quota", "profiles", *WISHES))
    if "jobs" in request:
        changes["workers"] = read_setting(context.spell("jobs"), "workers", request["jobs"])
    if "owned" in values:
        changes["owned"] = owned_text(",".join(values["owned"]))
    if "quota" in values:
        changes["quotas"] = quotas_text(values["quota"])
    if "profiles" in values:
        changes["profiles"] = values["profiles"]
        if "rate" in request:
            changes["rate"] = read_setting(context.spell("rate"), "rate", request["rate"])
    wishes = {name: value for name, value in values.items() if name in WISHES}
    if wishes:
        changes["query"] = replace(plan.query, **wishes)
    return replace(plan, **changes)
