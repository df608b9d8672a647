"""What the choices made for an engine nobody else measured are worth: vLLM of 2023 with Splitwise left out, each choice undone.

PYTHONPATH=src:tools python -m calibration.serving_choices --truth ../shared/truth --kept choices.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from evidence.serving_rows import served_rows

from calibration.serving_scores import Leaving, held
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group import eager

SOURCE = "splitwise"
# What is said of a choice, and the constants of `eager` it is made of as they would be without it.
CHOICES: tuple[tuple[str, dict[str, float]], ...] = (
    ("as it is", {}),
    ("no Ray calls", {"RAY_CALL": 0.0}),
    ("no residual sums of their own", {"SUMS": 0.0}),
    ("no views and allocations", {"LIGHT": 0.0}),
    ("none of these: kernels and collectives alone", {"RAY_CALL": 0.0, "SUMS": 0.0, "LIGHT": 0.0}),
    ("a call at what the fit gives PyTorch in 2024", {"NEWEST": 2024}),
    ("a call at what the fit gives PyTorch in 2023 (between 2022 and 2024)", {"NEWEST": 2023}),
)


def told(truth: Path) -> list[dict[str, float | str]]:
    """Median, 90th percentile and bias of the time between tokens, by choice undone."""
    runs = [run for run in served_rows(truth) if run.source == SOURCE]
    fits, lookups, found = Leaving(truth).without(SOURCE), lookup_cache(Catalog()), []
    for name, changes in CHOICES:
        with changed(changes):
            errors = np.array([run.told["tpot"] / run.seen["tpot"] - 1.0 for run in held(runs, lookups, *fits)])
        size = np.abs(errors)
        scores = {"median": np.median(size), "p90": np.quantile(size, 0.9), "bias": np.median(errors)}
        found.append({"choice": name, **{kind: float(value) for kind, value in scores.items()}})
    return found


@contextmanager
def changed(constants: dict[str, float]) -> Iterator[None]:
    """With these constants of `eager`, for a while."""
    before = {name: getattr(eager, name) for name in constants}
    try:
        for name, value in constants.items():
            setattr(eager, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(eager, name, value)


def main() -> int:
    """Predict and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--kept", type=Path, required=True)
    asked = parser.parse_args()
    asked.kept.write_text(json.dumps(told(asked.truth)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
