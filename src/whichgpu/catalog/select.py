"""Pure filters and orders over catalog rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, TypeVar

from whichgpu.base.dates import first_day, last_day
from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.names import nearest
from whichgpu.catalog.gpu import PEAKS, Gpu
from whichgpu.catalog.host import Instance

T = TypeVar("T")

_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)(\+|(?:\.\.|-)(\d{1,2})\.(\d))?")


@dataclass(frozen=True, slots=True)
class GpuFilter:
    """What a GPU must have. None and () ask nothing."""

    vendor: str | None = None
    architecture: str | None = None
    min_memory_bytes: int | None = None  # as marketed, so that 80GiB lets every "80 GB" card through
    min_bandwidth: int | None = None
    supports: tuple[str, ...] = ()
    capability: tuple[tuple[int, int], tuple[int, int]] | None = None
    form_factor: str | None = None
    as_of: date | None = None

    def matches(self, gpu: Gpu) -> bool:
        """Whether a GPU has all of it."""
        return (
            (self.vendor is None or gpu.vendor == self.vendor)
            and (self.architecture is None or gpu.architecture.lower() == self.architecture.lower())
            and (self.min_memory_bytes is None or gpu.memory_marketed_bytes >= self.min_memory_bytes)
            and (self.min_bandwidth is None or gpu.memory_bandwidth >= self.min_bandwidth)
            and set(self.supports) <= set(gpu.supports)
            and (self.capability is None or self._capable(gpu))
            and (self.form_factor is None or gpu.form_factor == self.form_factor)
            and (self.as_of is None or first_day(gpu.launch_date) <= self.as_of)
        )

    def _capable(self, gpu: Gpu) -> bool:
        if gpu.compute_capability is None or self.capability is None:
            return False
        major, minor = gpu.compute_capability.split(".")
        return self.capability[0] <= (int(major), int(minor)) <= self.capability[1]


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """What a machine must have. None asks nothing."""

    provider: str | None = None
    gpu_ids: frozenset[str] | None = None
    gpus: tuple[float, float] | None = None
    min_memory_bytes: int | None = None  # of all its GPUs together
    min_ram_bytes: int | None = None
    as_of: date | None = None

    def matches(self, row: Instance) -> bool:
        """Whether a machine has all of it."""
        memory = (row.gpu_memory_bytes or 0) * max(row.gpus, 1)
        return (
            (self.provider is None or row.provider == self.provider)
            and (self.gpu_ids is None or row.gpu in self.gpu_ids)
            and (self.gpus is None or self.gpus[0] <= row.gpus <= self.gpus[1])
            and (self.min_memory_bytes is None or memory >= self.min_memory_bytes)
            and (self.min_ram_bytes is None or (row.ram_bytes or 0) >= self.min_ram_bytes)
            and (self.as_of is None or _listed(row, self.as_of))
        )


def parse_capability(text: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """The span of compute capabilities meant by `8.0`, `8.0+` or `7.0..8.6`.

    >>> parse_capability("8.0+")
    ((8, 0), (99, 9))
    """
    match = _CAPABILITY.fullmatch(text.strip())
    if match is None:
        message = msg("error.bad-capability", text=text)
        raise UsageError("bad-capability", message, msg("hint.bad-capability"))
    low = (int(match[1]), int(match[2]))
    if match[3] is None:
        return low, low
    return low, (99, 9) if match[3] == "+" else (int(match[4]), int(match[5]))


def parse_span(text: str) -> tuple[float, float]:
    """`8` or `1..8` as a span.

    >>> parse_span("1..8"), parse_span("0.5")
    ((1.0, 8.0), (0.5, 0.5))
    """
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)(?:\.\.(\d{1,6}(?:\.\d+)?))?", text.strip())
    if match is None:
        raise UsageError("bad-span", msg("error.bad-span", text=text), msg("hint.bad-span"))
    low = float(match[1])
    return low, float(match[2]) if match[2] else low


def check_supports(wanted: Sequence[str], gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """The features asked for, each of which some GPU has; otherwise an error with the nearest."""
    known = sorted({feature for gpu in gpus for feature in gpu.supports})
    for feature in wanted:
        if feature not in known:
            choices = nearest(feature, known) or tuple(known)
            hint = msg("hint.choices", choices=choices)
            raise UnknownName("unknown-feature", msg("error.unknown-feature", name=feature), hint, choices)
    return tuple(wanted)


def ordered(rows: Sequence[T], field: str | None, kind: type) -> tuple[T, ...]:
    """Rows by a field, largest first with a leading `-`; rows without it come last."""
    if field is None:
        return tuple(rows)
    down, name = field.startswith("-"), field.lstrip("-").replace("-", "_")
    value = _reader(name, kind)
    have = [row for row in rows if value(row) is not None]
    lack = [row for row in rows if value(row) is None]
    return (*sorted(have, key=value, reverse=down), *lack)


def sortable(kind: type) -> tuple[str, ...]:
    """Fields rows of that kind can be ordered by."""
    names = [field.name for field in fields(kind) if "tuple" not in str(field.type) and "Mapping" not in str(field.type)]
    return tuple(names + (list(PEAKS) if kind is Gpu else []))


def _reader(name: str, kind: type) -> Callable[[Any], Any]:
    name = name.removeprefix("peaks.")
    if name not in sortable(kind):
        choices = nearest(name, sortable(kind), least=0.4) or sortable(kind)
        raise UnknownName("unknown-field", msg("error.unknown-field", name=name), msg("hint.choices", choices=choices), choices)
    if kind is Gpu and name in PEAKS:
        return lambda row: row.peaks.get(name)

    def read(row: Any) -> Any:
        value = getattr(row, name)
        for inner in ("bandwidth", "amount"):  # a link, a host interface, a price: order by its number
            value = getattr(value, inner, value)
        return value

    return read


def _listed(row: Instance, day: date) -> bool:
    """Where it is not known when a machine came, it is only known to be there since our check."""
    began = first_day(row.first_seen or row.checked) <= day
    return began and (row.last_seen is None or day <= last_day(row.last_seen))
