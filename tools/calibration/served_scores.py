"""Published serving runs predicted by fits that never saw their source, model or GPU.

PYTHONPATH=src:tools python -m calibration.served_scores > served.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from calibration.examples import examples
from calibration.fit_groups import GroupDesign, is_fitted_on
from calibration.fit_steps import Design
from calibration.group_alone import single_times
from calibration.group_examples import GroupExample, group_examples
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.evidence import Measurement, measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group import step
from whichgpu.estimate.time import grid
from whichgpu.estimate.time.calibration import Calibration

# Sources of served runs; each of their rows is predicted without its source, its model and its GPU in turn.
SOURCES = (
    "aic-silicon", "cloudrift", "dstack", "gpustack-lab", "lambda-vllm", "ree2raz", "rocm-vllm", "sgl-cookbook", "vllm-recipes",
)  # fmt: skip
AMD = "mi"  # GPUs whose rows of any source are scored
LEFT_OUT: Mapping[str, Callable[[Measurement], str]] = {
    "source": lambda row: row.source,
    "model": lambda row: model_name(row),
    "gpu": lambda row: row.gpu,
}


class HeldServed(msgspec.Struct, frozen=True):
    """A row by source, line and GPU with the seconds predicted without its source, its model, its GPU, and with all rows."""

    source: str
    row: int
    gpu: str
    kind: str
    seconds: float
    predicted: dict[str, float]


def model_name(row: Measurement) -> str:
    """The model a row names, or the family of one given by its config."""
    model = row.request["model"]
    return model if isinstance(model, str) else f"{row.family} {model['hidden_size']}"


def is_served(row: Measurement) -> bool:
    """Whether a row is scored here."""
    return row.source in SOURCES or row.gpu.startswith(AMD)


class Replay:
    """Calls of one function in a run that is repeated with other corrections: computed the first time, then read back in order.

    Operators, their seconds and those of collectives do not depend on corrections and take most of a run's time.
    """

    def __init__(self, module: Any, name: str) -> None:
        self.target, self.compute = f"{module.__name__}.{name}", getattr(module, name)
        self.results: list[Any] = []
        self.place = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Return the result that this call had the first time."""
        if self.place == len(self.results):
            self.results.append(self.compute(*arguments, **named))
        self.place += 1
        return self.results[self.place - 1]


REPLAYED = (
    (step, "rank_pass"), (step, "rank_ops"), (step, "operator_totals"), (step, "collective_seconds"), (grid, "generation_terms"),
    (grid, "uncorrected_terms"),
)  # fmt: skip


class Folds:
    """Fits of the steps of serving engines, on one GPU and on several, without some of the rows.

    Rows of other engines share only the most general multipliers with these, so they are left out of every fold.
    """

    def __init__(self) -> None:
        self.catalog = Catalog()
        rows = [row for row in measurements() if row.kind not in ("max-load", "op") and _serving(row)]
        self.singles, self.groups = steps(rows), steps(rows, several_gpus=True)
        self.groups = [row for row in self.groups if is_fitted_on(row)]
        self.single = Design(examples(self.singles, self.catalog))
        self.full_theta = self.single.fit(np.ones(len(self.single.examples), dtype=bool))
        self.times = single_times(self.singles)
        self.found: dict[tuple[str, str, str], float] = {}
        self.replays = [Replay(module, name) for module, name in REPLAYED]

    def predictions(self, left: Callable[[Measurement], bool] | None = None) -> Iterator[tuple[Measurement, float]]:
        """Yield served rows with the seconds that the product would estimate: rows left out of the fit, or all if none is."""

        def scored(row: Measurement) -> bool:
            return is_served(row) and (left is None or left(row))

        kept = np.array([left is None or not left(example.row) for example in self.single.examples])
        theta = self.full_theta
        if not kept.all():
            supported = _supported(self.single.places, kept, len(self.single.parameters))
            theta = np.where(supported, self.single.fit(kept, np.where(supported, self.full_theta, 0.0)), 0.0)
        own = [place for place, example in enumerate(self.single.examples) if scored(example.row)]
        for place, seconds in zip(own, np.exp(self.single.predict(theta, own)), strict=True):
            yield self.single.examples[place].row, float(seconds)
        if not any(map(scored, self.groups)):
            return
        design = GroupDesign(self._group_examples(self.single.calibration(theta)))
        used = np.array([left is None or not left(example.row) for example in design.examples])
        start = np.array([self.found.get(name, 0.0) for name in design.parameters])
        theta = design.supported(design.fit(used, design.supported(start, used)), used)
        if left is None:
            self.found = {name: theta[place] for name, place in design.parameters.items()}
        for example, seconds in zip(design.examples, np.exp(design.predict(theta)), strict=True):
            if scored(example.row):
                yield example.row, float(seconds)

    def _group_examples(self, calibration: Calibration) -> list[GroupExample]:
        with ExitStack() as swapped:
            for one in self.replays:
                one.place = 0
                swapped.enter_context(patch(one.target, one))
            return group_examples(self.groups, self.catalog, calibration, self.times)


def _supported(places: np.ndarray, kept: np.ndarray, parameters: int) -> np.ndarray:
    supported = np.zeros(parameters + 1, dtype=bool)
    supported[places[kept].ravel()] = True
    return supported[:-1]


def _serving(row: Measurement) -> bool:
    engine = row.request.get("engine")
    return engine is not None and engine_record(str(engine)).style == "serving"


def held_served() -> list[HeldServed]:
    """Return every served row with its predictions by all fits."""
    folds, predictions = Folds(), dict[tuple[str, int, str, str], dict[str, float]]()
    rows: dict[tuple[str, int, str, str], Measurement] = {}

    def keep(name: str, estimates: Iterator[tuple[Measurement, float]]) -> None:
        for row, seconds in estimates:
            key = (row.source, row.row, row.gpu, row.kind)
            rows[key] = row
            predictions.setdefault(key, {})[name] = seconds

    keep("all", folds.predictions())
    scored = [row for row in chain(folds.singles, folds.groups) if is_served(row)]
    for name, key_of in LEFT_OUT.items():
        for value in sorted({key_of(row) for row in scored}):
            print(f"without {name} {value}", file=sys.stderr)
            keep(name, folds.predictions(lambda row, of=key_of, value=value: of(row) == value))  # type: ignore[misc]
    return [HeldServed(*key, rows[key].seconds, predicted) for key, predicted in predictions.items()]


def load(text: bytes) -> Sequence[HeldServed]:
    """Read what `main` printed."""
    return msgspec.json.decode(text, type=list[HeldServed])


def main() -> None:
    """Print the predictions as JSON."""
    print(json.dumps([msgspec.to_builtins(one) for one in held_served()]))


if __name__ == "__main__":
    main()
