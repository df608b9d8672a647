"""Verbs `gpus`, `instances`, `cpus`, `regions` and `check`: rows of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.request.catalog import CpusRequest, GpusRequest, InstancesRequest, RegionsRequest, StatusRequest
from whichgpu.api.request.read import read
from whichgpu.base.display import Displayable
from whichgpu.base.errors import AmbiguousName, NoAnswer, UnknownName
from whichgpu.base.messages import msg
from whichgpu.base.names import nearest
from whichgpu.base.version import __version__
from whichgpu.catalog.find import (
    find_cpus,
    find_gpus,
    find_instances,
    find_provider,
    find_regions,
    gpus_named,
    join_names,
)
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Cpu, Instance, Region, Source
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.select import GpuFilter, InstanceFilter, check_supports, count_matching, is_open, sort_rows
from whichgpu.catalog.store import Catalog

if TYPE_CHECKING:
    from whichgpu.api.facts.relative_speed import RelativeAnswer
    from whichgpu.catalog.checks import CheckReport
    from whichgpu.catalog.names.instances import NamePart

RELATIVE = "relative."  # Prefix of the names of relative speeds by which GPUs can be sorted.
T = TypeVar("T")
Row = Gpu | Instance | Cpu | Region


class GpusAnswer(Displayable, msgspec.Struct, frozen=True):
    """GPUs that match a request, their sources, and their relative speed if requested."""

    gpus: tuple[Gpu, ...]
    sources: tuple[Source, ...]
    relative: RelativeAnswer | None = None


class InstancesAnswer(Displayable, msgspec.Struct, frozen=True):
    """Machines that match a request; `name_parts` explains the name of a single machine."""

    instances: tuple[Instance, ...]
    name_parts: tuple[NamePart, ...]
    undated: int  # with `as_of`: machines whose first day is unknown; they count as offered from the day they were checked
    sources: tuple[Source, ...]


class CpusAnswer(Displayable, msgspec.Struct, frozen=True):
    """Host processors that match a request."""

    cpus: tuple[Cpu, ...]
    sources: tuple[Source, ...]


class RegionsAnswer(Displayable, msgspec.Struct, frozen=True):
    """Cloud regions that match a request."""

    regions: tuple[Region, ...]
    sources: tuple[Source, ...]


class FactReport(msgspec.Struct, frozen=True):
    """What a report of a wrong fact should contain: the row of the catalog, its sources and the catalog's digest."""

    kind: str
    id: str
    row: Row
    sources: tuple[Source, ...]
    version: str
    catalog_digest: str


def gpus(request: GpusRequest, context: Context) -> GpusAnswer:
    """Return the GPUs that match a request, with their speed relative to one of them if requested."""
    values = read(GpusRequest, request, context.spell)
    names, sort, against = (values.pop(name, None) for name in ("names", "sort", "relative_to"))
    by_speed = against is not None and (sort or "").lstrip("-").startswith(RELATIVE)
    answer = select_gpus(names or (), GpuFilter(**values, as_of=context.as_of), None if by_speed else sort, context.catalog)
    if against is None:
        return answer
    from whichgpu.api.facts.relative_speed import relative  # Imported here: it loads NumPy, which a list of facts does not need.

    return replace(answer, relative=relative([gpu.id for gpu in answer.gpus], against, context.catalog))


def select_gpus(
    names: Sequence[str] = (),
    filter: GpuFilter = GpuFilter(),  # noqa: B008 - frozen
    sort: str | None = None,
    catalog: Catalog | None = None,
) -> GpusAnswer:
    """Return GPUs by name (a family name selects all its variants), filtered and sorted."""
    catalog = catalog or Catalog()
    names = join_names(names, cache(lambda text: gpus_named(catalog, text, loosely=False)))
    rows = _rows_by_name(names, lambda name: find_gpus(catalog, name)) if names else catalog.gpus
    check_supports(filter.supports, catalog.gpus)
    matches = sort_rows([gpu for gpu in rows if filter.matches(gpu)], sort, Gpu)
    return GpusAnswer(
        _not_empty(matches, "gpu", rows, filter.conditions()), catalog.cited_sources(*(gpu.sources for gpu in matches))
    )


def instances(request: InstancesRequest, context: Context) -> InstancesAnswer:
    """Return the machines that match a request, and the parts of the name if it names one machine."""
    values = read(InstancesRequest, request, context.spell)
    names, sort, gpu = (values.pop(name, None) for name in ("names", "sort", "gpu"))
    if gpu is not None:
        values["gpu_ids"] = frozenset(match.id for match in find_gpus(context.catalog, gpu))
    if "provider" in values:
        values["provider"] = find_provider(context.catalog, values["provider"])
    return select_instances(names or (), InstanceFilter(**values, as_of=context.as_of), sort, context.catalog)


