"""Predictions of rows by fits that never saw their group, and the errors they make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

import msgspec
import numpy as np

from calibration.fit_steps import Design, Example, Fold, folds, left_out

H200 = "h200-"


class Score(msgspec.Struct, frozen=True):
    """Errors of some rows: shares of the measured time."""

    rows: int
    mean: float
    median: float
    p90: float
    bias: float  # median of predicted over measured, less one


def score(logs: np.ndarray) -> Score:
    """The score of log(predicted / measured)."""
    errors = np.abs(np.expm1(logs))
    return Score(
        len(logs),
        float(errors.mean()),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        float(np.expm1(np.median(logs))),
    )


def by(key: Callable[[Example], str], examples: Sequence[Example], logs: np.ndarray) -> dict[str, Score]:
    """Scores of rows that share a key."""
    logs_by_key: dict[str, list[float]] = defaultdict(list)
    for example, log in zip(examples, logs, strict=True):
        logs_by_key[key(example)].append(log)
    return {name: score(np.array(values)) for name, values in sorted(logs_by_key.items())}


def model_group(examples: Sequence[Example]) -> Callable[[Example], str]:
    """Return the function that names the group left out together with a row, to predict a model as if it were new.

    Models measured on the H200 are left out one by one (if a kind of row has only one model, row by row), all others in ten
    folds.
    """
    models: dict[str, set[str]] = defaultdict(set)
    for example in examples:
        models[_kind(example)].add(example.groups["model"])
    fold = model_fold(examples)

    def group(example: Example) -> str:
        if example.groups["source"].startswith(H200) and len(models[_kind(example)]) == 1:
            return f"row {example.row.source} {example.row.row}"
        return fold(example.groups["model"])

    return group


def model_fold(examples: Sequence[Example]) -> Callable[[str], str]:
    """Return the function that names the group of a model: the model itself if it was measured on the H200, else one of ten."""
    single = {example.groups["model"] for example in examples if example.groups["source"].startswith(H200)}
    return lambda model: model if model in single else f"fold {crc32(model.encode()) % 10}"


def _kind(example: Example) -> str:
    return f"{example.groups['source']}/{example.setting.unit}/{example.row.request.get('precision')}"


class HeldOut(msgspec.Struct, frozen=True):
    """Log predictions of every example by fits without its level of each axis; NaN if that level has most of the rows."""

    gpu: np.ndarray
    source: np.ndarray
    generation: np.ndarray
    maker: np.ndarray
    model: np.ndarray
    family: np.ndarray
    precision: np.ndarray
    engine: np.ndarray
    version: np.ndarray  # engine and year


AXES: Mapping[str, Callable[[Example], str]] = {
    "source": lambda example: source_of(example),
    "generation": lambda example: example.axes.generation,
    "maker": lambda example: example.axes.maker,
    "family": lambda example: example.axes.family,
    "precision": lambda example: example.axes.precision,
    "engine": lambda example: example.axes.engine,
    "version": lambda example: f"{example.axes.engine} {example.axes.year}",
}


def all_folds(design: Design, theta: np.ndarray) -> dict[str, dict[str, Fold]]:
    """Fits without each level of each axis: minutes."""
    axes = {**AXES, "gpu": gpu_of, "model": model_group(design.examples)}
    return {name: folds(design, key, theta) for name, key in axes.items()}


def held_out(design: Design, fits: Mapping[str, Mapping[str, Fold]]) -> HeldOut:
    """Predictions of every example by fits that never saw its level of an axis; H200 files are one source."""
    return HeldOut(**{name: left_out(own, len(design.examples)) for name, own in fits.items()})


def gpu_of(example: Example) -> str:
    """Id of the GPU an example ran on."""
    return example.groups["gpu"]


def source_of(example: Example) -> str:
    """Name of an example's source; all H200 files are one source."""
    return "h200" if example.groups["source"].startswith(H200) else example.groups["source"]
