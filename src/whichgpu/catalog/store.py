"""The catalog: tables read when first asked for, from the bundled folder or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeVar

from whichgpu.base.dates import last_day
from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog.accuracy import Accuracy, build_accuracy
from whichgpu.catalog.cache import load_or_build
from whichgpu.catalog.engines.engine import Engine, build_engine
from whichgpu.catalog.gpu import Gpu, build_gpu
from whichgpu.catalog.host import (
    Cpu,
    Instance,
    Provider,
    Region,
    Source,
    build_cpu,
    build_instance,
    build_provider,
    build_region,
    build_source,
)
from whichgpu.catalog.model import Model, build_model
from whichgpu.catalog.pricing import (
    Discount,
    DollarExchangeRate,
    MeasuredLatency,
    PackedPrices,
    PriceRow,
    build_discount,
    build_exchange,
    build_latency,
    fill_price,
    pack_prices,
)
from whichgpu.catalog.reference_mix import MixItem, build_mix_item
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.tables import Row, bad_data_error, read_table, table_files


class Recorded(Protocol):
    """A row that says when it was last changed here."""

    @property
    def recorded(self) -> str:
        """The day."""
        ...


R = TypeVar("R", bound=Recorded)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


class Catalog:
    """Facts as known now, or (`as_known`) from the rows recorded by a day; a number is the last of the user's own snapshots that
    counts, with all that is bundled."""

    def __init__(self, folder: Path | None = None, as_known: date | int | None = None) -> None:
        self.folder = Path(folder) if folder else DATA_DIR
        self.as_known = as_known if isinstance(as_known, date) else None
        self.known_by = as_known
        if not _is_folder(self.folder):
            message = msg("error.no-data-folder", path=str(self.folder))
            raise DataError("no-data-folder", message, msg("hint.no-data-folder"))

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """Every variant, in the table's order."""

        def build() -> tuple[Gpu, ...]:
            targets, rates, quirks = (self._by_id(table) for table in ("targets", "rates", "quirks"))
            return tuple(build_gpu(row, targets, rates, quirks) for row in self._rows("gpus"))

        return self._known(Gpu, ("gpus", "targets", "rates", "quirks"), build)

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """Every cloud machine and server."""

        def build() -> tuple[Instance, ...]:
            names = {gpu.id: gpu.name for gpu in self.gpus}
            memory = {gpu.id: gpu.memory_bytes for gpu in self.gpus}
            return tuple(build_instance(row, names, memory) for row in self._rows("instances"))

        return self._known(Instance, ("instances", "gpus", "targets", "rates", "quirks"), build)

    @cached_property
    def cpus(self) -> tuple[Cpu, ...]:
        """Every host processor."""
        return self._known(Cpu, ("cpus",), lambda: tuple(map(build_cpu, self._rows("cpus"))))

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Every region."""
        return self._known(Region, ("regions",), lambda: tuple(map(build_region, self._rows("regions"))))

    @cached_property
    def providers(self) -> tuple[Provider, ...]:
        """Every provider."""
        return self._known(Provider, ("providers",), lambda: tuple(map(build_provider, self._rows("providers"))))

    @cached_property
    def models(self) -> tuple[Model, ...]:
        """Every built-in model."""
        return self._known(Model, ("models",), lambda: tuple(map(build_model, self._rows("models"))))

    def prices(self, gpus: Collection[str] | None = None) -> Iterator[PriceRow]:
        """Bundled prices of these GPUs, or of all."""
        for shelf in self._shelves:
            if gpus is None or shelf.gpu in gpus:
                for row in shelf.unpacked():
                    if self.as_known is None or last_day(row.recorded) <= self.as_known:
                        yield row

    @cached_property
    def _shelves(self) -> tuple[PackedPrices, ...]:
        def build() -> tuple[PackedPrices, ...]:
            machines = {(row["provider"], row["instance"]): row for row in self._rows("instances")}
            return pack_prices(fill_price(row, machines) for row in self._rows("prices"))

        return load_or_build("prices", PackedPrices, [self.folder / f"{table}.csv" for table in ("prices", "instances")], build)

    @cached_property
    def discounts(self) -> tuple[Discount, ...]:
        """Every rule that makes one term's price of another's."""
        return self._known(Discount, ("discounts",), lambda: tuple(map(build_discount, self._rows("discounts"))))

    @cached_property
    def exchange(self) -> tuple[DollarExchangeRate, ...]:
        """Rates of currencies the euro reference rates lack."""
        return self._known(DollarExchangeRate, ("exchange",), lambda: tuple(map(build_exchange, self._rows("exchange"))))

    @cached_property
    def latencies(self) -> tuple[MeasuredLatency, ...]:
        """Round trips somebody measured."""
        return self._known(MeasuredLatency, ("latencies",), lambda: tuple(map(build_latency, self._rows("latencies"))))

    @cached_property
    def engines(self) -> tuple[Engine, ...]:
        """Every engine."""
        return self._known(Engine, ("engines",), lambda: tuple(map(build_engine, self._rows("engines"))))

    @cached_property
    def accuracy(self) -> tuple[Accuracy, ...]:
        """Every published cost of a narrower precision."""
        return self._known(Accuracy, ("accuracy",), lambda: tuple(map(build_accuracy, self._rows("accuracy"))))

    @cached_property
    def reference_mix(self) -> tuple[MixItem, ...]:
        """What GPUs are ranked by where no workload is named."""
        return self._known(MixItem, ("reference_mix",), lambda: tuple(map(build_mix_item, self._rows("reference_mix"))))

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Every source by its id."""
        rows = self._known(Source, ("sources",), lambda: tuple(map(build_source, self._rows("sources"))))
        return {source.id: source for source in rows}

    @cached_property
    def name_parts(self) -> list[Row]:
        """What the parts of instance names mean."""
        return self._rows("name_parts")

    @cached_property
    def gpu_by_id(self) -> dict[str, Gpu]:
        """GPUs by their id."""
        return {gpu.id: gpu for gpu in self.gpus}

    def cited_sources(self, *groups: tuple[str, ...]) -> tuple[Source, ...]:
        """The sources these ids name, each once, in order of first mention."""
        ids = dict.fromkeys(id for group in groups for id in group)
        return tuple(self.sources[id] for id in ids if id in self.sources)

    def gpu_in(self, machine: Instance) -> Gpu:
        """The GPU a machine holds."""
        found = self.gpu_by_id.get(machine.gpu)
        if found is None:
            detail = msg("finding.unknown-reference", id=machine.gpu, table="gpus")
            raise bad_data_error(str(self.folder / "instances.csv"), f"{machine.provider}/{machine.instance}", "gpu", detail)
        return found

    def _by_id(self, table: str) -> dict[str, Row]:
        return {row["id"]: row for row in self._rows(table)}

    def _rows(self, table: str) -> list[Row]:
        return read_table(self.folder, table).trusted_rows()

    def _known(self, kind: type[R], tables: tuple[str, ...], build: Callable[[], tuple[R, ...]]) -> tuple[R, ...]:
        """Records of a kind, from the cache where the tables behind them have not changed; as known then, if a day is set."""
        records = load_or_build(tables[0], kind, [path for table in tables for path in table_files(self.folder, table)], build)
        if self.as_known is None:
            return records
        return tuple(record for record in records if last_day(record.recorded) <= self.as_known)