def select_instances(
    names: Sequence[str] = (),
    filter: InstanceFilter = InstanceFilter(),  # noqa: B008 - frozen
    sort: str | None = None,
    catalog: Catalog | None = None,
) -> InstancesAnswer:
    """Return machines whose name is or begins with one of `names`, filtered and sorted."""
    catalog = catalog or Catalog()
    rows = _rows_by_name(names, lambda name: find_instances(catalog, name)) if names else catalog.instances
    matches = sort_rows([row for row in rows if filter.matches(row)], sort, Instance)
    parts: tuple[NamePart, ...] = ()
    if len(matches) == 1 and names:
        from whichgpu.catalog.names.instances import explain_name

        parts = explain_name(catalog, matches[0])
    cited = catalog.cited_sources(*(row.sources for row in matches), *(part.sources for part in parts))
    undated = sum(row.first_seen is None for row in rows) if filter.as_of else 0
    return InstancesAnswer(_not_empty(matches, "instance", rows, filter.conditions()), parts, undated, cited)


def cpus(request: CpusRequest, context: Context) -> CpusAnswer:
    """Return host processors whose name equals one of the request's names or contains its words."""
    catalog, values = context.catalog, read(CpusRequest, request, context.spell)
    names = values.get("names", ())
    rows = _rows_by_name(names, lambda name: find_cpus(catalog, name)) if names else catalog.cpus
    matches = sort_rows(rows, values.get("sort"), Cpu)
    return CpusAnswer(_not_empty(matches, "cpu", rows, {}), catalog.cited_sources(*(row.sources for row in matches)))


def regions(request: RegionsRequest, context: Context) -> RegionsAnswer:
    """Return the regions open on a day, by name, city, country or provider."""
    catalog, values = context.catalog, read(RegionsRequest, request, context.spell)
    names, day = values.get("names", ()), context.as_of
    provider = find_provider(catalog, values["provider"]) if "provider" in values else None
    rows = _rows_by_name(names, lambda name: find_regions(catalog, name)) if names else catalog.regions
    tests: dict[str, Callable[[Region], bool]] = {}
    if provider:
        tests["provider"] = lambda row: row.provider == provider
    if day:
        tests["as_of"] = lambda row: is_open(row, day)
    matches = sort_rows([row for row in rows if all(test(row) for test in tests.values())], values.get("sort"), Region)
    return RegionsAnswer(_not_empty(matches, "region", rows, tests), catalog.cited_sources(*(row.sources for row in matches)))


def check(request: StatusRequest, context: Context) -> CheckReport:  # noqa: ARG001
    """Return the result of every integrity check on the catalog's tables and on the file of the user's price store."""
    from whichgpu.catalog.checks import check_catalog
    from whichgpu.catalog.live.price_store import NAME, store_fault
    from whichgpu.catalog.tables import Finding

    report = check_catalog(context.catalog.folder, context.today)
    fault = store_fault() if context.catalog.folder == DATA_DIR else None
    if fault is None:
        return report
    return replace(report, findings=(*report.findings, Finding("files", NAME, fault[0], "", fault[1])))


def report_error(id: str, catalog: Catalog | None = None) -> FactReport:
    """Return the catalog row with an id (of a GPU, instance, processor or region) and all that a correction needs."""
    catalog = catalog or Catalog()
    finders: tuple[tuple[str, Callable[[Catalog, str], tuple[Row, ...]]], ...] = (
        ("gpu", gpus_named),
        ("instance", find_instances),
        ("cpu", find_cpus),
        ("region", find_regions),
    )
    for kind, find in finders:
        try:
            matches = find(catalog, id)
        except UnknownName:
            continue
        if len(matches) > 1:
            choices = tuple(row_id(row) for row in matches)
            raise AmbiguousName("ambiguous-id", msg("error.ambiguous-id", name=id), msg("hint.choices", choices=choices), choices)
        if matches:
            from whichgpu.catalog.status import catalog_status

            digest = catalog_status(catalog, bundled=False).digest
            return FactReport(
                kind, row_id(matches[0]), matches[0], catalog.cited_sources(matches[0].sources), __version__, digest
            )
    rows: tuple[Row, ...] = (*catalog.gpus, *catalog.instances, *catalog.cpus, *catalog.regions)
    choices = nearest(id, [row_id(row) for row in rows])
    hint = msg("hint.nearest", choices=choices) if choices else msg("hint.list-ids")
    raise UnknownName("unknown-id", msg("error.unknown-id", name=id), hint, choices)


def row_id(row: Row) -> str:
    """Return the id of a row in reports, such as `a100-sxm-80gb` or `aws/p3.2xlarge`."""
    if isinstance(row, Instance):
        return f"{row.provider}/{row.instance}"
    return f"{row.provider}/{row.region}" if isinstance(row, Region) else row.id


def _rows_by_name(names: Sequence[str], find: Callable[[str], tuple[T, ...]]) -> tuple[T, ...]:
    """Return the rows that the names select, each once, in the order of the names."""
    return tuple({id(row): row for name in names for row in find(name)}.values())


def _not_empty(matches: tuple[T, ...], what: str, rows: Sequence[T], tests: Mapping[str, Callable[[T], bool]]) -> tuple[T, ...]:
    """Return the rows found; if there are none, raise an error with the number of rows that pass each filter by itself."""
    if not matches:
        alone = tuple(
            msg("error.leaves", flag=name.replace("_", "-"), n=left) for name, left in count_matching(rows, tests).items()
        )
        message = msg(f"error.no-{what}", n=len(rows))
        if alone and rows:
            message = msg("error.because", what=message, why=alone)
        raise NoAnswer(f"no-{what}", message, msg("hint.loosen" if rows else "hint.nothing-known"))
    return matches
