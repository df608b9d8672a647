"""Fit a GPU's own corrections to the steps of a record: ridge regression around the shipped calibration.

Every multiplier has a Gaussian prior around 1; residuals are weighted as Student's t, so that outliers have little influence.
Each case is also predicted by a fit without it: corrections that do not help there are halved or dropped, and ranges come from
these errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import Calibration, CorrectionKey
from whichgpu.estimate.time.combine import OVERLAP_SHARPNESS, HostMode, host_mode
from whichgpu.estimate.time.curves.gpus import build_gpu_columns
from whichgpu.estimate.time.grid import correction_keys, scheduled_sequences, uncorrected_terms
from whichgpu.estimate.time.lower import lower
from whichgpu.estimate.time.own_corrections import ALL_STEPS, ANY_STEP, MIN_LOG_HALF_WIDTH, calibration_version, correction_groups
from whichgpu.estimate.time.terms import DEVICE_TERMS, TERMS
from whichgpu.measure.record import FittedCorrections, StepResult
from whichgpu.workload.models import built_in, find_model, unknown_model
from whichgpu.workload.shapes import Shape
from whichgpu.workload.spelling import fill_defaults, from_object

if TYPE_CHECKING:
    Array = np.ndarray

# Standard deviations of the priors, of the logarithm (assumed): hosts differ more than chips of one variant.
DEVICE_WIDTH, HOST_WIDTH = 0.15, 0.35
EVERYTHING_SHARE = 0.7  # Prior standard deviation of the correction shared by all engines, relative to one engine's own.
# Scales of the log residuals in successive rounds, from wide to narrow, so that no case counts as an outlier too early.
ROW_SPREADS = (0.4, 0.1, 0.04)
FREEDOM = 4.0  # Degrees of freedom of Student's t.
ROUNDS = 25  # Iterations of the fit for each of ROW_SPREADS.
MAX_LOG_STEP = 0.5  # Largest change of a multiplier's logarithm in one iteration.
# A step that takes more than this many times the shipped estimate is not used. The estimate of a GPU of which nothing was
# measured is within 2.7 times in nine cases of ten, and power limits, thermal throttling or a slow host take a factor of two to
# three more (assumed). Beyond their product something else was running on the GPU, or the record is wrong.
SLOWEST_RATIO = 10.0
FASTEST_FLOOR_SHARE = 0.95  # Shortest plausible time over the roofline minimum: clocks may exceed the stated ones.
MIN_CASES_PER_KIND = 4  # A kind of step with fewer cases gets the 90% range of all kinds.
SHARES = (1.0, 0.5, 0.0)  # Shares of the fitted corrections that are tried on cases left out; the first of equals is kept.
NINETY = 1.645  # Standard deviations from the mean to each end of a normal distribution's 90% range.


class Example(msgspec.Struct, frozen=True):
    """A measured step, and its estimated seconds by part (`terms`: GEMM, attention, host calls, …) before fitted corrections."""

    seconds: float
    terms: Array
    floors: Array
    setting: CorrectionKey
    host: HostMode
    task: str = ""  # kind of step: train, forward, prefill, decode


def example(step: StepResult, gpu: Gpu, catalog: Catalog) -> Example:
    """Return a measured step of a record with the parts of its estimated time; raise if the step is not a valid request."""
    spelled = from_object({**step.request, "gpu": gpu.id})
    shape = _known_shape(spelled.workload.model, catalog)
    workload = fill_defaults(spelled.workload, shape)
    batch = float(workload.local_batch)
    kind = workload.traits.step
    sequences = scheduled_sequences(workload, batch) if kind == "decode" else 0.0
    terms = uncorrected_terms(lower(workload, shape, batch), build_gpu_columns([gpu]), sequences, workload.accumulation)
    setting = correction_keys(workload, kind, terms.unit, [gpu])[0]
    host = host_mode(workload.engine, workload.year)
    return Example(step.seconds, terms.seconds[:, 0, 0], terms.floors[:, 0, 0], setting, host, kind)


def _known_shape(model: str | Mapping[str, Any], catalog: Catalog) -> Shape:
    """Return layers and sizes of a record's model, given as a built-in name or a config; files and repositories are refused."""
    if isinstance(model, str) and not model.startswith("mlp:") and built_in(model, catalog) is None:
        raise unknown_model(model, catalog)
    return find_model(model, catalog, None)


