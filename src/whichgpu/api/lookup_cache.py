"""What one sitting of questions looks up, each thing once: models by name or config, GPUs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

from whichgpu.base.names import split_count
from whichgpu.catalog.find import exact_instances, find_gpu, gpus_named
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.calibration import Calibration

T = TypeVar("T")
MOST_KEPT = 1024  # a stream of requests may name any number of configs


@dataclass(frozen=True, slots=True)
class Device:
    """The one GPU a name means, and how many the name counts: `8xA100-SXM-80GB`, a machine of eight."""

    gpu: Gpu
    count: int | None


class LookupCache:
    """A catalog with a memory of what was asked of it."""

    def __init__(
        self, catalog: Catalog | None = None, trusting: bool = True, own: bool = True, as_of: date | None = None
    ) -> None:
        self.as_of = as_of  # the day of prices
        self._own = own  # whether the user's own measurements are used
        self._calibration: Calibration | None = None
        self.catalog = catalog or Catalog()
        self._trace = _recognise if trusting else None  # tracing runs the model's code: never for a file of requests
        self._shapes: dict[str, Shape] = {}
        self._devices: dict[str, Device] = {}

    @property
    def own(self) -> bool:
        """Whether the user's own measurements are used."""
        return self._own

    def shape(self, model: str | Mapping[str, Any]) -> Shape:
        """The shape of a model."""
        key = model if isinstance(model, str) else repr(model)
        return _kept(self._shapes, key, lambda: find_model(model, self.catalog, self._trace))

    def shape_for(self, workload: Workload) -> Shape:
        """The shape of a workload's model, without its output head where the task computes no logits."""
        shape = self.shape(workload.model)
        if workload.traits.logits != "none" or not isinstance(shape, Transformer):
            return shape
        return _kept(self._shapes, f"{workload.model!r} without head", lambda: replace(shape, head=False))

    def device(self, name: str) -> Device:
        """The GPU of a name; an error with the choices where it means several."""
        return _kept(self._devices, name, lambda: Device(find_gpu(self.catalog, name), self.count(name)))

    @property
    def calibration(self) -> Calibration:
        """What corrects times: the shipped fit, with the user's own measurements on top."""
        from whichgpu.estimate.time.calibration import load_calibration

        if self._calibration is None:
            self._calibration = load_calibration()
            if self._own:
                from whichgpu.api.measure.own_measurements import own_measurements
                from whichgpu.estimate.time.own_corrections import with_own_corrections

                self._calibration = with_own_corrections(self._calibration, own_measurements(self.catalog))
        return self._calibration

    def count(self, name: str) -> int | None:
        """GPUs a name counts; None where it does not, or where the number is part of the name (5700XT)."""
        count, bare = split_count(name)
        if gpus_named(self.catalog, bare):
            return count
        machines = exact_instances(self.catalog.instances, bare)
        return int(machines[0].gpus) * (count or 1) if machines and machines[0].gpus >= 1 else None


def _kept(known: dict[str, T], key: str, find: Callable[[], T]) -> T:
    if key not in known:
        if len(known) >= MOST_KEPT:
            known.clear()
        known[key] = find()
    return known[key]


def _recognise(name: str) -> Shape | None:
    """Models beyond the built-in ones, where torch is installed to trace them; loaded only for a name that needs it."""
    from whichgpu.estimate.memory.module import recognise_module

    return recognise_module(name)
