"""Fit the corrections of groups of GPUs: multipliers of the costs of links, processes and threads, shrunk towards 1.

They depend on the engine, its year and the link.

The same ridge regression with Student's t as for single GPUs (`fit_steps.py`), with the corrections of the work held fixed.

`make refit` runs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from scipy.optimize import minimize  # type: ignore[import-untyped]

from calibration.correction_table import Correction, standard_errors, write_corrections
from calibration.examples import examples as single_examples
from calibration.fit import sorted_sets, write_summary
from calibration.fit_steps import FREEDOM, MIN_SENSITIVITY, Design, Fold
from calibration.group_alone import single_times
from calibration.group_examples import GroupExample, group_examples, logs
from whichgpu.catalog.evidence import Measurement, measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.breakdown import TERMS, StepParts, combine_parts, stack_parts
from whichgpu.estimate.group.group_calibration import DATA_FOLDER, LEVELS, OVERLAPPED_SUFFIX, GroupCalibration

ROW_SPREAD = 0.1  # in log, assumed: scatter of a measured step around a perfect model, after correction of the compute time
WIDTHS = {"all": 0.7, "style": 0.3, "engine": 0.4, "year": 0.3, "task": 0.3, "link": 0.3, "fabric": 0.2, "machine": 1.0}
# The host of one source's machine: its costs are fitted so that they do not bias the rest, then dropped.
MACHINE, OF_HOSTS = "machine", ("copies", "threads")
# Levels that may correct each term: links differ by kind and generation, engines by name, year and task.
OF_LINKS, OF_ENGINES = ("all", "link", "fabric", "style"), ("all", "style", "engine", "year", "task")
VARIES = {
    "latency": (*OF_LINKS, "engine", "year"),
    "volume": OF_LINKS,
    "beside": ("all", "link"),
    "straggle": ("style", "engine"),  # no common level: ranks synchronise at every layer, replicas once per step
    "launch": OF_ENGINES,
    "step": OF_ENGINES,
    "copies": ("all", "task"),
    "threads": ("all", "task"),
}
WIDER = {"launch": 1.5}
# Factors on the prior's width for engines that overlap host and device. Constants of collectives are fitted on measured
# kernels, so whole steps add little: with the full width, seven rows of one source made AMD's links five times slower. Without
# a host in between, ranks straggle only by their clocks; left free, this term absorbed every other error of SGLang's steps
# (30% at eight GPUs).
KNOWN_OF_OVERLAPPED = {"latency": 0.1, "volume": 0.1, "straggle": 0.1}
SPECIAL = {("style", "straggle"): 0.7}  # wide: straggling has no level "all" above it
MIN_LOG_FACTOR = 5e-3  # a correction nearer to 1 is left out
ROUNDS, TOLERANCE = 800, 1e-9  # iterations: enough that a fit started from all rows forgets those left out
STEP = 1e-4  # of a log factor, for numerical derivatives
MAX_LOG_FACTOR = 8.0  # far beyond any plausible correction: keeps the line search from overflowing
NO_COMMUNICATION_SOURCES = ("mlperf-inf",)  # replicas that never communicate: predicted, but not fitted on
LATENCIES = tuple(name for name in StepParts.__struct_fields__ if name.endswith("_latency"))
VOLUMES = tuple(name for name in StepParts.__struct_fields__ if name.endswith("_volume"))
# Parts of a step without which a term changes nothing, and the value that counts as none.
DEPENDS_ON = {
    "latency": (LATENCIES, 0.0),
    "volume": (VOLUMES, 0.0),
    "beside": ((*LATENCIES, *VOLUMES), 0.0),
    "straggle": (("ranks",), 1.0),
    "launch": (("launches",), 0.0),
    "step": (("synchronised",), 1.0),
    "copies": (("copied_tensors",), 0.0),
    "threads": (("threads",), 1.0),
}
WORK = ("device", "calls", "forward_calls", "once", "forward", "backward", "attention")

Parameter = tuple[str, str, str]


class StackedPasses(msgspec.Struct, frozen=True):
    """Passes of some examples, stacked: for each turn the places of the examples that have it, how often it runs, its parts."""

    turns: list[tuple[np.ndarray, np.ndarray, StepParts]]
    count: int

    def logs(self, factors: Mapping[str, np.ndarray]) -> np.ndarray:
        """Log seconds of the examples; `factors` are the multipliers of each, by term."""
        total = np.zeros(self.count)
        for places, times, parts in self.turns:
            total[places] += times * combine_parts(parts, {term: own[places] for term, own in factors.items()}).wall
        return np.asarray(np.log(total))

    def of(self, rows: np.ndarray) -> StackedPasses:
        """Passes of the examples at these places, which are in order."""
        turns = []
        for places, times, parts in self.turns:
            kept = np.isin(places, rows)
            turns.append((np.searchsorted(rows, places[kept]), times[kept], _rows_of(parts, kept)))
        return StackedPasses(turns, len(rows))

    def affected(self, term: str) -> np.ndarray:
        """Places of the examples whose time may depend on a term; the others' derivative by it is zero."""
        found = [
            places[np.any([getattr(parts, name) > least for name in fields], axis=0)]
            for places, _, parts in self.turns
            for fields, least in [DEPENDS_ON[term]]
        ]
        return np.unique(np.concatenate(found))