def shipped_seconds(one: Example, calibration: Calibration) -> float:
    """Return the seconds of a step by the shipped calibration, without the user's own corrections."""
    design = _Design([replace(one, seconds=1.0)], calibration)  # The measured time is not used and may be zero.
    return float(np.exp(design.predict(np.zeros(len(design.places)))[0][0]))


def is_plausible(one: Example, calibration: Calibration) -> bool:
    """Whether a measured time is above the roofline minimum and below the slowest plausible multiple of the estimate."""
    shortest, longest = FASTEST_FLOOR_SHARE * float(one.floors.sum()), SLOWEST_RATIO * shipped_seconds(one, calibration)
    return one.seconds > 0 and shortest <= one.seconds <= longest


def fit_steps(steps: Sequence[Example], calibration: Calibration) -> FittedCorrections:
    """Return the most probable multipliers of estimated times, with ranges from leave-one-out fits; skip implausible steps."""
    examples = [one for one in steps if is_plausible(one, calibration)]
    if not examples:
        return FittedCorrections(calibration_version(calibration), (), {}, {})
    design = _Design(examples, calibration)
    whole = design.fit(np.ones(len(examples)))
    without = design.fits_without_each(whole)
    share = min(SHARES, key=lambda share: float(np.median(np.abs(design.left_out_errors(share * without)))))
    theta = share * whole
    multipliers: dict[str, dict[str, float]] = {}
    for (group, term), place in design.places.items():
        if abs(theta[place]) >= 5e-4:
            multipliers.setdefault(group, {})[term] = round(float(theta[place]), 4)
    kinds = tuple(sorted({f"{one.setting.engine}/{one.task}" for one in examples}))
    return FittedCorrections(calibration_version(calibration), kinds, multipliers, design.spreads(share * without))


