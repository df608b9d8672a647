"""Fit the curves of single operators and write them to the package.

    PYTHONPATH=src:tools python -m calibration.fit_curves   # a part of make refit

Nonlinear least squares on log(predicted / measured) in the logarithm of every parameter, with robust residuals and a wide prior
around its start; multipliers of one architecture have a narrow one around 1, so that an architecture with few rows stays near
the others. `--report` also leaves out whole shape families and whole GPUs in turn and prints the errors.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from calibration.curve_rows import UNTUNED_MOE, Sample, samples
from calibration.parameter_table import CONFOUNDED, FIXED, Fit, ParameterRow, read_table, with_fits, write_table
from whichgpu.catalog.evidence import Measurement, measurements
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.curves.evaluate import CURVES, stacks_by_curve
from whichgpu.estimate.time.curves.floors import floor_seconds
from whichgpu.estimate.time.curves.gpus import GpuColumns, build_gpu_columns
from whichgpu.estimate.time.curves.parameters import parameters
from whichgpu.estimate.time.curves.stack import OperatorStack
from whichgpu.estimate.time.operators import CURVE_BY_KIND

Parameters = dict[str, float]

ROBUST = 0.12  # residuals beyond this count less than their square
MAX_ROW_WEIGHT = 40.0  # rows of one source and GPU together weigh at most as much as this many rows
MIN_SENSITIVITY = 0.01  # relative change of a sample's time per relative change of a parameter, to count among its rows
LEFT_OUT = {("aiconfigurator", "arc-pro-b60-24gb")}  # its GEMMs are faster than its bandwidth allows
FOLDS = 10  # in which shape families are left out


class Piece(msgspec.Struct, frozen=True):
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
            operators = [(place, op) for place, sample in enumerate(chosen) if sample.gpu == gpu for op in sample.ops]
            for places, group in stacks_by_curve([op for _, op in operators]):
                owners = np.array([operators[place][0] for place in places])
                self.pieces.append(Piece(CURVE_BY_KIND[group.ops[0].kind], group, gpus[gpu], owners))
        counts = Counter((sample.source, sample.gpu) for sample in chosen)
        capped = [
            min(1.0, MAX_ROW_WEIGHT / counts[sample.source, sample.gpu]) if not sample.source.startswith("h200") else 1.0
            for sample in chosen
        ]
        self.weights = np.sqrt(np.array(capped))

    def predict(self, p: Parameters) -> np.ndarray:
        """Seconds of each sample."""
        seconds_of_samples = np.zeros(len(self.samples))
        for piece in self.pieces:
            floor = floor_seconds(piece.stack, piece.gpu, burst=True)
            seconds = np.maximum(CURVES[piece.curve](piece.stack, piece.gpu, p), floor)[0, :, 0]
            seconds_of_samples += np.bincount(piece.owners, seconds, minlength=len(seconds_of_samples))
        for source in set(self.sources):
            seconds_of_samples[self.sources == source] += p.get(f"offset.{source}", 0.0)
        return seconds_of_samples


def fit(
    problem: Problem, start: Parameters, declared: Sequence[ParameterRow], effort: int = 60, fits: dict[str, Fit] | None = None
) -> Parameters:
    """Known parameters with the declared ones fitted; `fits` receives the value, error and rows of each."""
    names = [row.name for row in declared]
    centres = np.log([float(row.start) for row in declared])
    widths = np.array([float(row.prior_width) for row in declared])

    def residuals(x: np.ndarray) -> np.ndarray:
        p = {**start, **dict(zip(names, np.exp(x), strict=True))}
        off = np.log(problem.predict(p) / problem.measured) / ROBUST
        robust = np.sign(off) * np.sqrt(2.0 * (np.sqrt(1.0 + off**2) - 1.0)) * problem.weights
        return np.concatenate([robust, (x - centres) / widths])

    lower = np.log([float(row.lower) for row in declared])
    upper = np.log([float(row.upper) for row in declared])
    x0 = np.clip(np.log([start.get(row.name, float(row.start)) for row in declared]), lower + 1e-3, upper - 1e-3)
    solution = least_squares(residuals, x0, x_scale=0.3, max_nfev=effort, diff_step=1e-3, bounds=(lower, upper))
    values = np.exp(solution.x)
    if fits is not None:
        fits |= _uncertainties(names, values, solution.jac, len(problem.samples))
    return {**start, **dict(zip(names, map(float, values), strict=True))}


def _uncertainties(names: Sequence[str], values: np.ndarray, jacobian: np.ndarray, samples: int) -> dict[str, Fit]:
    """Standard errors and correlations from the Jacobian at the solution, priors included; rows from the samples' part of it.

    Two parameters are confounded if the samples' derivatives by both are parallel: the samples cannot separate them.
    """
    errors = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))
    data = jacobian[:samples]
    lengths = np.linalg.norm(data, axis=0)
    cosines = np.abs(data.T @ data) / np.maximum(np.outer(lengths, lengths), 1e-30)
    np.fill_diagonal(cosines, 0.0)
    partners = cosines.argmax(axis=1)
    rows = (np.abs(data) * ROBUST > MIN_SENSITIVITY).sum(axis=0)
    return {
        name: Fit(
            float(values[place]),
            float(errors[place]),
            int(rows[place]),
            names[partners[place]] if cosines[place, partners[place]] >= CONFOUNDED else "",
        )
        for place, name in enumerate(names)
    }


def fit_all(
    chosen: Sequence[Sample],
    gpus: Mapping[str, GpuColumns],
    start: Parameters | None = None,
    effort: int = 60,
    fits: dict[str, Fit] | None = None,
) -> Parameters:
    """Parameters with every curve fitted, one after another in the order of the parameter table."""
    table = read_table()
    p = dict(start) if start else {row.name: float(row.start or row.value) for row in table}
    for curve in dict.fromkeys(row.curve for row in table if row.status != FIXED):
        about = [sample for sample in chosen if sample.curve == curve]
        if about:
            p = fit(Problem(about, gpus), p, [row for row in table if row.curve == curve], effort, fits)
    return p


def usable(rows: Iterable[Measurement]) -> list[Sample]:
    """The samples to fit on."""
    return [sample for sample in samples(rows) if (sample.source, sample.gpu) not in LEFT_OUT and sample.kind != UNTUNED_MOE]


def gpu_columns(chosen: Iterable[Sample]) -> dict[str, GpuColumns]:
    """Columns of each GPU that was measured."""
    gpus = Catalog().gpu_by_id
    return {gpu: build_gpu_columns([gpus[gpu]]) for gpu in sorted({sample.gpu for sample in chosen})}


def refit() -> str:
    """Fit the curves on the evidence table and write the parameter table; a sentence on what changed."""
    chosen = usable(measurements())
    fits: dict[str, Fit] = {}
    fit_all(chosen, gpu_columns(chosen), fits=fits)
    before, after = read_table(), with_fits(read_table(), fits)
    write_table(after)
    changed = [new.name for old, new in zip(before, after, strict=True) if old.value != new.value]
    return f"{len(changed)} of {len(fits)} parameters changed {' '.join(changed[:5])}".rstrip()


def main() -> None:
    """Print errors of the committed parameters; with --leave-out also those of fits without each shape family and GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leave-out", action="store_true", help="leave out shape families and GPUs in turn")
    arguments = parser.parse_args()
    from calibration.curve_report import report

    chosen = usable(measurements())
    report(chosen, gpu_columns(chosen), parameters(), thorough=arguments.leave_out)


if __name__ == "__main__":
    main()
