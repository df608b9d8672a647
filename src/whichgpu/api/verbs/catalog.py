"""Verbs about facts and prices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from whichgpu import api
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

RELATIVE = "relative."  # of fields that compare speeds
HISTORY_TERMS = ("on-demand", "spot")


def gpus(request: GpusRequest, context: Context) -> api.GpusAnswer:
    """GPUs, and their speed against one of them where that is asked for."""
    values = read(GpusRequest, request, context.spell)
    names, sort, against = (values.pop(name, None) for name in ("names", "sort", "relative_to"))
    by_speed = against is not None and (sort or "").lstrip("-").startswith(RELATIVE)
    answer = api.gpus(names or (), GpuFilter(**values, as_of=context.as_of), None if by_speed else sort, context.catalog)
    if against is None:
        return answer
    return replace(answer, relative=api.relative([gpu.id for gpu in answer.gpus], against, context.catalog))


def instances(request: InstancesRequest, context: Context) -> api.InstancesAnswer:
    """Machines, and the parts of a name."""
    values = read(InstancesRequest, request, context.spell)
    names, sort, gpu = (values.pop(name, None) for name in ("names", "sort", "gpu"))
    ids = frozenset(found.id for found in find_gpus(context.catalog, gpu)) if gpu is not None else None
    filter = InstanceFilter(**_provider(values, context), gpu_ids=ids, as_of=context.as_of)
    return api.instances(names or (), filter, sort, context.catalog)


def cpus(request: CpusRequest, context: Context) -> api.CpusAnswer:
    """Host processors."""
    values = read(CpusRequest, request, context.spell)
    return api.cpus(values.get("names", ()), values.get("sort"), context.catalog)


def regions(request: RegionsRequest, context: Context) -> api.RegionsAnswer:
    """Places."""
    values = _provider(read(RegionsRequest, request, context.spell), context)
    return api.regions(
        values.get("names", ()), values.get("provider"), values.get("sort"), context.as_of, context.catalog
    )  # fmt: skip


def models(request: ModelsRequest, context: Context) -> api.ModelsAnswer:
    """Built-in models."""
    values = read(ModelsRequest, request, context.spell)
    return api.models(values.get("names", ()), values.get("sort"), context.catalog)


def engines(request: EnginesRequest, context: Context) -> api.EnginesAnswer:
    """Engines."""
    values = read(EnginesRequest, request, context.spell)
    return api.engines(values.get("names", ()), values.get("sort"), context.catalog)


def offers(request: OffersRequest, context: Context) -> api.OffersAnswer:
    """Prices as of a day."""
    values = read(OffersRequest, request, context.spell)
    values.pop("per", None)
    prices = values.pop("prices", None)
    if "exchange_rate" in values:
        values["exchange_rate"] = parse_rates(values["exchange_rate"])
    return api.offers(api.OffersQuery(**values), context.as_of, context.catalog, prices)


def buy(request: BuyRequest, context: Context) -> api.BuyAnswer:
    """Owning against renting."""
    values = read(BuyRequest, request, context.spell)
    names, prices = values.pop("names", ()), values.pop("prices", None)
    return api.buy(",".join(names) if names else (), api.BuyInputs(**values), context.as_of, context.catalog, prices)


def history(request: HistoryRequest, context: Context) -> api.HistoryAnswer:
    """How prices went."""
    values = read(HistoryRequest, request, context.spell)
    values.pop("plot", None)
    terms, every = values.pop("term", None) or HISTORY_TERMS, values.pop("every", False)
    return api.catalog_history(
        values.pop("gpu"), terms=terms, every=every, as_of=context.as_of, catalog=context.catalog, **values
    )


def diff(request: DiffRequest, context: Context) -> api.DiffAnswer:
    """What changed between two days or snapshots."""
    values = read(DiffRequest, request, context.spell)
    return api.catalog_diff(values.pop("a"), values.pop("b"), today=context.today, catalog=context.catalog, **values)


def status(request: StatusRequest, context: Context) -> api.StatusAnswer:  # noqa: ARG001
    """Size, age and digest of the catalog, and the age of what the user's own store holds."""
    return api.catalog_status(context.catalog, context.today)


def check(request: StatusRequest, context: Context) -> CheckReport:  # noqa: ARG001
    """Every integrity check on the catalog."""
    return api.catalog_check(context.catalog.folder, context.today)


def _provider(values: dict[str, Any], context: Context) -> dict[str, Any]:
    """With a provider by its id, whatever it was called."""
    named = values.get("provider")
    return values if named is None else values | {"provider": find_provider(context.catalog, named)}