def _rows_of(parts: StepParts, rows: np.ndarray) -> StepParts:
    return StepParts(*(getattr(parts, name)[rows] for name in StepParts.__struct_fields__))


class GroupDesign:
    """The parameters of the fit and, for each example and term, the indices of those that apply.

    If one GPU alone was measured as well, its compute time is scaled to that measurement: the corrections then come from what
    several GPUs change, not from the error of the single-GPU estimate.
    """

    def __init__(self, examples: Sequence[GroupExample]) -> None:
        self.examples = list(examples)
        self.parameters: dict[Parameter, int] = {}
        self.places = {term: np.full((len(examples), len(LEVELS) + 1), -1) for term in TERMS}
        for row, example in enumerate(examples):
            for term in TERMS:
                for depth, level in enumerate(LEVELS):
                    if level in VARIES[term]:
                        parameter = (level, example.setting.key(level), term)
                        self.places[term][row, depth] = self.parameters.setdefault(parameter, len(self.parameters))
                if term in OF_HOSTS:
                    parameter = (MACHINE, f"{example.row.source}/{example.row.gpu}", term)
                    self.places[term][row, -1] = self.parameters.setdefault(parameter, len(self.parameters))
        self.widths = np.array([_width(*parameter) for parameter in self.parameters])
        self.in_product = np.array([float(level != MACHINE) for level, _, _ in self.parameters])  # 0 for hosts of single sources
        self.actual = logs(examples)
        turns = []
        for turn in range(max(len(example.passes) for example in examples)):
            places = np.array([row for row, example in enumerate(examples) if len(example.passes) > turn])
            passes = [examples[row].passes[turn] for row in places]
            turns.append((places, np.array([times for times, _ in passes]), stack_parts([parts for _, parts in passes])))
        ratios = np.array([example.ratio for example in examples])
        self.passes = StackedPasses(turns, len(examples))
        measured_alone = [(places, times, scaled(parts, ratios[places])) for places, times, parts in turns]
        self.given = StackedPasses(measured_alone, len(examples))
        self.affected = {term: self.given.affected(term) for term in TERMS}
        self.given_by_term = {term: self.given.of(rows) for term, rows in self.affected.items()}

    def weights(self, kept: np.ndarray) -> np.ndarray:
        """Weight of each row: each (source, GPU, kind) counts by the square root of its rows."""
        keys = [(one.row.source, one.row.gpu, one.row.kind) for one in self.examples]
        counts = Counter(key for key, keep in zip(keys, kept, strict=True) if keep)
        return np.array([counts[key] ** -0.5 if keep else 0.0 for key, keep in zip(keys, kept, strict=True)])

    def predict(self, theta: np.ndarray) -> np.ndarray:
        """Log seconds of every example, as the product estimates them."""
        return self.passes.logs(_factors(self._logs(theta * self.in_product)))

    def fit(self, kept: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """The most probable log multipliers given the examples selected by `kept`."""
        weights = self.weights(kept)
        weights = weights * (kept.sum() / weights.sum())
        scaled = np.zeros(len(self.parameters)) if start is None else start / self.widths
        found = minimize(
            lambda point: self._cost(point, weights),
            scaled,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": ROUNDS, "ftol": TOLERANCE},
        )
        return np.asarray(found.x * self.widths)

    def anchored(self, theta: np.ndarray) -> np.ndarray:
        """Log seconds of every example, from the measured time of one GPU alone if there is one."""
        return self.given.logs(_factors(self._logs(theta * self.in_product)))

    def _logs(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Log factors of each term, by example."""
        padded = np.append(theta, 0.0)
        return {term: padded[self.places[term]].sum(axis=1) for term in TERMS}

    def _slopes(self, logs_of: Mapping[str, np.ndarray], predicted: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Each term, the places of the examples it may change, and their numerical derivatives by the log of its factor."""
        factors = _factors(logs_of)
        for term, rows in self.affected.items():
            moved = {name: own[rows] for name, own in factors.items()} | _factors({term: logs_of[term][rows] + STEP})
            yield term, rows, (self.given_by_term[term].logs(moved) - predicted[rows]) / STEP

    def _cost(self, scaled: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus twice the log posterior and its gradient, from numerical derivatives by the log factor of each term."""
        logs_of = self._logs(scaled * self.widths)
        predicted = self.given.logs(_factors(logs_of))
        residual = (predicted - self.actual) / ROW_SPREAD
        cost = float((weights * (FREEDOM + 1) * np.log1p(residual**2 / FREEDOM)).sum() + (scaled**2).sum())
        pull = weights * 2 * (FREEDOM + 1) * residual / (FREEDOM + residual**2) / ROW_SPREAD
        gradient = np.zeros(len(self.parameters) + 1)
        for term, rows, slope in self._slopes(logs_of, predicted):
            for depth in range(len(LEVELS) + 1):
                np.add.at(gradient, self.places[term][rows, depth], pull[rows] * slope)
        return cost, gradient[:-1] * self.widths + 2 * scaled

    def supported(self, theta: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Log multipliers with 0 for those that only rows outside `kept` have."""
        known = np.zeros(len(self.parameters) + 1, dtype=bool)
        for places in self.places.values():
            known[places[kept].ravel()] = True
        return np.where(known[:-1], theta, 0.0)

    def correction_rows(self, theta: np.ndarray) -> list[Correction]:
        """The fitted corrections as rows of their table, with standard errors and rows."""
        logs_of = self._logs(theta)
        predicted = self.given.logs(_factors(logs_of))
        slopes = np.zeros((len(self.examples), len(self.parameters) + 1))
        for term, rows, slope in self._slopes(logs_of, predicted):
            for depth in range(len(LEVELS) + 1):
                np.add.at(slopes, (rows, self.places[term][rows, depth]), slope)
        weights = self.weights(np.ones(len(slopes), dtype=bool))
        residual = (predicted - self.actual) / ROW_SPREAD
        information = weights * (len(slopes) / weights.sum()) * (FREEDOM + 1) / (FREEDOM + residual**2) / ROW_SPREAD**2
        errors = standard_errors(slopes[:, :-1], information, self.widths)
        counts = (np.abs(slopes) > MIN_SENSITIVITY).sum(axis=0)
        return [
            Correction(level, group, term, str(log_factor), float(errors[place]), int(counts[place]))
            for level, groups in self.multipliers(theta, 0.0).items()
            for group, terms in groups.items()
            for term, log_factor in terms.items()
            if (place := self.parameters[level, group, term]) >= 0
        ]

    def multipliers(self, theta: np.ndarray, min_log_factor: float = MIN_LOG_FACTOR) -> dict[str, dict[str, dict[str, float]]]:
        """The fitted corrections as the product reads them, without those too close to 1 to matter."""
        found: dict[str, dict[str, dict[str, float]]] = {level: {} for level in LEVELS}
        for (level, group, term), place in self.parameters.items():
            if level != MACHINE and abs(theta[place]) >= min_log_factor:
                found[level].setdefault(group, {})[term] = round(float(theta[place]), 3)
        return found


def _factors(logs_of: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {term: np.exp(np.clip(value, -MAX_LOG_FACTOR, MAX_LOG_FACTOR)) for term, value in logs_of.items()}


def _width(level: str, group: str, term: str) -> float:
    width = SPECIAL.get((level, term), WIDTHS[level] * WIDER.get(term, 1.0))
    return width * KNOWN_OF_OVERLAPPED.get(term, 1.0) if OVERLAPPED_SUFFIX.strip("-") in group else width


def scaled(parts: StepParts, ratios: np.ndarray) -> StepParts:
    """Parts with the compute time scaled by each ratio; thread overhead scales with it only in host-bound steps."""
    host = np.where(parts.calls > parts.device, ratios, 1.0)
    return replace(
        parts,
        **{name: getattr(parts, name) * ratios for name in WORK},
        copied_tensors=parts.copied_tensors * host,
    )


def is_fitted_on(row: Measurement) -> bool:
    """Whether the costs of links are fitted on a row.

    Replicas that never communicate say nothing about links. Training with expert parallelism is estimated a fifth to a half too
    fast for reasons not yet known in the experts' kernels: fitted on, it made links of dense models up to seven times slower.
    """
    experts = row.kind == "train" and row.request.get("parallel", {}).get("ep", 1) > 1
    return row.source not in NO_COMMUNICATION_SOURCES and not experts


class GroupFold(msgspec.Struct, frozen=True):
    """Places of the examples of a level, and their log predictions by fits without the level."""

    places: list[int]
    predicted: np.ndarray


class GroupLeaveOut:
    """Predictions of rows of several GPUs by fits, of single steps and of links, that never saw the row's level of an axis."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        alone = steps(measurements())
        self.singles = single_times(alone)
        self.single = Design(single_examples(alone, self.catalog))
        self.full_theta = self.single.fit(np.ones(len(self.single.examples), dtype=bool))
        rows = steps(measurements(), several_gpus=True)
        self.examples = group_examples(rows, self.catalog, self.single.calibration(self.full_theta), self.singles)
        self.communicating = np.array([is_fitted_on(example.row) for example in self.examples])
        self.design = GroupDesign(self.examples)
        self.found = self.design.fit(self.communicating)

    def folds(self, levels: Sequence[str], single: Mapping[str, Fold]) -> dict[str, GroupFold]:
        """Fits without each level. `levels` are those of the examples, `single` the fits of single steps without a level."""
        names = sorted(set(levels))
        places = [[place for place, one in enumerate(levels) if one == name] for name in names]
        with ProcessPoolExecutor(mp_context=get_context("fork"), initializer=_share, initargs=(self,)) as pool:
            return dict(zip(names, pool.map(_group_without, places, map(single.get, names)), strict=True))

    def without(self, places: list[int], single: Fold | None) -> GroupFold:
        """Fit without the examples at these places.

        Rows of replicas that never communicate say nothing about links: they are predicted but not fitted on.
        """
        calibration = self.single.calibration(single.theta if single else self.full_theta)
        rows = [self.examples[place].row for place in places]
        own = group_examples(rows, self.catalog, calibration, self.singles) if single else [self.examples[one] for one in places]
        kept = self.communicating.copy()
        kept[places] = False
        theta = np.zeros(len(self.found))
        if kept.any():
            theta = self.design.supported(self.design.fit(kept, self.design.supported(self.found, kept)), kept)
        known = dict(zip(self.design.parameters, theta.tolist(), strict=True))
        design = GroupDesign(own)
        own_theta = np.array([known.get(name, 0.0) for name in design.parameters])
        return GroupFold(places, design.predict(own_theta))


_shared: list[GroupLeaveOut] = []  # in a worker process: what its fits have in common, too large to send


def _share(fits: GroupLeaveOut) -> None:
    _shared[:] = [fits]


def _group_without(places: list[int], single: Fold | None) -> GroupFold:
    return _shared[0].without(places, single)


def evidence(examples: Sequence[GroupExample]) -> dict[str, Any]:
    """Evidence behind each engine's corrections: rows, GPUs and sources."""
    engines: dict[str, dict[str, Any]] = {}
    for example in examples:
        one = engines.setdefault(example.setting.engine, {"rows": 0, "gpus": set(), "sources": set()})
        one["rows"] += 1
        one["gpus"].add(example.row.gpu)
        one["sources"].add(f"results-{example.row.source.lower()}")
    return {"engines": {name: sorted_sets(one) for name, one in engines.items()}}


def refit() -> str:
    """Fit the corrections of groups on the evidence table and write them; a sentence on what changed."""
    rows = [row for row in steps(measurements(), several_gpus=True) if is_fitted_on(row)]
    design = GroupDesign(group_examples(rows, Catalog(), singles=single_times(steps(measurements()))))
    theta = design.fit(np.ones(len(design.examples), dtype=bool))
    change = write_corrections(DATA_FOLDER, design.correction_rows(theta), MIN_LOG_FACTOR)
    write_summary(DATA_FOLDER, evidence(design.examples), len(design.examples))
    return f"largest change of a log factor {change:.4f}"


def calibration_of(design: GroupDesign, theta: np.ndarray) -> GroupCalibration:
    """The fitted corrections as the product reads them."""
    return GroupCalibration(design.multipliers(theta), {}, {})


if __name__ == "__main__":
    refit()
