"""Predictions of rows by fits that never saw their group, and the errors they make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np
from msgspec.structs import asdict

from calibration.fit_steps import Design, Example, Fold, folds, left_out

H200 = "h200-"
RANKED = np.log(1.10)  # pairs that differ by less are left unranked


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


def model_group(examples: Iterable[Example]) -> Callable[[Example], str]:
    """Return the function that names the group left out together with a row, to predict a model as if it were new.

    Models measured on the H200 are left out one by one (if a kind of row has only one model, row by row), all others in ten
    folds.
    """
    models: dict[str, set[str]] = defaultdict(set)
    for example in examples:
        models[_kind(example)].add(example.groups["model"])
    single = {example.groups["model"] for example in examples if example.groups["source"].startswith(H200)}

    def group(example: Example) -> str:
        model = example.groups["model"]
        if example.groups["source"].startswith(H200) and len(models[_kind(example)]) == 1:
            return f"row {example.row.source} {example.row.row}"
        return model if model in single else f"fold {crc32(model.encode()) % 10}"

    return group


def _kind(example: Example) -> str:
    return f"{example.groups['source']}/{example.setting.unit}/{example.row.request.get('precision')}"


class HeldOut(msgspec.Struct, frozen=True):
    """Log predictions of every example by fits without its level of each axis; NaN if that level has most of the rows."""

    full: np.ndarray
    without_gpu: np.ndarray  # [GPUs in the order of their names, examples]: of all examples, by the fit without each GPU
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


def held_out(design: Design, theta: np.ndarray, fits: Mapping[str, Mapping[str, Fold]]) -> HeldOut:
    """Predictions of every example by fits that never saw its level of an axis; H200 files are one source."""
    count = len(design.examples)
    without_gpu = np.array([fits["gpu"][name].predicted for name in sorted(fits["gpu"])])
    left = {name: left_out(own, count) for name, own in fits.items()}
    return HeldOut(full=design.predict(theta, range(count)), without_gpu=without_gpu, **left)


def save(held: HeldOut, path: Path) -> None:
    """Write the predictions to a file: fitting without each group takes minutes."""
    np.savez(path, **asdict(held))


def load(path: Path) -> HeldOut:
    """Read the predictions that `save` wrote."""
    arrays = np.load(path)
    return HeldOut(**{name: arrays[name] for name in HeldOut.__struct_fields__})


def gpu_of(example: Example) -> str:
    """Id of the GPU an example ran on."""
    return example.groups["gpu"]


def source_of(example: Example) -> str:
    """Name of an example's source; all H200 files are one source."""
    return "h200" if example.groups["source"].startswith(H200) else example.groups["source"]


def rank_order(examples: Sequence[Example], held: HeldOut, actual: np.ndarray, counted: np.ndarray) -> tuple[int, float, float]:
    """Pairs of GPUs measured on the same request by the same source that differ by over 10%, and shares ordered correctly.

    First share: both predicted by one fit that never saw one of them (each of the two in turn). Second share: each predicted
    by the fit without itself, so that no error common to both cancels.
    """
    same: dict[str, list[int]] = defaultdict(list)
    for place in np.flatnonzero(counted).tolist():
        example = examples[place]
        request = {name: value for name, value in example.row.request.items() if name not in ("gpu", "id", "year")}
        same[f"{source_of(example)} {example.row.kind} {sorted(request.items(), key=str)}"].append(place)
    order = sorted({gpu_of(example) for example in examples})
    without = {name: held.without_gpu[place] for place, name in enumerate(order)}
    pairs, together, apart = 0, 0.0, 0
    for places in same.values():
        for one, other in combinations(places, 2):
            gpus = gpu_of(examples[one]), gpu_of(examples[other])
            if gpus[0] == gpus[1] or abs(actual[one] - actual[other]) < RANKED:
                continue
            slower = bool(actual[one] > actual[other])
            pairs += 1
            together += sum(bool(without[gpu][one] > without[gpu][other]) == slower for gpu in gpus) / 2
            apart += bool(held.gpu[one] > held.gpu[other]) == slower
    return pairs, together / max(1, pairs), apart / max(1, pairs)