class _Design:
    """Inputs of the regression: measured steps with the shipped corrections, and the parts of their time a multiplier scales."""

    def __init__(self, examples: Sequence[Example], calibration: Calibration) -> None:
        shipped = calibration.factors([one.setting for one in examples]).T
        self.floors = np.array([one.floors for one in examples])
        self.terms = np.array([one.terms for one in examples]) * shipped
        self.actual = np.log([one.seconds for one in examples])
        # Whether each host part of the time (forward and backward calls, work per step or sequence) overlaps the GPU's, by step.
        self.concurrent = np.array([[one.host.launches] * 2 + [False, one.host.overlaps] for one in examples])
        self.kinds = [one.task for one in examples]
        self.places: dict[tuple[str, str], int] = {}
        entries: list[tuple[int, int, int]] = []
        for row, one in enumerate(examples):
            for column, term in enumerate(TERMS):
                if self.terms[row, column] <= 0:
                    continue
                for group in correction_groups(one.setting.engine, one.setting.task):
                    if group == ALL_STEPS and term not in DEVICE_TERMS:
                        continue  # The launch overhead of one engine is not used to correct that of another.
                    entries.append((row, column, self.places.setdefault((group, term), len(self.places))))
        self.acts = np.zeros((len(examples), len(TERMS), len(self.places)))
        for row, column, place in entries:
            self.acts[row, column, place] = 1.0
        widths = [DEVICE_WIDTH if term in DEVICE_TERMS else HOST_WIDTH for _, term in self.places]
        self.widths = np.array(widths) * [EVERYTHING_SHARE if group == ALL_STEPS else 1.0 for group, _ in self.places]

    def predict(self, theta: Array) -> tuple[Array, Array]:
        """Return the logarithm of each step's predicted seconds for log multipliers `theta`, and its derivatives by `theta`."""
        count = len(DEVICE_TERMS)
        corrected = self.terms * np.exp(self.acts @ theta)
        free = np.ones_like(corrected)
        free[:, :count] = corrected[:, :count] >= self.floors[:, :count]
        corrected[:, :count] = np.maximum(corrected[:, :count], self.floors[:, :count])
        device = corrected[:, :count].sum(1)
        host = (corrected[:, count:] * self.concurrent).sum(1)
        once = (corrected[:, count + 2 :] * ~self.concurrent[:, 2:]).sum(1)
        largest = np.maximum(np.maximum(device, host), 1e-30)
        wall = largest * ((device / largest) ** OVERLAP_SHARPNESS + (host / largest) ** OVERLAP_SHARPNESS) ** (
            1 / OVERLAP_SHARPNESS
        )
        slopes = corrected * free
        slopes[:, :count] *= ((device / wall) ** (OVERLAP_SHARPNESS - 1))[:, None]
        slopes[:, count:] *= np.where(self.concurrent, ((host / wall) ** (OVERLAP_SHARPNESS - 1))[:, None], 1.0)
        slopes[:, count : count + 2] *= self.concurrent[:, :2]
        total = wall + once
        return np.log(total), np.einsum("rt,rtp->rp", slopes / total[:, None], self.acts)

    def fit(self, weights: Array, start: Array | None = None) -> Array:
        """Return the fitted logarithms of the multipliers (Gauss-Newton with limited steps); `weights` has one per case.

        A fit of nearly the same cases is a good `start`, with which fewer steps are needed.
        """
        theta = np.zeros(len(self.places)) if start is None else start
        for spread in ROW_SPREADS:
            for _ in range(ROUNDS):
                move = self._move(theta, weights, spread)
                theta = theta + move
                if np.abs(move).max() < 1e-4:
                    break
        return np.asarray(theta)

    def _move(self, theta: Array, weights: Array, spread: float) -> Array:
        predicted, slopes = self.predict(theta)
        residual = self.actual - predicted
        pull = weights * (FREEDOM + 1) / (FREEDOM + (residual / spread) ** 2) / spread**2
        curvature = slopes.T @ (pull[:, None] * slopes) + np.diag(self.widths**-2)
        move = np.linalg.solve(curvature, slopes.T @ (pull * residual) - theta / self.widths**2)
        return np.asarray(move * min(1.0, MAX_LOG_STEP / max(float(np.abs(move).max()), 1e-12)))

    def fits_without_each(self, whole: Array) -> Array:
        """Return the log multipliers fitted without each case in turn, [cases, multipliers], from those of all (`whole`)."""
        return np.array([self.fit(weights, whole) for weights in 1.0 - np.eye(len(self.actual))])

    def left_out_errors(self, without: Array) -> Array:
        """Return the log of measured over predicted seconds of each case, predicted by its row of `fits_without_each`."""
        return np.array([self.actual[row] - self.predict(theta)[0][row] for row, theta in enumerate(without)])

    def spreads(self, without: Array) -> dict[str, float]:
        """Return half-widths of 90% ranges of log time, by task and for all steps, from errors of leave-one-out fits."""
        off = self.left_out_errors(without)
        half_widths = {ANY_STEP: _spread(off)}
        for kind in sorted(set(self.kinds)):
            chosen = np.array([one == kind for one in self.kinds])
            if chosen.sum() >= MIN_CASES_PER_KIND:
                half_widths[kind] = _spread(off[chosen])
        return half_widths


def _spread(off: Array) -> float:
    """Return the half-width of the 90% range of log errors `off` (measured over predicted), wider the fewer there are."""
    few = 1.0 + 2.0 / max(1, len(off))
    return round(max(MIN_LOG_HALF_WIDTH, NINETY * few * float(np.sqrt(np.mean(off**2)))), 4)
