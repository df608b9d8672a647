"""Fit the corrections of whole steps: multipliers of each term by engine, year, architecture and GPU, shrunk to 1.

A ridge regression on log(measured / predicted): every multiplier has a Gaussian prior around 1 whose width says how much such
groups may differ; residuals are weighted as Student's t, so that an outlier has little influence; and each (source, GPU, kind)
counts by the square root of its rows, so that a large source does not outvote the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import minimize  # type: ignore[import-untyped]
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from calibration.correction_table import Correction, standard_errors
from whichgpu.catalog.engines.registry import engine_ids, engine_record
from whichgpu.estimate.confidence.axes import NO_AXES, Axes
from whichgpu.estimate.time.calibration import LEVELS, YEARLY_LEVELS, Calibration, CorrectionKey
from whichgpu.estimate.time.combine import OVERLAP_SHARPNESS, HostMode, StepSeconds, soft_maximum, step_seconds
from whichgpu.estimate.time.terms import DEVICE_TERMS, TERMS, TimeTerms

# Widths of the priors, in log: how far groups of a level may differ from their parent.
WIDTHS = {
    "all": 0.5,
    "style": 0.45,
    "era": 0.4,
    "engine": 0.3,
    "year": 0.3,
    "task": 0.25,
    "platform": 0.6,
    "architecture": 0.2,
    "generation": 0.15,
    "generation-unit": 0.15,
    "generation-task": 0.1,
    "build": 0.15,
    "vendor-engine": 0.15,
    "chip": 0.1,
    "machine": 0.35,  # the host of one source's machine: fitted so that it does not bias the rest, then dropped
}
# Factors on the width: launch overhead differs more between engines and architectures than compute does. Memory-bound
# operators differ little between serving engines, which fuse the same few of them. Corrections of convolutions are narrow because
# GPUs that a fit never saw are then predicted better (mean log error 0.180 instead of 0.184).
WIDER = {"forward_calls": 2.0, "backward_calls": 2.0, "step": 2.5, "sequences": 2.5, "conv": 0.5}
SERVING_MEMORY = 0.3  # factor for memory-bound operators of serving engines
# Factor for GEMMs outside serving engines: the same libraries multiply, and their kernels are measured alone. A wider prior
# explains errors of networks with few GEMMs by them, and then misses encoders.
LIBRARY_GEMMS = 0.5
ENGINE_LEVELS = ("style", "era", "engine", "year", "task")  # levels whose groups are named by a style or an engine
SPECIAL = {
    ("all", "gap"): 0.2,
    ("all", "step"): 0.2,
    ("all", "sequences"): 0.2,
    ("style", "step"): 1.5,
    ("engine", "step"): 1.0,
    ("style", "sequences"): 1.0,
    ("engine", "sequences"): 1.0,
    ("architecture", "gap"): 0.4,
    ("engine", "gap"): 0.4,
}
MIN_ROWS_PER_YEAR = 5  # assumed: fewer rows of a year are no evidence that the software changed
ROW_SPREAD = 0.2  # in log, assumed: scatter of a measurement around a perfect model
FREEDOM = 4.0  # degrees of freedom of Student's t
DEVICE_LEVELS = ("platform", "architecture", "build", "generation", "generation-unit", "generation-task", "vendor-engine", "chip")
# Spread of the rows and sharpness of the floors in each stage of the fit. The first stage has a wide spread, so that no source
# is treated as an outlier too early, and smooth floors, so that a term at its floor still depends on its multiplier: the fit
# then converges to one optimum from any start, while sharp floors alone leave many local optima.
SOFT = 8.0
STAGES = ((0.5, SOFT), (ROW_SPREAD, SOFT), (ROW_SPREAD, None))
# Iterations of a stage: enough that a fit started from all rows forgets those left out.
ROUNDS, TOLERANCE = 1500, 1e-9
MIN_ROUNDS = 10  # a fit from given values that ends sooner is stuck at a floor: it has not forgotten the rows left out
MAX_LEFT_OUT = 0.5  # share of the examples above which a group is not left out: the rest could not predict it
MIN_SENSITIVITY = 0.01  # relative change of a row's time per relative change of a factor, for the row to count as its evidence
MIN_LOG_FACTOR = 5e-4  # a correction nearer to 1 is left out
TRUSTED_WEIGHT = 6.0  # weight, assumed, of rows measured by one method on one machine with every setting known
COMPUTE_LEVELS = ("build", "generation-unit")  # clocks and compute units: they do not affect GEMMs bound by reading weights
CALLS = ("forward_calls", "backward_calls")
MACHINE = "machine"
REFERENCE = "h200-"  # source whose host is the baseline: hosts of other sources are fitted relative to it


class Example(msgspec.Struct, frozen=True):
    """A measured step with its terms, of one GPU and one batch."""

    seconds: float
    terms: np.ndarray  # [terms]
    floors: np.ndarray
    setting: CorrectionKey
    host: HostMode
    groups: Mapping[str, str]  # source, gpu, architecture, model, kind: what may be left out
    row: Any = None
    axes: Axes = NO_AXES
    later: tuple[np.ndarray, np.ndarray] | None = None  # terms and floors of a second part that starts when the first ends
    latency: float = 0.0  # seconds of the request outside its steps, which are neither in `seconds` nor fitted

    @property
    def parts(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Terms and floors of the parts that run one after the other."""
        return [(self.terms, self.floors), *([self.later] if self.later else [])]


