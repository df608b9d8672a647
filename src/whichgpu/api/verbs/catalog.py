"""Verbs about facts and prices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from whichgpu.api.context import Context
from whichgpu.api.request.catalog import (
    CpusRequest,
    DiffRequest,
    EnginesRequest,
    GpusRequest,
    HistoryRequest,
    InstancesRequest,
    ModelsRequest,
    RegionsRequest,
    StatusRequest,
)
from whichgpu.api.request.offers import BuyRequest, OffersRequest
from whichgpu.api.request.read import read
from whichgpu.catalog.checks import CheckReport
from whichgpu.catalog.currency import parse_rates
from whichgpu.catalog.find import find_gpus, find_provider
from whichgpu.catalog.select import GpuFilter, InstanceFilter

if TYPE_CHECKING:
    from whichgpu.api.facts.catalog import CpusAnswer, GpusAnswer, InstancesAnswer, RegionsAnswer
    from whichgpu.api.facts.engines import EnginesAnswer
    from whichgpu.api.facts.models import ModelsAnswer
    from whichgpu.api.prices.buy import BuyAnswer
    from whichgpu.api.prices.changes import DiffAnswer
    from whichgpu.api.prices.history import HistoryAnswer
    from whichgpu.api.prices.offers import OffersAnswer
    from whichgpu.api.prices.store import StatusAnswer

RELATIVE = "relative."  # of fields that compare speeds
HISTORY_TERMS = ("on-demand", "spot")


def gpus(request: GpusRequest, context: Context) -> GpusAnswer:
    """GPUs, and their speed against one of them where that is asked for."""
    from whichgpu.api.facts import catalog as verbs
    from whichgpu.api.facts.relative_speed import relative

    values = read(GpusRequest, request, context.spell)
    names, sort, against = (values.pop(name, None) for name in ("names", "sort", "relative_to"))
    by_speed = against is not None and (sort or "").lstrip("-").startswith(RELATIVE)
    answer = verbs.gpus(names or (), GpuFilter(**values, as_of=context.as_of), None if by_speed else sort, context.catalog)
    if against is None:
        return answer
    return replace(answer, relative=relative([gpu.id for gpu in answer.gpus], against, context.catalog))


def instances(request: InstancesRequest, context: Context) -> InstancesAnswer:
    """Machines, and the parts of a name."""
    from whichgpu.api.facts import catalog as verbs

    values = read(InstancesRequest, request, context.spell)
    names, sort, gpu = (values.pop(name, None) for name in ("names", "sort", "gpu"))
    ids = frozenset(found.id for found in find_gpus(context.catalog, gpu)) if gpu is not None else None
    filter = InstanceFilter(**_provider(values, context), gpu_ids=ids, as_of=context.as_of)
    return verbs.instances(names or (), filter, sort, context.catalog)


def cpus(request: CpusRequest, context: Context) -> CpusAnswer:
    """Host processors."""
    from whichgpu.api.facts import catalog as verbs

    values = read(CpusRequest, request, context.spell)
    return verbs.cpus(values.get("names", ()), values.get("sort"), context.catalog)


def regions(request: RegionsRequest, context: Context) -> RegionsAnswer:
    """Places."""
    from whichgpu.api.facts import catalog as verbs

    values = _provider(read(RegionsRequest, request, context.spell), context)
    return verbs.regions(
        values.get("names", ()), values.get("provider"), values.get("sort"), context.as_of, context.catalog
    )  # fmt: skip


def models(request: ModelsRequest, context: Context) -> ModelsAnswer:
    """Built-in models."""
    from whichgpu.api.facts import models as verbs

    values = read(ModelsRequest, request, context.spell)
    return verbs.models(values.get("names", ()), values.get("sort"), context.catalog)


def engines(request: EnginesRequest, context: Context) -> EnginesAnswer:
    """Engines."""
    from whichgpu.api.facts import engines as verbs

    values = read(EnginesRequest, request, context.spell)
    return verbs.engines(values.get("names", ()), values.get("sort"), context.catalog)


def offers(request: OffersRequest, context: Context) -> OffersAnswer:
    """Prices as of a day."""
    from whichgpu.api.prices import offers as verbs
    from whichgpu.api.prices.offers import OffersQuery

    values = read(OffersRequest, request, context.spell)
    values.pop("per", None)
    prices = values.pop("prices", None)
    if "exchange_rate" in values:
        values["exchange_rate"] = parse_rates(values["exchange_rate"])
    return verbs.offers(OffersQuery(**values), context.as_of, context.catalog, prices)


def buy(request: BuyRequest, context: Context) -> BuyAnswer:
    """Owning against renting."""
    from whichgpu.api.prices import buy as verbs
    from whichgpu.api.prices.buy import BuyInputs

    values = read(BuyRequest, request, context.spell)
    names, prices = values.pop("names", ()), values.pop("prices", None)
    return verbs.buy(",".join(names) if names else (), BuyInputs(**values), context.as_of, context.catalog, prices)


def history(request: HistoryRequest, context: Context) -> HistoryAnswer:
    """How prices went."""
    from whichgpu.api.prices.history import catalog_history

    values = read(HistoryRequest, request, context.spell)
    values.pop("plot", None)
    terms, every = values.pop("term", None) or HISTORY_TERMS, values.pop("every", False)
    return catalog_history(values.pop("gpu"), terms=terms, every=every, as_of=context.as_of, catalog=context.catalog, **values)


def diff(request: DiffRequest, context: Context) -> DiffAnswer:
    """What changed between two days or snapshots."""
    from whichgpu.api.prices.changes import catalog_diff

    values = read(DiffRequest, request, context.spell)
    return catalog_diff(values.pop("a"), values.pop("b"), today=context.today, catalog=context.catalog, **values)


def status(request: StatusRequest, context: Context) -> StatusAnswer:  # noqa: ARG001
    """Size, age and digest of the catalog, and the age of what the user's own store holds."""
    from whichgpu.api.prices.store import catalog_status

    return catalog_status(context.catalog, context.today)


def check(request: StatusRequest, context: Context) -> CheckReport:  # noqa: ARG001
    """Every integrity check on the catalog."""
    from whichgpu.api.facts.catalog import catalog_check

    return catalog_check(context.catalog.folder, context.today)


def _provider(values: dict[str, Any], context: Context) -> dict[str, Any]:
    """With a provider by its id, whatever it was called."""
    named = values.get("provider")
    return values if named is None else values | {"provider": find_provider(context.catalog, named)}
