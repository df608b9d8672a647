"""Errors of the fitted curves: as fitted, and with whole shape families and whole GPUs left out of the fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from calibration.curve_rows import Sample
from calibration.fit_curves import FOLDS, Parameters, Problem, fit_all
from whichgpu.estimate.time.curves.gpus import GpuColumns

OWN_SOURCES = ("h200", "h200-planes", "h200-norms", "micro")


def report(chosen: Sequence[Sample], gpus: Mapping[str, GpuColumns], p: Parameters, thorough: bool) -> None:
    """Print tables of errors; with `thorough` also those of fits without rows, shape families and GPUs."""
    predictions = Problem(chosen, gpus).predict(p)
    _table("as fitted, by kind (H200)", chosen, predictions, lambda sample: sample.kind if sample.source == "h200" else "")
    _table(
        "as fitted, by source, GPU and precision",
        chosen,
        predictions,
        lambda sample: f"{sample.source} {sample.gpu} {sample.kind}" if sample.source != "h200" else "",
    )
    if thorough:
        ours = [place for place, sample in enumerate(chosen) if sample.source == "h200"]
        for title, folds in (("rows", _row_folds(ours)), ("shape families", _family_folds(ours, chosen))):
            left = _without(folds, chosen, gpus, p)
            _table(
                f"{title} left out in turn (H200)", chosen, left, lambda sample: sample.curve if sample.source == "h200" else ""
            )
        left = _without_gpus(chosen, gpus, p)
        _table(
            "each GPU left out, by source",
            chosen,
            left,
            lambda sample: sample.source if sample.source not in OWN_SOURCES else "",
        )
        _table(
            "each GPU left out",
            chosen,
            left,
            lambda sample: f"{sample.source} {sample.gpu}" if sample.source not in OWN_SOURCES else "",
        )


def _row_folds(ours: Sequence[int]) -> list[list[int]]:
    """Random folds: a row left out may have others of its shape in the fit."""
    drawn = np.random.default_rng(0).permutation(ours)
    return [drawn[fold::FOLDS].tolist() for fold in range(FOLDS)]


def _family_folds(ours: Sequence[int], chosen: Sequence[Sample]) -> list[list[int]]:
    """Folds of whole shape families: all rows of a shape are left out together."""
    families = sorted({chosen[place].family for place in ours})
    return [[place for place in ours if chosen[place].family in set(families[fold::FOLDS])] for fold in range(FOLDS)]


def _without(folds: Iterable[list[int]], chosen: Sequence[Sample], gpus: Mapping[str, GpuColumns], p: Parameters) -> np.ndarray:
    """Predictions of each fold's samples by a fit that has not seen them."""
    predictions = np.full(len(chosen), np.nan)
    for left in folds:
        predictions[left] = _predicted_without(left, chosen, gpus, p)
    return predictions


def _without_gpus(chosen: Sequence[Sample], gpus: Mapping[str, GpuColumns], p: Parameters) -> np.ndarray:
    """Predictions from fits that have not seen the sample's GPU."""
    predictions = np.full(len(chosen), np.nan)
    gemms = [sample for sample in chosen if sample.curve == "gemm"]
    places = [place for place, sample in enumerate(chosen) if sample.curve == "gemm"]
    for gpu in sorted({sample.gpu for sample in gemms if sample.source not in OWN_SOURCES}):
        left = [place for place, sample in enumerate(gemms) if sample.gpu == gpu]
        predictions[[places[place] for place in left]] = _predicted_without(left, gemms, gpus, p)
    return predictions


def _predicted_without(
    left: Sequence[int], chosen: Sequence[Sample], gpus: Mapping[str, GpuColumns], p: Parameters
) -> np.ndarray:
    """Predictions of the samples left out, by a fit on the others; architectures without samples have multiplier 1."""
    out = set(left)
    others = [sample for place, sample in enumerate(chosen) if place not in out]
    architectures = {name for sample in others for name in (gpus[sample.gpu].architectures[0], gpus[sample.gpu].targets[0])}
    start = {
        name: 1.0 if ".architecture_multiplier." in name and name.rsplit(".", 1)[1] not in architectures else value
        for name, value in p.items()
    }
    return Problem([chosen[place] for place in left], gpus).predict(fit_all(others, gpus, start, effort=6))


def _table(title: str, chosen: Sequence[Sample], predictions: np.ndarray, label: Callable[[Sample], str]) -> None:
    print(f"\n{title}\n{'':50}{'rows':>6}{'mean':>8}{'median':>8}{'p90':>8}{'bias':>8}")
    off = predictions / np.array([sample.seconds for sample in chosen]) - 1.0
    labels = np.array([label(sample) for sample in chosen])
    for name in [*sorted(set(labels) - {""}), "all"]:
        these = off[(labels != "") if name == "all" else (labels == name)]
        these = these[~np.isnan(these)]
        if len(these):
            size, bias = np.abs(these), np.median(these)
            print(f"{name:50}{len(these):6d}{size.mean():8.1%}{np.median(size):8.1%}{np.quantile(size, 0.9):8.1%}{bias:+8.1%}")
