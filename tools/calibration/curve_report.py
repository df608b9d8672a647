"""Errors of the fitted curves: as fitted, and with whole shape families and whole GPUs left out of the fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from calibration.curve_rows import Sample
from calibration.fit_curves import TURNS, Parameters, Problem, fit_all
from whichgpu.estimate.time.curves.gpus import GpuColumns

OURS = ("h200", "h200-planes", "h200-norms", "micro")


def report(chosen: Sequence[Sample], gpus: Mapping[str, GpuColumns], p: Parameters, thorough: bool) -> None:
    """Print the tables."""
    told = Problem(chosen, gpus).predict(p)
    _table("as fitted, by kind (H200)", chosen, told, lambda sample: sample.kind if sample.source == "h200" else "")
    _table(
        "as fitted, by source, GPU and precision",
        chosen,
        told,
        lambda sample: f"{sample.source} {sample.gpu} {sample.kind}" if sample.source != "h200" else "",
    )
    if thorough:
        ours = [place for place, sample in enumerate(chosen) if sample.source == "h200"]
        for title, turns in (("rows", _rows_in_turns(ours)), ("shape families", _families_in_turns(ours, chosen))):
            left = _without(turns, chosen, gpus, p)
            _table(
                f"{title} left out in turn (H200)", chosen, left, lambda sample: sample.curve if sample.source == "h200" else ""
            )
        left = _without_gpus(chosen, gpus, p)
        _table(
            "each GPU left out, by source",
            chosen,
            left,
            lambda sample: sample.source if sample.source not in OURS else "",
        )
        _table(
            "each GPU left out",
            chosen,
            left,
            lambda sample: f"{sample.source} {sample.gpu}" if sample.source not in OURS else "",
        )


def _rows_in_turns(ours: Sequence[int]) -> list[list[int]]:
    """Rows drawn without regard to what they are of: others of the same shape stay."""
    drawn = np.random.default_rng(0).permutation(ours)
    return [drawn[turn::TURNS].tolist() for turn in range(TURNS)]


def _families_in_turns(ours: Sequence[int], chosen: Sequence[Sample]) -> list[list[int]]:
    """All rows of a shape together."""
    families = sorted({chosen[place].family for place in ours})
    return [[place for place in ours if chosen[place].family in set(families[turn::TURNS])] for turn in range(TURNS)]


def _without(turns: Iterable[list[int]], chosen: Sequence[Sample], gpus: Mapping[str, GpuColumns], p: Parameters) -> np.ndarray:
    """Predictions of each turn's samples by a fit that has not seen them."""
    told = np.full(len(chosen), np.nan)
    for left in turns:
        told[left] = _predicted_without(left, chosen, gpus, p)
    return told


def _without_gpus(chosen: Sequence[Sample], gpus: Mapping[str, GpuColumns], p: Parameters) -> np.ndarray:
    """Predictions from fits that have not seen the sample's GPU."""
    told = np.full(len(chosen), np.nan)
    products = [sample for sample in chosen if sample.curve == "gemm"]
    places = [place for place, sample in enumerate(chosen) if sample.curve == "gemm"]
    for gpu in sorted({sample.gpu for sample in products if sample.source not in OURS}):
        left = [place for place, sample in enumerate(products) if sample.gpu == gpu]
        told[[places[place] for place in left]] = _predicted_without(left, products, gpus, p)
    return told


def _predicted_without(
    left: Sequence[int], chosen: Sequence[Sample], gpus: Mapping[str, GpuColumns], p: Parameters
) -> np.ndarray:
    """What a fit to the other samples predicts of those left out; architectures no longer seen have no multipliers."""
    out = set(left)
    kept = [sample for place, sample in enumerate(chosen) if place not in out]
    named = {name for sample in kept for name in (gpus[sample.gpu].architectures[0], gpus[sample.gpu].targets[0])}
    start = {
        name: 1.0 if ".architecture_multiplier." in name and name.rsplit(".", 1)[1] not in named else value
        for name, value in p.items()
    }
    return Problem([chosen[place] for place in left], gpus).predict(fit_all(kept, gpus, start, effort=6))


def _table(title: str, chosen: Sequence[Sample], told: np.ndarray, label: Callable[[Sample], str]) -> None:
    print(f"\n{title}\n{'':50}{'rows':>6}{'mean':>8}{'median':>8}{'p90':>8}{'bias':>8}")
    off = told / np.array([sample.seconds for sample in chosen]) - 1.0
    labels = np.array([label(sample) for sample in chosen])
    for name in [*sorted(set(labels) - {""}), "all"]:
        these = off[(labels != "") if name == "all" else (labels == name)]
        these = these[~np.isnan(these)]
        if len(these):
            size, bias = np.abs(these), np.median(these)
            print(f"{name:50}{len(these):6d}{size.mean():8.1%}{np.median(size):8.1%}{np.quantile(size, 0.9):8.1%}{bias:+8.1%}")
