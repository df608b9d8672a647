"""Fit the latencies and bandwidth shares of collectives on measured kernels and write them to the package.

    PYTHONPATH=src:tools python -m calibration.fit_collectives   # a part of make refit

Nonlinear least squares on log(predicted / measured) in the logarithm of every fitted parameter, with robust residuals and a wide
prior around its start (published constants of NCCL if there are any); the ratios of one link generation have a narrower
one around 1, so that a generation that was not measured gets the mean of the others. `without_gpu` predicts a GPU's rows
by a fit that never saw them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from whichgpu.base.bundled_data import data_rows
from whichgpu.catalog.evidence import Measurement, measurements
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.collective_parameters import PARAMETERS_FILE
from whichgpu.estimate.group.collectives import Communicator, collective_cost
from whichgpu.estimate.group.expert_exchange import FP8_BYTES, ExpertExchange, deepep_cost
from whichgpu.estimate.group.fabric import Fabric, fabric_of

SOURCE = "aiconfigurator-collectives"
FITTED = "fitted"
ROBUST = 0.15  # residuals beyond this count less than their square
# Width of the prior of a parameter's logarithm by the beginning of its name: flags take a known share of the bytes.
PRIORS = {
    "nvls.start": 0.3,
    "p2p.ll.": 0.3,
    "start.": 0.3,
    "hop.": 0.3,
    "direct.": 0.3,
    "nvls.nvlink": 0.3,
    "ll128.share": 0.05,
    "simple.share": 0.02,
    "": 1.5,
}
ELEMENT_BYTES = {"dispatch": FP8_BYTES, "combine": 2.0}  # as DeepEP's own tests, and the measured rows, send them
ROUNDS, TOLERANCE = 60, 1e-5  # evaluations at most, relative change of the cost at which the fit ends
DIFFERENCE = 1e-4  # of a parameter's logarithm, for numerical derivatives
LIBRARIES = ("nccl", "oneccl")  # without a custom all-reduce

Parameters = dict[str, float]


def collective_measurements() -> list[Measurement]:
    """Rows of the evidence table with a collective."""
    return [row for row in measurements() if row.source == SOURCE]


@dataclass(frozen=True, slots=True)
class Series:
    """Collectives of one GPU that differ in size alone: bytes, or tokens per rank of a dispatch or combine."""

    places: list[int]
    request: Mapping[str, Any]
    fabrics: list[Fabric]
    sizes: np.ndarray

    def depends_on(self, name: str) -> bool:
        """Whether a parameter may change the seconds."""
        return not name.startswith(_unused(self.request))

    def seconds(self, parameters: Parameters) -> np.ndarray:
        """Return the predicted seconds at each size."""
        request, ranks = self.request, Communicator(self.request["gpus"], self.request["gpus"])
        if request["kind"] in ELEMENT_BYTES:
            hidden, topk, experts = (float(request[name]) for name in ("hidden", "topk", "experts"))
            exchange = ExpertExchange(request["kind"], self.sizes, hidden, topk, experts, ELEMENT_BYTES[request["kind"]])
            return np.asarray(deepep_cost(exchange, ranks, self.fabrics, parameters).seconds[0])
        engine = "" if request["engine"] in LIBRARIES else request["engine"]
        return np.asarray(collective_cost(request["kind"], self.sizes, ranks, self.fabrics, engine, parameters).seconds[0])


def _unused(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the beginnings of the names of parameters that a collective's time cannot depend on."""
    if request["kind"] in ELEMENT_BYTES:
        other = "combine" if request["kind"] == "dispatch" else "dispatch"
        return ("ll", "simple", "own_copy", "p2p", "nvls", "custom", "start", "hop", f"deepep.{other}")
    if request["kind"] == "all_to_all":
        return ("ll", "simple", "own_copy", "nvls", "custom", "hop", "direct", "deepep")
    if request["kind"] == "all_reduce":
        return ("p2p", "deepep", *(("custom", "direct") if request["engine"] in LIBRARIES else ()))
    return ("p2p", "nvls", "custom", "direct", "deepep")


