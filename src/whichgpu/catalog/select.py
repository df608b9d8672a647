"""Filtering and sorting of catalog rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, TypeVar

import msgspec

from whichgpu.base.dates import first_day, last_day
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.base.records import field_types
from whichgpu.catalog.gpu import PEAKS, Gpu
from whichgpu.catalog.host import Instance, Region

T = TypeVar("T")

MAX_GPUS = 1_000_000  # Largest GPU count in a request (assumed).

_CAPABILITY = re.compile(r"([0-9]{1,2})\.([0-9])(\+|(?:\.\.|-)([0-9]{1,2})\.([0-9]))?")


class GpuFilter(msgspec.Struct, frozen=True):
    """Constraints on GPUs to list (vendor, memory, features, form factor ...); None and () are no constraint."""

    vendor: str | None = None
    arch: str | None = None
    min_memory: int | None = None  # bytes, compared with the marketed size, so that 80GiB matches every "80 GB" card
    min_bandwidth: int | None = None
    supports: tuple[str, ...] = ()
    compute_capability: tuple[tuple[int, int], tuple[int, int]] | None = None
    form_factor: str | None = None
    as_of: date | None = None

    def conditions(self) -> dict[str, Callable[[Gpu], bool]]:
        """Return the predicate on a GPU of each constraint that is set, by the name of its command-line flag."""
        tests: dict[str, Callable[[Gpu], bool]] = {
            "vendor": lambda gpu: gpu.vendor == self.vendor,
            "arch": lambda gpu: gpu.architecture.lower() == (self.arch or "").lower(),
            "min_memory": lambda gpu: gpu.memory_marketed_bytes >= (self.min_memory or 0),
            "min_bandwidth": lambda gpu: gpu.memory_bandwidth >= (self.min_bandwidth or 0),
            "supports": lambda gpu: set(self.supports) <= set(gpu.supports),
            "compute_capability": self._capable,
            "form_factor": lambda gpu: gpu.form_factor == self.form_factor,
            "as_of": lambda gpu: self.as_of is not None and first_day(gpu.launch_date) <= self.as_of,
        }
        return {name: test for name, test in tests.items() if getattr(self, name) not in (None, ())}

    def matches(self, gpu: Gpu) -> bool:
        """Whether a GPU meets all constraints of this filter."""
        return all(test(gpu) for test in self.conditions().values())

    def _capable(self, gpu: Gpu) -> bool:
        if gpu.compute_capability is None or self.compute_capability is None:
            return False
        major, minor = gpu.compute_capability.split(".")
        return self.compute_capability[0] <= (int(major), int(minor)) <= self.compute_capability[1]


class InstanceFilter(msgspec.Struct, frozen=True):
    """Constraints on cloud instances to list; None is no constraint."""

    provider: str | None = None
    gpu_ids: frozenset[str] | None = None
    gpus: tuple[float, float] | None = None
    min_memory: int | None = None  # bytes of all GPUs of the instance together
    min_ram: int | None = None
    as_of: date | None = None

    def conditions(self) -> dict[str, Callable[[Instance], bool]]:
        """Return the predicate on an instance of each constraint that is set, by the name of its command-line flag."""
        low, high = self.gpus or (0.0, 0.0)
        tests: dict[str, tuple[object, Callable[[Instance], bool]]] = {
            "provider": (self.provider, lambda row: row.provider == self.provider),
            "gpu": (self.gpu_ids, lambda row: row.gpu in (self.gpu_ids or ())),
            "gpus": (self.gpus, lambda row: low <= row.gpus <= high),
            "min_memory": (self.min_memory, lambda row: (row.gpu_memory_bytes or 0) * max(row.gpus, 1) >= (self.min_memory or 0)),
            "min_ram": (self.min_ram, lambda row: (row.ram_bytes or 0) >= (self.min_ram or 0)),
            "as_of": (self.as_of, lambda row: self.as_of is not None and is_listed(row, self.as_of)),
        }
        return {name: test for name, (value, test) in tests.items() if value is not None}

    def matches(self, row: Instance) -> bool:
        """Whether a cloud instance meets all constraints of this filter."""
        return all(test(row) for test in self.conditions().values())


def count_matching(rows: Sequence[T], conditions: Mapping[str, Callable[[T], bool]]) -> dict[str, int]:
    """Count the rows that each constraint would leave by itself, to explain an empty answer."""
    return {name: sum(map(test, rows)) for name, test in conditions.items()}


def parse_capability(text: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Parse a range of compute capabilities: `8.0`, `8.0+` or `7.0..8.6`.

    >>> parse_capability("8.0+")
    ((8, 0), (99, 9))
    """
    match = _CAPABILITY.fullmatch(text.strip())
    if match is None:
        message = msg("error.bad-capability", text=text)
        raise UsageError("bad-capability", message, msg("hint.bad-capability"))
    low = (int(match[1]), int(match[2]))
    high = low if match[3] is None else (99, 9) if match[3] == "+" else (int(match[4]), int(match[5]))
    if low > high:
        raise UsageError("bad-capability", msg("error.backwards", text=text), msg("hint.bad-capability"))
    return low, high