Parameter = tuple[str, str, str]  # level, group, term


class PartOfRows(msgspec.Struct, frozen=True):
    """One of the parts of some rows that run one after the other."""

    terms: np.ndarray  # [rows, terms]
    floors: np.ndarray
    launches: np.ndarray  # whether kernels are launched one by one
    concurrent: np.ndarray  # [rows, host terms]: whether a host term overlaps with the device

    def seconds(self, factors: np.ndarray, soft: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Seconds, and their derivatives by the log of each term."""
        count, concurrent = len(DEVICE_TERMS), self.concurrent
        corrected = self.terms * factors
        held, free = _above(corrected[:, :count], self.floors[:, :count], soft)
        device = held.sum(1)
        host = (corrected[:, count:] * concurrent).sum(1)
        wall = soft_maximum(device, host)
        slopes = corrected.copy()
        slopes[:, :count] = held * free * ((device / wall) ** (OVERLAP_SHARPNESS - 1))[:, None]
        slopes[:, count:] *= np.where(concurrent, ((host / wall) ** (OVERLAP_SHARPNESS - 1))[:, None], 1.0)
        slopes[:, count : count + 2] *= self.launches[:, None]
        return wall + (corrected[:, count + 2 :] * ~concurrent[:, 2:]).sum(1), slopes


class SelectedRows(msgspec.Struct, frozen=True):
    """Rows that a fit sees, as arrays."""

    actual: np.ndarray  # measured log seconds
    chosen: Any  # which multipliers each term of the rows takes: [rows x terms, multipliers], ones and zeros
    transposed: Any  # the same, by multiplier
    parts: list[PartOfRows]
    waiting: np.ndarray  # places of the rows with a second part

    def derivatives(self, theta: np.ndarray, soft: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Log predictions, and their derivatives by the log of each term."""
        factors = np.exp(self.chosen @ theta).reshape(len(self.actual), -1)
        total, slopes = self.parts[0].seconds(factors, soft)
        for part in self.parts[1:]:
            more, further = part.seconds(factors[self.waiting], soft)
            total[self.waiting] += more
            slopes[self.waiting] += further
        return np.log(total), slopes / total[:, None]


class Design:
    """The parameters of the fit and, for each example and term, the indices of those that apply."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples
        self._last: tuple[np.ndarray, SelectedRows] | None = None
        self.parameters: dict[Parameter, int] = {}
        self.places = np.full((len(examples), len(TERMS), len(WIDTHS)), -1)
        years = _substitute_years(examples)
        for row, example in enumerate(examples):
            reference = example.groups["source"].startswith(REFERENCE)
            for column, term in enumerate(TERMS):
                if all(terms[column] <= 0 for terms, _ in example.parts):
                    continue
                levels = [level for level in LEVELS if level not in DEVICE_LEVELS or term in DEVICE_TERMS]
                setting = example.setting.of_term(term)
                levels = [level for level in levels if setting.applies(level)]
                named = [(level, years.get(key := setting.group(level), key)) for level in levels]
                found: list[Parameter] = [(*name, whose) for name in named if (whose := whose_multiplier(name[0], term))]
                if term in CALLS and not reference:
                    found.append((MACHINE, f"{example.groups['source']}/{example.groups['gpu']}", "host"))
                for depth, parameter in enumerate(found):
                    self.places[row, column, depth] = self.parameters.setdefault(parameter, len(self.parameters))
        none = np.zeros(len(TERMS)), np.zeros(len(TERMS))
        self.waits = np.array([example.later is not None for example in examples])
        self.parts = [
            tuple(np.array([[*example.parts, none][part][side] for example in examples]) for side in (0, 1)) for part in (0, 1)
        ]
        self.actual = np.log([example.seconds for example in examples])
        self.launches = np.array([example.host.launches for example in examples])
        self.overlaps = np.array([example.host.overlaps for example in examples])
        self.widths = np.array([_width(parameter) for parameter in self.parameters])

    def weights(self, kept: np.ndarray, trusted: float = TRUSTED_WEIGHT) -> np.ndarray:
        """Weight of each row: each (source, GPU, kind) counts by the square root of its rows, the reference source for more."""
        keys = [(e.groups["source"], e.groups["gpu"], e.groups["kind"]) for e in self.examples]
        counts = Counter(key for key, keep in zip(keys, kept, strict=True) if keep)
        own = [trusted if key[0].startswith(REFERENCE) else 1.0 for key in keys]
        return np.array([trust * counts[key] ** -0.5 if keep else 0.0 for key, keep, trust in zip(keys, kept, own, strict=True)])

    def fit(self, kept: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """The most probable log multipliers given the examples selected by `kept`."""
        weights = self.weights(kept)
        weights = weights * (kept.sum() / max(weights.sum(), 1e-9))
        rows = np.flatnonzero(kept)
        scaled = np.zeros(len(self.parameters)) if start is None else start / self.widths  # in widths of the priors
        for stage in STAGES if start is None else STAGES[-1:]:
            found = minimize(
                lambda point, stage=stage: self._cost(point, rows, weights[rows], *stage),
                scaled,
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": ROUNDS, "maxcor": 20, "ftol": TOLERANCE},
            )
            scaled = found.x
        if start is not None and found.nit < MIN_ROUNDS:
            return self.fit(kept)
        return np.asarray(scaled * self.widths)

    def _cost(
        self, scaled: np.ndarray, rows: np.ndarray, weights: np.ndarray, spread: float, soft: float | None
    ) -> tuple[float, np.ndarray]:
        """Minus twice the log posterior and its slope: Student's t for the rows, Gaussian for the multipliers."""
        selected = self._selected(rows)
        predicted, slopes = selected.derivatives(scaled * self.widths, soft)
        residual = (predicted - selected.actual) / spread
        cost = (weights * (FREEDOM + 1) * np.log1p(residual**2 / FREEDOM)).sum() + (scaled**2).sum()
        pull = weights * 2 * (FREEDOM + 1) * residual / (FREEDOM + residual**2) / spread
        gradient = selected.transposed @ (slopes * pull[:, None]).ravel()
        return float(cost), gradient * self.widths + 2 * scaled

    def _selected(self, rows: np.ndarray) -> SelectedRows:
        """These rows' arrays, made once for all evaluations of a fit."""
        if self._last is None or self._last[0] is not rows:
            places = self.places[rows].reshape(-1, self.places.shape[2])
            used = places >= 0
            pointers = np.concatenate([[0], used.sum(axis=1).cumsum()])
            chosen = csr_matrix((np.ones(pointers[-1]), places[used], pointers), (len(places), len(self.parameters)))
            waiting = np.flatnonzero(self.waits[rows])
            parts = [self._part(0, rows), *([self._part(1, rows[waiting])] if len(waiting) else [])]
            self._last = rows, SelectedRows(self.actual[rows], chosen, chosen.T.tocsr(), parts, waiting)
        return self._last[1]

    def _part(self, part: int, rows: np.ndarray) -> PartOfRows:
        none = np.zeros(len(rows), dtype=bool)
        concurrent = np.column_stack([self.launches[rows]] * 2 + [none, self.overlaps[rows]])
        terms, floors = self.parts[part]
        return PartOfRows(terms[rows], floors[rows], self.launches[rows], concurrent)

    def calibration(self, theta: np.ndarray, min_log_factor: float = MIN_LOG_FACTOR) -> Calibration:
        """The fitted corrections as the product reads them, without those too close to 1 to matter."""
        found: dict[str, dict[str, dict[str, float]]] = {level: {} for level in LEVELS}
        for (level, group, term), place in self.parameters.items():
            if level != MACHINE and abs(theta[place]) >= min_log_factor:
                for one in (one for one in TERMS if whose_multiplier(level, one) == term):
                    found[level].setdefault(group, {})[one] = round(float(theta[place]), 4)
        return Calibration(found, {}, {})

    def correction_rows(self, theta: np.ndarray) -> list[Correction]:
        """The fitted corrections as rows of their table, with standard errors and rows."""
        everything = np.arange(len(self.examples))
        selected = self._selected(everything)
        predicted, by_term = selected.derivatives(theta, None)
        used = np.repeat(everything, len(TERMS))
        by_row = csr_matrix((by_term.ravel(), (used, np.arange(len(used)))), (len(everything), len(used)))
        slopes = np.asarray((by_row @ selected.chosen).todense())
        weights = self.weights(np.ones(len(everything), dtype=bool))
        weights = weights * (len(everything) / weights.sum())
        residual = (predicted - self.actual) / ROW_SPREAD
        information = weights * (FREEDOM + 1) / (FREEDOM + residual**2) / ROW_SPREAD**2
        errors = standard_errors(slopes, information, self.widths)
        counts = (np.abs(slopes) > MIN_SENSITIVITY).sum(axis=0)
        multipliers = self.calibration(theta, 0.0).multipliers
        return [
            Correction(level, group, term, str(multipliers[level][group][term]), float(errors[place]), int(counts[place]))
            for level in multipliers
            for group in sorted(multipliers[level])
            for term in sorted(multipliers[level][group])
            if (place := self.parameters[level, group, whose_multiplier(level, term) or term]) >= 0
        ]

    def predict(self, theta: np.ndarray, rows: Iterable[int]) -> np.ndarray:
        """Log seconds of these rows, as the product estimates them."""
        return self.predict_with(self.calibration(theta), rows)

    def predict_with(self, calibration: Calibration, rows: Iterable[int]) -> np.ndarray:
        """Log seconds of these rows, as the product estimates them with these corrections."""
        return np.asarray(np.log([step.wall[0, 0] for step in self.estimates_with(calibration, rows)]))

    def errors(self, predicted: np.ndarray) -> np.ndarray:
        """Log of predicted over measured seconds of every row, both with the latency of its request, as an estimate has it."""
        latency = np.array([example.latency for example in self.examples])
        return np.asarray(np.log((np.exp(predicted) + latency) / (np.exp(self.actual) + latency)))

    def estimates_with(self, calibration: Calibration, rows: Iterable[int]) -> list[StepSeconds]:
        """Estimated time of each row, with rounded multipliers as in the product."""
        shape, blank = (len(TERMS), 1, 1), np.zeros((1, 1))
        found = []
        for row in rows:
            example = self.examples[row]
            factors = calibration.factors([example.setting])
            parts = [
                step_seconds(TimeTerms(terms.reshape(shape), floors.reshape(shape), blank, blank, ""), factors, example.host)
                for terms, floors in example.parts
            ]
            found.append(StepSeconds(*(sum(getattr(part, name) for part in parts) for name in ("wall", "device", "host"))))
        return found


def _above(corrected: np.ndarray, floors: np.ndarray, soft: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Times limited to their floors from below, and the derivative of their log by the log of the corrected time."""
    largest = np.maximum(np.maximum(corrected, floors), 1e-30)
    if soft is None:
        return largest, (corrected > floors).astype(float)
    held = largest * np.maximum((corrected / largest) ** soft + (floors / largest) ** soft, 1e-30) ** (1 / soft)
    return held, (corrected / held) ** soft


def _substitute_years(examples: Sequence[Example]) -> dict[str, str]:
    """For each group of a year with too few rows, the nearest year of the same group with enough, as in the product."""
    settings = (setting for example in examples for setting in {example.setting.of_term(term) for term in TERMS})
    counts = Counter(setting.group(level) for setting in settings for level in YEARLY_LEVELS)
    found = {}
    for key in (key for key, count in counts.items() if count < MIN_ROWS_PER_YEAR):
        name, _, year = key.rpartition("/")
        known = [other for other, count in counts.items() if count >= MIN_ROWS_PER_YEAR and other.rpartition("/")[0] == name]
        if known:
            found[key] = min(known, key=lambda other: abs(int(other.rpartition("/")[2]) - int(year)))
    return found


class Fold(msgspec.Struct, frozen=True):
    """A fit without the examples of one group: their places, its multipliers, and its log predictions of them."""

    left: np.ndarray
    theta: np.ndarray
    predicted: np.ndarray


def folds(design: Design, group: Callable[[Example], str], start: np.ndarray) -> dict[str, Fold]:
    """Fits without each group in turn; a group with most of the examples is left out of none."""
    names = np.array([group(example) for example in design.examples])
    counts = Counter(names.tolist())
    small = [name for name in sorted(counts) if counts[name] <= MAX_LEFT_OUT * len(names)]
    with ProcessPoolExecutor(mp_context=get_context("fork"), initializer=_share, initargs=(design, start)) as pool:
        return dict(zip(small, pool.map(_without, [names == name for name in small]), strict=True))


def left_out(folds: Mapping[str, Fold], count: int) -> np.ndarray:
    """Log predictions of every example by the fit without its group; NaN if there is none."""
    predictions = np.full(count, np.nan)
    for fold in folds.values():
        predictions[fold.left] = fold.predicted
    return predictions


_shared: list[tuple[Design, np.ndarray]] = []  # in a worker process: the examples and the start of its fits, too large to send


def _share(design: Design, start: np.ndarray) -> None:
    _shared[:] = [(design, start)]


def _without(left: np.ndarray) -> Fold:
    """Fit without some rows. Multipliers that only those rows have start, and so stay, at 1."""
    ((design, start),) = _shared
    supported = np.zeros(len(design.parameters) + 1, dtype=bool)
    supported[design.places[~left].ravel()] = True
    theta = np.where(supported[:-1], design.fit(~left, np.where(supported[:-1], start, 0.0)), 0.0)
    places = np.flatnonzero(left)
    return Fold(places, theta, design.predict(theta, places.tolist()))


def whose_multiplier(level: str, term: str) -> str | None:
    """Name of the term whose multiplier a term shares at a level; None if the level does not affect it.

    GEMMs bound by reading weights (`stream`) share the corrections of other GEMMs, except those of clocks and compute units.
    """
    if term != "stream":
        return term
    return None if level in COMPUTE_LEVELS else "gemm"


def _width(parameter: Parameter) -> float:
    level, group, term = parameter
    if term == "memory" and level in ENGINE_LEVELS and _style(group) == "serving":
        return WIDTHS[level] * SERVING_MEMORY
    if term == "gemm" and level in ENGINE_LEVELS and _style(group) != "serving":
        return WIDTHS[level] * LIBRARY_GEMMS
    return SPECIAL.get((level, term), WIDTHS[level] * WIDER.get(term, 1.0))


def _style(group: str) -> str:
    """Return the style of a group named by a style or an engine, such as `serving/2025` or `vllm/decode`."""
    name = group.partition("/")[0]
    return engine_record(name).style if name in engine_ids() else name


assert set(WIDTHS) == {*LEVELS, MACHINE}
