"""Fit the curves of single operators and write them to the package.

    PYTHONPATH=src:tools python -m calibration.fit_curves --truth ../shared/truth   # a part of tools/calibrate

Nonlinear least squares on log(predicted / measured) in the logarithm of every parameter, with robust residuals and a wide prior
around where it starts; multipliers of one architecture have a narrow one around 1, so that an architecture seen little stays near
the others. `--report` also leaves out whole shape families and whole GPUs in turn and prints the errors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from calibration import curve_rows
from calibration.curve_rows import Sample, samples
from calibration.curve_start import AT_LEAST, AT_MOST, ATTENTION, CACHE, CONV, FIXED, GEMM, MEMORY, NORMS, NUISANCE, PLANES
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.curves.evaluate import CURVES, roofline_seconds, stacks_by_curve
from whichgpu.estimate.time.curves.gpus import REFERENCE_ARCHITECTURE, GpuColumns, build_gpu_columns
from whichgpu.estimate.time.curves.parameters import DATA_FILE
from whichgpu.estimate.time.curves.stack import OperatorStack
from whichgpu.estimate.time.operators import CLASS_BY_KIND
from whichgpu.estimate.time.units import UNITS

Parameters = dict[str, float]

COMMAND = ".venv/bin/python tools/calibrate --truth ../shared/truth"

ROBUST = 0.12  # residuals beyond this count less than their square
# Widths of the priors, in log: of a curve's parameter, of one that shares its rows with others, of an architecture's multiplier.
WIDE, MIDDLE, NARROW = 1.0, 0.5, 0.12
ROWS = 40.0  # rows of one source and GPU count as no more than so many
# Times of these sources hold more than the kernel: launches, events.
OFFSETS = {
    "offset.neusight": 30e-6,
    "offset.vidur": 2e-6,
    "offset.aiconfigurator": 1e-6,
    "offset.micro": 15e-6,
    "offset.stas00": 1e-7,
}
LEFT_OUT = ("arc-pro-b60-24gb",)  # its times are below what its bandwidth allows
TURNS = 10  # in which shape families are left out


@dataclass(frozen=True, slots=True)
class Piece:
    """Operators of one curve, unit and GPU, and the samples they belong to."""

    curve: str
    stack: OperatorStack
    gpu: GpuColumns
    owners: np.ndarray


class Problem:
    """Samples stacked once, so that predicting them again is fast."""

    def __init__(self, chosen: Sequence[Sample], gpus: Mapping[str, GpuColumns]) -> None:
        self.samples = chosen
        self.measured = np.array([sample.seconds for sample in chosen])
        self.pieces: list[Piece] = []
        self.sources = np.array([sample.source for sample in chosen])
        for gpu in sorted({sample.gpu for sample in chosen}):
            found = [(place, op) for place, sample in enumerate(chosen) if sample.gpu == gpu for op in sample.ops]
            for places, group in stacks_by_curve([op for _, op in found]):
                owners = np.array([found[place][0] for place in places])
                self.pieces.append(Piece(CLASS_BY_KIND[group.ops[0].kind], group, gpus[gpu], owners))
        counts = Counter((sample.source, sample.gpu) for sample in chosen)
        capped = [
            min(1.0, ROWS / counts[sample.source, sample.gpu]) if not sample.source.startswith("h200") else 1.0
            for sample in chosen
        ]
        self.weights = np.sqrt(np.array(capped))

    def predict(self, p: Parameters) -> np.ndarray:
        """Seconds of each sample."""
        told = np.zeros(len(self.samples))
        for piece in self.pieces:
            floor = np.maximum(*roofline_seconds(piece.stack, piece.gpu, p))
            seconds = np.maximum(CURVES[piece.curve](piece.stack, piece.gpu, p), floor)[0, :, 0]
            told += np.bincount(piece.owners, seconds, minlength=len(told))
        for source in set(self.sources):
            told[self.sources == source] += p.get(f"offset.{source}", 0.0)
        return told


def fit(problem: Problem, known: Parameters, start: Mapping[str, float], effort: int = 60) -> Parameters:
    """The parameters of `start`, fitted; the others stay as known."""
    names = sorted(start)
    centres = np.log([start[name] for name in names])
    widths = np.array([_width(name) for name in names])

    def residuals(x: np.ndarray) -> np.ndarray:
        p = {**known, **dict(zip(names, np.exp(x), strict=True))}
        off = np.log(problem.predict(p) / problem.measured) / ROBUST
        robust = np.sign(off) * np.sqrt(2.0 * (np.sqrt(1.0 + off**2) - 1.0)) * problem.weights
        return np.concatenate([robust, (x - centres) / widths])

    least, most = (np.log([bound(name, start[name]) for name in names]) for bound in (_at_least, _at_most))
    x0 = np.clip(np.log([known.get(name, start[name]) for name in names]), least + 1e-3, most - 1e-3)
    found = least_squares(residuals, x0, x_scale=0.3, max_nfev=effort, diff_step=1e-3, bounds=(least, most))
    return {**known, **dict(zip(names, (float(value) for value in np.exp(found.x)), strict=True))}


def _at_most(name: str, start: float) -> float:
    return next(
        (value for prefix, value in AT_MOST.items() if name.startswith(prefix) and not name.endswith("seconds")), 10.0 * start
    )


def _at_least(name: str, start: float) -> float:
    return next(
        (value for prefix, value in AT_LEAST.items() if name.startswith(prefix) and not name.endswith("seconds")), 0.1 * start
    )


def _width(name: str) -> float:
    if ".factor." in name:
        return NARROW
    return MIDDLE if name.startswith(("offset.", "conv.")) else WIDE


def starts(chosen: Iterable[Sample], gpus: Mapping[str, GpuColumns]) -> dict[str, dict[str, float]]:
    """What is fitted for each curve, in order; multipliers for architectures that were measured."""
    factors: dict[str, float] = {}
    for sample in chosen:
        gpu = gpus[sample.gpu]
        if sample.curve == "gemm" and gpu.architectures[0] != REFERENCE_ARCHITECTURE[0]:  # its multipliers are 1
            unit = max(sample.ops, key=lambda op: float(op.flops)).unit
            for name in (gpu.architectures[0], gpu.targets[0]):
                factors[f"gemm.factor.{UNITS[unit].product_class}.{name}"] = 1.0
                factors[f"gemm.factor.bandwidth.{name}"] = 1.0
    return {
        "memory": {**MEMORY, **CACHE},
        "gemm": {**GEMM, **factors, **OFFSETS},
        "conv": CONV,
        "planes": PLANES,
        "norms": NORMS,
        "attention": ATTENTION,
    }


def fit_all(
    chosen: Sequence[Sample], gpus: Mapping[str, GpuColumns], known: Parameters | None = None, effort: int = 60
) -> Parameters:
    """Every curve, one after another."""
    order = starts(chosen, gpus)
    p = dict(known) if known else {**FIXED, **{name: value for start in order.values() for name, value in start.items()}}
    for curve, start in order.items():
        about = [sample for sample in chosen if sample.curve == curve]
        if about:
            p = fit(Problem(about, gpus), p, start, effort)
    return p


def usable(folder: Path) -> list[Sample]:
    """The samples to fit on."""
    return [sample for sample in samples(folder) if sample.gpu not in LEFT_OUT]


def gpu_columns(chosen: Iterable[Sample]) -> dict[str, GpuColumns]:
    """Columns of each GPU that was measured."""
    known = Catalog().gpu_by_id
    return {gpu: build_gpu_columns([known[gpu]]) for gpu in sorted({sample.gpu for sample in chosen})}


def digests(folder: Path) -> dict[str, str]:
    """What the fit stands on: measurements given, and our own."""
    given = ("h200/ops.jsonl", "h200/micro.jsonl", "public/calibration.csv")
    files = {name: folder / name for name in given} | {path.name: path for path in (curve_rows.PLANES, curve_rows.NORMS)}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def written(p: Parameters, folder: Path) -> str:
    """The data file."""
    kept = {
        name: float(f"{value:.4g}")
        for name, value in sorted(p.items())
        if not name.startswith("offset.") and name not in NUISANCE
    }
    made = {"command": COMMAND, "date": date.today().isoformat(), "sha256": digests(folder)}
    others = json.loads(DATA_FILE.read_bytes()) if DATA_FILE.exists() else {}
    return json.dumps(others | {"parameters": kept, "curves": made}, indent=1, sort_keys=True) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Fit and write; or report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--report", action="store_true", help="print errors, leaving out families and GPUs in turn")
    arguments = parser.parse_args(words)
    chosen = usable(arguments.truth)
    gpus = gpu_columns(chosen)
    p = fit_all(chosen, gpus)
    DATA_FILE.write_text(written(p, arguments.truth), encoding="utf-8")
    from calibration.curve_report import report

    report(chosen, gpus, p, thorough=arguments.report)


if __name__ == "__main__":
    main()
