"""The catalog: tables read on first use, from the bundled folder or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from whichgpu.base.dates import last_day
from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.base.names import squash
from whichgpu.catalog.accuracy import Accuracy, build_accuracy
from whichgpu.catalog.cache import load_or_build
from whichgpu.catalog.engines.engine import Engine
from whichgpu.catalog.gpu import Gpu, UnsupportedGpu, build_gpu
from whichgpu.catalog.host import Cpu, Instance, Provider, Region, Source, build_cpu, build_instance, build_region
from whichgpu.catalog.model import Model, Repositories, build_model
from whichgpu.catalog.pricing import (
    Discount,
    DollarExchangeRate,
    MeasuredLatency,
    PackedPrices,
    PriceRow,
    build_discount,
    fill_price,
    pack_prices,
)
from whichgpu.catalog.reference_mix import MixItem, build_mix_item
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.tables import Row, bad_data_error, read_table, record_of, table_files


class RecordedRow(Protocol):
    """Any catalog record that states the day it entered the catalog."""

    @property
    def recorded(self) -> str:
        """Return the day the record entered the catalog, as an ISO date."""
        ...


R = TypeVar("R", bound=RecordedRow)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _table(name: str, kind: type[R], build: Callable[[Row], R] | None = None) -> Any:
    """Make a property of a Catalog that returns all records of a table; without `build`, their fields are the columns."""
    make = build or partial(record_of, kind)

    def read(catalog: Catalog) -> tuple[R, ...]:
        return catalog._records(kind, (name,), lambda: tuple(map(make, catalog._rows(name))))

    return cached_property(read)


class Catalog:
    """Facts of the catalog as known now, or as recorded by the day `as_known`; an integer limits the user's price snapshots."""

    cpus: tuple[Cpu, ...] = _table("cpus", Cpu, build_cpu)
    regions: tuple[Region, ...] = _table("regions", Region, build_region)
    providers: tuple[Provider, ...] = _table("providers", Provider)
    models: tuple[Model, ...] = _table("models", Model, build_model)
    repositories: tuple[Repositories, ...] = _table("repositories", Repositories)
    discounts: tuple[Discount, ...] = _table("discounts", Discount, build_discount)
    exchange: tuple[DollarExchangeRate, ...] = _table("exchange", DollarExchangeRate)
    latencies: tuple[MeasuredLatency, ...] = _table("latencies", MeasuredLatency)
    engines: tuple[Engine, ...] = _table("engines", Engine)
    accuracy: tuple[Accuracy, ...] = _table("accuracy", Accuracy, build_accuracy)
    reference_mix: tuple[MixItem, ...] = _table("reference_mix", MixItem, build_mix_item)
    unsupported: tuple[UnsupportedGpu, ...] = _table("unsupported", UnsupportedGpu)
    _sources: tuple[Source, ...] = _table("sources", Source)

    def __init__(self, folder: Path | None = None, as_known: date | int | None = None) -> None:
        self.folder = Path(folder) if folder else DATA_DIR
        self.as_known = as_known if isinstance(as_known, date) else None
        self.known_by = as_known
        if not _is_folder(self.folder):
            message = msg("error.no-data-folder", path=str(self.folder))
            raise DataError("no-data-folder", message, msg("hint.no-data-folder"))

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return all GPU variants of the catalog, in table order."""

        def build() -> tuple[Gpu, ...]:
            targets, rates, quirks = ({row["id"]: row for row in self._rows(table)} for table in ("targets", "rates", "quirks"))
            return tuple(build_gpu(row, targets, rates, quirks) for row in self._rows("gpus"))

        return self._records(Gpu, ("gpus", "targets", "rates", "quirks"), build)

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """Return all cloud instances and servers of the catalog, with their GPUs."""

        def build() -> tuple[Instance, ...]:
            names = {gpu.id: gpu.name for gpu in self.gpus}
            memory = {gpu.id: gpu.memory_bytes for gpu in self.gpus}
            return tuple(build_instance(row, names, memory) for row in self._rows("instances"))

        return self._records(Instance, ("instances", "gpus", "targets", "rates", "quirks"), build)

    def prices(self, gpus: Collection[str] | None = None) -> Iterator[PriceRow]:
        """Yield the bundled prices of the GPUs with these ids, or of all GPUs."""
        for packed in self._packed_prices:
            if gpus is None or packed.gpu in gpus:
                for row in packed.decode():
                    if self.as_known is None or last_day(row.recorded) <= self.as_known:
                        yield row

    @cached_property
    def _packed_prices(self) -> tuple[PackedPrices, ...]:
        def build() -> tuple[PackedPrices, ...]:
            machines = {(row["provider"], row["instance"]): row for row in self._rows("instances")}
            return pack_prices(fill_price(row, machines) for row in self._rows("prices"))

        return load_or_build("prices", PackedPrices, [self.folder / f"{table}.csv" for table in ("prices", "instances")], build)

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Return the documents that facts are cited from, by id."""
        return {source.id: source for source in self._sources}

    @cached_property
    def name_parts(self) -> list[Row]:
        """Return the table rows that say what the parts of cloud instance names mean."""
        return self._rows("name_parts")

    @cached_property
    def gpu_by_id(self) -> dict[str, Gpu]:
        """Return all GPU variants of the catalog by their id, such as `t4`."""
        return {gpu.id: gpu for gpu in self.gpus}

    def is_seller(self, provider: str) -> bool:
        """Whether the catalog knows the seller with this id."""
        return provider in self._provider_ids

    def provider_id(self, name: str) -> str | None:
        """Return the id of the provider with this id or name, in whatever case and punctuation; None if there is none."""
        return self._provider_ids_by_name.get(squash(name)) if name.isascii() else None

    @cached_property
    def _provider_ids_by_name(self) -> dict[str, str]:
        return {squash(name): one.id for one in reversed(self.providers) for name in (one.id, one.name)}

    @cached_property
    def _provider_ids(self) -> frozenset[str]:
        return frozenset(one.id for one in self.providers)

    def cited_sources(self, *groups: tuple[str, ...]) -> tuple[Source, ...]:
        """Return the cited documents with the ids in these groups, without duplicates, in order of first mention."""
        ids = dict.fromkeys(id for group in groups for id in group)
        return tuple(self.sources[id] for id in ids if id in self.sources)

    def gpu_in(self, machine: Instance) -> Gpu:
        """Return the GPU that a cloud instance has."""
        gpu = self.gpu_by_id.get(machine.gpu)
        if gpu is None:
            detail = msg("finding.unknown-reference", id=machine.gpu, table="gpus")
            raise bad_data_error(str(self.folder / "instances.csv"), f"{machine.provider}/{machine.instance}", "gpu", detail)
        return gpu

    def _rows(self, table: str) -> list[Row]:
        return read_table(self.folder, table).trusted_rows()

    def _records(self, kind: type[R], tables: tuple[str, ...], build: Callable[[], tuple[R, ...]]) -> tuple[R, ...]:
        """Return a table's records, without those recorded after `as_known`; from the disk cache if the tables are unchanged."""
        records = load_or_build(tables[0], kind, [path for table in tables for path in table_files(self.folder, table)], build)
        if self.as_known is None:
            return records
        return tuple(record for record in records if last_day(record.recorded) <= self.as_known)
