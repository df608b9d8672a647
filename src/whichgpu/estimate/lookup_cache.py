"""Cached lookups of one session: models by name or config, GPUs by name, and the calibration of times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from whichgpu.base.lru import LruCache
from whichgpu.base.names import split_count
from whichgpu.catalog.find import exact_instances, find_gpu, gpus_named
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.workload.decoding.drafts import with_draft
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.calibration import Calibration
    from whichgpu.estimate.time.own_corrections import OwnCorrections

    OwnMeasurements = Callable[[Catalog], Mapping[str, tuple[OwnCorrections, ...]]]

T = TypeVar("T")
_EQUAL_SHAPES = LruCache[Shape](64)  # One object for all equal shapes, since results are cached under the `id()` of a shape.
MAX_ENTRIES = 1024  # The cache is limited because a stream of requests may name any number of configs.


class Device(msgspec.Struct, frozen=True):
    """GPU that a name identifies, and the number of GPUs the name states (`8xA100-SXM-80GB`: 8)."""

    gpu: Gpu
    count: int | None


class LookupCache:
    """Caches lookups of models, GPUs and calibration in a catalog.

    `trusting` allows models to be traced, which runs their code; it is off for requests read from a file. `own_measurements`
    reads the user's own measurements by GPU; None ignores them. `as_of` is the date of the prices used.
    """

    def __init__(
        self,
        catalog: Catalog | None = None,
        trusting: bool = True,
        own_measurements: OwnMeasurements | None = None,
        as_of: date | None = None,
    ) -> None:
        self.as_of = as_of
        self.catalog = catalog or Catalog()
        self._own_measurements = own_measurements
        self._calibration: Calibration | None = None
        self._trace = _trace_model if trusting else None
        self._shapes: dict[str, Shape] = {}
        self._devices: dict[str, Device] = {}

    @property
    def own(self) -> bool:
        """Whether the user's own measurements correct the calibration."""
        return self._own_measurements is not None

    def shape(self, model: str | Mapping[str, Any]) -> Shape:
        """Return the layer sizes (shape) of a model given by name or config."""
        key = model if isinstance(model, str) else repr(model)
        return _cached(self._shapes, key, lambda: find_model(model, self.catalog, self._trace))

    def shape_for(self, workload: Workload) -> Shape:
        """Return the layer sizes (shape) of a workload's model, without its output head if the task computes no logits."""
        shape = self.with_draft(self.shape(workload.model), workload)
        if workload.traits.logits == "none" and isinstance(shape, Transformer):
            shape = replace(shape, head=False)
        return _EQUAL_SHAPES.get(shape, lambda: shape)

    def with_draft(self, shape: Shape, workload: Workload) -> Shape:
        """Return a model's shape with the network that drafts for it in speculative decoding, if there is one."""
        return shape if workload.speculative is None else with_draft(shape, workload.speculative, self.shape)

    def device(self, name: str) -> Device:
        """Return the GPU with this name; raise an error that lists the choices if several match."""
        return _cached(self._devices, name, lambda: Device(find_gpu(self.catalog, name), self.count(name)))

    @property
    def calibration(self) -> Calibration:
        """Bundled fitted multipliers of step times, corrected by the user's own measurements if there are any."""
        from whichgpu.estimate.time.calibration import load_calibration

        if self._calibration is None:
            self._calibration = load_calibration()
            if self._own_measurements is not None:
                from whichgpu.estimate.time.own_corrections import with_own_corrections

                self._calibration = with_own_corrections(self._calibration, self._own_measurements(self.catalog))
        return self._calibration

    def count(self, name: str) -> int | None:
        """Return the GPUs that a name states (8xH100) or an instance has; None without a count, also in names such as 5700XT."""
        count, bare = split_count(name)
        if gpus_named(self.catalog, bare):
            return count
        machines = exact_instances(self.catalog.instances, bare)
        return int(machines[0].gpus) * (count or 1) if machines and machines[0].gpus >= 1 else None


def _cached(cache: dict[str, T], key: str, find: Callable[[], T]) -> T:
    if key not in cache:
        if len(cache) >= MAX_ENTRIES:
            cache.clear()
        cache[key] = find()
    return cache[key]


def _trace_model(name: str) -> Shape | None:
    """Trace a model that is not built in, if torch is installed; torch is imported only for a name that needs it."""
    from whichgpu.estimate.memory.module import recognise_module

    return recognise_module(name)
