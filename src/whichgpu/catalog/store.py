"""The catalog: tables read when first asked for, from the bundled folder or the user's own."""

from __future__ import annotations

from datetime import date
from functools import cached_property
from pathlib import Path

from whichgpu.base.dates import last_day
from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
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
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.tables import Row, read_table


class Catalog:
    """Facts as known now, or (`as_known`) from the rows recorded by a day."""

    def __init__(self, folder: Path | None = None, as_known: date | None = None) -> None:
        self.folder = folder or DATA_DIR
        self.as_known = as_known
        if not self.folder.is_dir():
            message = msg("error.no-data-folder", path=str(self.folder))
            raise DataError("no-data-folder", message, msg("hint.no-data-folder"))

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """Every variant, in the table's order."""
        targets, quirks = self._by_id("targets"), self._by_id("quirks")
        return tuple(build_gpu(row, targets, quirks) for row in self._rows("gpus"))

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """Every cloud machine and server."""
        names = {gpu.id: gpu.name for gpu in self.gpus}
        memory = {gpu.id: gpu.memory_bytes for gpu in self.gpus}
        return tuple(build_instance(row, names, memory) for row in self._rows("instances"))

    @cached_property
    def cpus(self) -> tuple[Cpu, ...]:
        """Every host processor."""
        return tuple(build_cpu(row) for row in self._rows("cpus"))

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Every region."""
        return tuple(build_region(row) for row in self._rows("regions"))

    @cached_property
    def providers(self) -> tuple[Provider, ...]:
        """Every provider."""
        return tuple(build_provider(row) for row in self._rows("providers"))

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Every source by its id."""
        return {row["id"]: build_source(row) for row in self._rows("sources")}

    @cached_property
    def name_parts(self) -> list[Row]:
        """What the parts of instance names mean."""
        return self._rows("name_parts")

    @cached_property
    def gpu_by_id(self) -> dict[str, Gpu]:
        """GPUs by their id."""
        return {gpu.id: gpu for gpu in self.gpus}

    def cited(self, *groups: tuple[str, ...]) -> tuple[Source, ...]:
        """The sources these ids name, each once, in order of first mention."""
        ids = dict.fromkeys(id for group in groups for id in group)
        return tuple(self.sources[id] for id in ids if id in self.sources)

    def _by_id(self, table: str) -> dict[str, Row]:
        return {row["id"]: row for row in self._rows(table)}

    def _rows(self, table: str) -> list[Row]:
        rows = read_table(self.folder, table).trusted_rows()
        if self.as_known is None:
            return rows
        return [row for row in rows if last_day(row["recorded"]) <= self.as_known]