def parse_span(text: str) -> tuple[float, float]:
    """Parse `8` or `1..8` to a range of GPU counts; a number below one is a share of a GPU.

    >>> parse_span("1..8"), parse_span("0.5")
    ((1.0, 8.0), (0.5, 0.5))
    """
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,6})?)(?:\.\.([0-9]{1,18}(?:\.[0-9]{1,6})?))?", text.strip())
    if match is None:
        raise UsageError("bad-span", msg("error.bad-span", text=text), msg("hint.bad-span"))
    low = float(match[1])
    high = float(match[2]) if match[2] else low
    if any(end > 1 and not end.is_integer() for end in (low, high)) or high == 0:
        raise UsageError("bad-span", msg("error.bad-span", text=text), msg("hint.bad-span-part"))
    if low > high:
        raise UsageError("bad-span", msg("error.backwards", text=text), msg("hint.bad-span"))
    if high > MAX_GPUS:
        raise UsageError("bad-span", msg("error.span-too-large", text=text), msg("hint.span-too-large", most=f"{MAX_GPUS:,}"))
    return low, high


def check_supports(required: Sequence[str], gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """Return the required features if each is supported by some GPU; raise with the nearest feature names otherwise."""
    all_features = sorted({feature for gpu in gpus for feature in gpu.supports})
    for feature in required:
        if feature not in all_features:
            raise unknown_word("feature", feature, all_features)
    return tuple(required)


def is_open(region: Region, day: date) -> bool:
    """Whether a region was open on a day; if its opening is unknown, it counts as open from the day it was checked."""
    began = first_day(region.opened or region.checked) <= day
    return began and (region.closed is None or day <= last_day(region.closed))


def sort_rows(rows: Sequence[T], field: str | None, kind: type) -> tuple[T, ...]:
    """Sort catalog rows by a field, descending with a leading `-`; rows without a value come last."""
    if field is None:
        return tuple(rows)
    down, name = field.startswith("-"), field.lstrip("-").replace("-", "_")
    value = _reader(name, kind)
    have = [row for row in rows if value(row) is not None]
    lack = [row for row in rows if value(row) is None]
    return (*sorted(have, key=lambda row: _sort_key(value(row)), reverse=down), *lack)


def _sort_key(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def sortable_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of the fields by which records of that type can be sorted."""
    types = field_types(kind).items()
    names = [name for name, type_ in types if not any(word in type_ for word in ("tuple", "Mapping", "Software"))]
    return tuple(names + (list(PEAKS) if kind is Gpu else []))


def _reader(name: str, kind: type) -> Callable[[Any], Any]:
    name = name.removeprefix("peaks.")
    if name not in sortable_fields(kind):
        raise unknown_word("field", name, sortable_fields(kind))
    if kind is Gpu and name in PEAKS:
        return lambda row: row.peaks.get(name)

    def read(row: Any) -> Any:
        value = getattr(row, name)
        for inner in ("bandwidth", "amount"):  # A link or host interface sorts by bandwidth, a price by amount.
            value = getattr(value, inner, value)
        return value

    return read


def is_listed(row: Instance, day: date) -> bool:
    """Whether an instance was listed on a day; if its first day is unknown, from the day it was checked."""
    began = first_day(row.first_seen or row.checked) <= day
    return began and (row.last_seen is None or day <= last_day(row.last_seen))
