"""Runs of serving engines predicted by the simulator, with fits that never saw their source.

PYTHONPATH=src:tools python -m calibration.serving_scores --truth ../shared/truth --held-out serving.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from evidence.serving_rows import FLOOD_ROUNDS, Served, served_rows
from msgspec.structs import asdict

from calibration.examples import examples as single_examples
from calibration.fit_groups import GroupDesign, calibration_of, is_fitted_on
from calibration.fit_steps import Design
from calibration.group_examples import group_examples
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.evidence import measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.group_calibration import GroupCalibration
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.server import Server, server_of
from whichgpu.estimate.serving.simulator import Arrival, SimulationOutcome
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import fill_defaults, from_object


class HeldRun(msgspec.Struct, frozen=True):
    """One run with its metrics, measured and predicted without its source; seconds, output tokens per second."""

    source: str
    kind: str
    gpu: str
    gpus: int
    concurrency: int
    rate: float
    line: int
    measured: dict[str, float]
    predicted: dict[str, float]


def predicted_metrics(
    run: Served, lookups: LookupCache, calibration: Calibration | None, groups: GroupCalibration | None
) -> dict[str, float]:
    """Metrics of a run by the simulator."""
    shape = lookups.shape(run.request["model"])
    workload = fill_defaults(from_object({name: value for name, value in run.request.items() if name != "id"}).workload, shape)
    if not isinstance(shape, Transformer):
        raise TypeError(shape)
    gpu = lookups.catalog.gpu_by_id[run.gpu]
    fabric = fabric_of(gpu, None, workload.interconnect, workload.network_gbps, workload.network)
    server = server_of(workload, shape, gpu, overrides=run.limits, devices=Devices.of([gpu], [fabric], calibration, groups))
    prompt, output = int(workload.seq_in or 1), int(workload.seq_out or 1)
    outcome = server.run(_arrivals(run, server, prompt, output), run.concurrency, routing=run.routing)
    return metrics(outcome, run.mean)


def _arrivals(run: Served, server: Server, prompt: int, output: int) -> Iterator[Arrival]:
    count = run.requests
    if not count:
        fits = min(server.limits.max_sequences, server.limits.cache_tokens // (prompt + output))
        count = FLOOD_ROUNDS * max(1, fits) * server.replicas
    if run.rate:
        yield from Load(run.rate, Lengths(prompt), Lengths(output), count).arrivals()
        return
    for _ in range(count):
        yield 0.0, prompt, output, ()


def metrics(outcome: SimulationOutcome, mean: bool) -> dict[str, float]:
    """TTFT, TPOT and throughput of a simulated run; means or medians."""
    middle = np.mean if mean else np.median
    done = outcome.answered
    more = done & (outcome.outputs > 1)
    results = {
        "ttft": float(middle((outcome.first - outcome.arrived)[done])),
        "throughput": float(outcome.outputs[done].sum() / (outcome.finished.max() - outcome.arrived[0])),
    }
    if more.any():
        results["tpot"] = float(middle(((outcome.finished - outcome.first) / np.maximum(1, outcome.outputs - 1))[more]))
    return results


class LeaveOneSourceOut:
    """Corrections of steps on one and on several GPUs, fitted without the rows of one source."""

    def __init__(self, truth: Path) -> None:
        self.truth, self.catalog = truth, Catalog()
        self.rows = [row for row in steps(measurements(), several_gpus=True) if is_fitted_on(row)]
        self.singles = steps(measurements())
        self.single = Design(single_examples(self.singles, self.catalog))
        self.full_theta = self.single.fit(np.ones(len(self.single.examples), dtype=bool))

    def without(self, source: str) -> tuple[Calibration, GroupCalibration]:
        """Corrections of steps on one GPU and on several, fitted without the source."""
        kept = np.array([example.row.source != source for example in self.single.examples])
        theta = self.full_theta
        if not kept.all():
            supported = np.zeros(len(self.single.parameters) + 1, dtype=bool)
            supported[self.single.places[kept].ravel()] = True
            theta = self.single.fit(kept, np.where(supported[:-1], self.full_theta, 0.0))
            theta = np.where(supported[:-1], theta, 0.0)
        calibration = self.single.calibration(theta)
        design = GroupDesign(group_examples([row for row in self.rows if row.source != source], self.catalog, calibration))
        return calibration, calibration_of(design, design.fit(np.ones(len(design.examples), dtype=bool)))


def held_out(
    runs: Sequence[Served], lookups: LookupCache, calibration: Calibration | None, groups: GroupCalibration | None
) -> list[HeldRun]:
    """Runs with their measured and predicted metrics; runs that the tool rejects are listed on stderr."""
    results = []
    for run in runs:
        try:
            estimate = predicted_metrics(run, lookups, calibration, groups)
        except WhichGpuError as error:
            print(f"rejected: {run.source} {run.gpu} line {run.lines[0]}: {error}", file=sys.stderr)
            continue
        results.append(
            HeldRun(
                run.source, run.kind, run.gpu, int(run.request.get("gpus", 1)), run.concurrency or 0, run.rate or 0.0,
                run.lines[0], run.measured, estimate,
            )
        )  # fmt: skip
    return results


def load(path: Path) -> list[HeldRun]:
    """Read the runs that `main` wrote."""
    return [HeldRun(**run) for run in json.loads(path.read_bytes())]


def main() -> int:
    """Predict every run and write the predictions to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--held-out", type=Path, required=True, help="file for the predictions")
    parser.add_argument("--product-fit", action="store_true", help="with the fit of the product, which saw these rows")
    arguments = parser.parse_args()
    runs = served_rows(arguments.truth) + served_rows(arguments.truth, flood=True)
    lookups = LookupCache(Catalog())
    results: list[HeldRun] = []
    leave_out: Any = None if arguments.product_fit else LeaveOneSourceOut(arguments.truth)
    for source in sorted({run.source for run in runs}):
        fits = leave_out.without(source) if leave_out else (None, None)
        results += held_out([run for run in runs if run.source == source], lookups, *fits)
    arguments.held_out.write_text(json.dumps([asdict(run) for run in results]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