def series_of(rows: Sequence[Measurement], catalog: Catalog) -> list[Series]:
    """Return the rows grouped by everything but size."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, row in enumerate(rows):
        setting = (row.request.get(name) for name in ("kind", "engine", "gpus", "hidden", "topk", "experts"))
        groups.setdefault((row.gpu, *setting), []).append(place)
    fabrics = {gpu: [fabric_of(catalog.gpu_by_id[gpu])] for gpu in {row.gpu for row in rows}}
    series = []
    for places in groups.values():
        first, size = rows[places[0]], "tokens" if rows[places[0]].request["kind"] in ELEMENT_BYTES else "bytes"
        sizes = np.array([float(rows[place].request[size]) for place in places])
        series.append(Series(places, first.request, fabrics[first.gpu], sizes))
    return series


class Problem:
    """Measured collectives, and the parameters their times depend on."""

    def __init__(self, rows: Sequence[Measurement]) -> None:
        self.rows, self.series = rows, series_of(rows, Catalog())
        self.measured = np.log([row.seconds for row in rows])
        table = data_rows(PARAMETERS_FILE)
        self.start: Parameters = {row["name"]: float(row["start"] or row["value"]) for row in table}
        self.names = [row["name"] for row in table if row["status"] == FITTED]
        self.centre = np.log([self.start[name] for name in self.names])
        self.widths = np.array([next(width for key, width in PRIORS.items() if name.startswith(key)) for name in self.names])

    def predict(self, parameters: Parameters) -> np.ndarray:
        """Return the log seconds of every row."""
        logs = np.zeros(len(self.rows))
        for one in self.series:
            logs[one.places] = np.log(one.seconds(parameters))
        return logs

    def parameters(self, point: np.ndarray) -> Parameters:
        """Return all parameters with the fitted ones at `point`, their logarithms."""
        return {**self.start, **dict(zip(self.names, np.exp(point).tolist(), strict=True))}

    def slopes(self, point: np.ndarray) -> np.ndarray:
        """Return the derivatives of the rows' log seconds by the logarithm of each parameter, numerically."""
        here, derivatives = self.predict(self.parameters(point)), np.zeros((len(self.rows), len(self.names)))
        for column, name in enumerate(self.names):
            moved = self.parameters(point + DIFFERENCE * (np.arange(len(point)) == column))
            for one in self.series:
                if one.depends_on(name):
                    derivatives[one.places, column] = (np.log(one.seconds(moved)) - here[one.places]) / DIFFERENCE
        return derivatives

    def fit(self) -> Parameters:
        """Return the most probable parameters."""

        def residuals(point: np.ndarray) -> np.ndarray:
            rows = (self.predict(self.parameters(point)) - self.measured) / ROBUST
            return np.concatenate([rows, (point - self.centre) / self.widths])

        def jacobian(point: np.ndarray) -> np.ndarray:
            return np.concatenate([self.slopes(point) / ROBUST, np.diag(1.0 / self.widths)])

        solution = least_squares(residuals, self.centre, jacobian, loss="soft_l1", x_scale=0.1, ftol=TOLERANCE, max_nfev=ROUNDS)
        return self.parameters(solution.x)


def errors(rows: Sequence[Measurement], parameters: Parameters) -> np.ndarray:
    """Return log(predicted / measured) of each row."""
    problem = Problem(rows)
    return problem.predict(parameters) - problem.measured


def without_gpu(rows: Sequence[Measurement], gpu: str) -> tuple[list[Measurement], np.ndarray]:
    """Return a GPU's rows and log(predicted / measured) of them by a fit that never saw the GPU."""
    own = [row for row in rows if row.gpu == gpu]
    fitted = Problem([row for row in rows if row.gpu != gpu]).fit()
    return own, errors(own, fitted)


def write(parameters: Mapping[str, float]) -> None:
    """Write the fitted values to the table."""
    rows: Iterable[dict[str, str]] = data_rows(PARAMETERS_FILE)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(next(iter(rows))), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, "value": f"{parameters[row['name']]:.4g}"} if row["status"] == FITTED else row)
    PARAMETERS_FILE.write_text(text.getvalue(), encoding="utf-8")


def refit() -> str:
    """Fit on all rows, write the parameters and return the errors by GPU."""
    rows = collective_measurements()
    fitted = Problem(rows).fit()
    write(fitted)
    relative = np.abs(np.expm1(errors(rows, fitted)))
    medians = {gpu: float(np.median(relative[[row.gpu == gpu for row in rows]])) for gpu in sorted({row.gpu for row in rows})}
    return ", ".join(f"{gpu} {median:.1%}" for gpu, median in medians.items())


if __name__ == "__main__":
    print(refit())
