"""Fit the shares of peak and bandwidth of accelerators that are no GPUs, and report errors on what was left out of the fit.

    PYTHONPATH=src:tools python -m calibration.fit_rooflines            # prints left-out errors and the fitted values
    PYTHONPATH=src:tools python -m calibration.fit_rooflines --write    # also writes them to the package

The fit is a least-squares fit of log(measured / estimated), each model counting the same. TPUs are left out one version at a
time, Inferentia2 one model at a time.
"""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from whichgpu.catalog.architecture import architecture_of
from whichgpu.catalog.evidence import Measurement, measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group import collectives
from whichgpu.estimate.group.collective_parameters import collective_parameters
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.ranks import pipeline_schedule, rank_ops
from whichgpu.estimate.group.step import Devices, lowered_pass, pass_breakdown
from whichgpu.estimate.group.traffic import step_collectives
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.estimate.time.curves.evaluate import merge_equal
from whichgpu.estimate.time.curves.gpus import build_gpu_columns
from whichgpu.estimate.time.curves.parameters import PARAMETERS_FILE, parameters
from whichgpu.estimate.time.grid import corrected_seconds, uncorrected_terms
from whichgpu.estimate.time.lower import lower
from whichgpu.estimate.time.rooflines import EVIDENCE_FILE, RooflineEvidence
from whichgpu.workload.spelling import fill_defaults, from_object

GROUP_PARAMETERS_FILE = Path(collectives.__file__).parent / "data" / "parameters.csv"
# Parameters fitted for each family; those of collectives are in the table of `estimate/group`.
FITTED = {
    "tpu": ("roofline.gemm_share.tpu",),
    "neuron": (
        "roofline.gemm_share.neuron",
        "roofline.score_bytes.neuron",
        "roofline.conv_share.neuron",
        "roofline.bandwidth_share.neuron",
        "roofline.attention_bandwidth_share.neuron",
        "roofline.fixed_seconds.neuron",
        "roofline.step_seconds.neuron",
        "hop.neuronlink",
    ),
}
# Models of the same layers, left out together.
SAME_MODELS = {"CodeLlama-13b-hf": "Llama-2-13b", "Llama-3-70B": "Llama-2-70b"}
REQUEST_LATENCY = "request latency"  # s, of the engine's record; fitted with the parameters of its family
LOSS_WIDTH = 0.2  # log error from which a row counts less than its square (an outlier)
PRIOR_WIDTH = 1.0  # of the logarithm of a parameter around its present value
# Chips with the cores of a measured one: their range is that chip's, this many times as wide (assumed).
SAME_CORES = {"trainium1": "inferentia2"}
SAME_CORES_WIDENING = 2.0
RANGE_PERCENTILES = 5.0, 95.0
MIN_HALF_RANGE = 0.3  # log; few rows of one vendor's own tables say little about other runs


class Row(msgspec.Struct, frozen=True):
    """A measured step with its estimate at the present parameters, without the latency of a request."""

    measured: Measurement
    group: str  # what is left out together: the chip of a TPU, the model on Inferentia2
    family: str
    estimate: Callable[[], float]


def roofline_rows(catalog: Catalog) -> list[Row]:
    """Steps of the evidence table that ran on accelerators which are no GPUs."""
    lookups, rows = LookupCache(catalog), measurements()
    found = []
    for row in (*steps(rows), *steps(rows, several_gpus=True)):
        if family := architecture_of(catalog.gpu_by_id[row.gpu]).roofline:
            group = row.gpu if family == "tpu" else SAME_MODELS.get(row.family, row.family)
            found.append(Row(row, group, family, _estimate(row, lookups)))
    return found


def _estimate(row: Measurement, lookups: LookupCache) -> Callable[[], float]:
    """A function of the present parameters that returns the seconds of a measured step; operators are lowered only once."""
    shape, gpu = lookups.shape(row.request["model"]), lookups.catalog.gpu_by_id[row.gpu]
    workload = fill_defaults(from_object(dict(row.request)).workload, shape)
    kind, batch = workload.traits.step, float(workload.local_batch)
    bare = replace(workload, engine="jax") if row.kind == "prefill" else workload  # an engine without latency of a request
    if workload.gpus == 1:
        lowered = lower(workload, shape)
        merged = replace(lowered, ops=tuple(merge_equal(lowered.ops)))
        columns = build_gpu_columns([gpu])
        return lambda: float(
            corrected_seconds(bare, kind, uncorrected_terms(merged, columns), [gpu], load_calibration()).wall[0, 0]
        )
    fabric = fabric_of(gpu, None, workload.interconnect, workload.network_gbps, workload.network)
    devices = Devices.of([gpu], [fabric])
    micro_batch, pipeline = pipeline_schedule(workload, batch)
    lowered, exchanged = rank_ops(workload, shape, micro_batch), step_collectives(workload, shape, micro_batch)
    ops = {phase: merge_equal([op for op in lowered.ops if op.phase == phase]) for phase in {op.phase for op in lowered.ops}}
    lowered = replace(lowered, ops=tuple(op for phase in ops.values() for op in phase))
    return lambda: float(
        pass_breakdown(workload, lowered_pass(bare, shape, devices, lowered, exchanged, kind, 0.0, pipeline), devices).wall[0, 0]
    )


def set_values(values: Mapping[str, float]) -> None:
    """Let estimates in this process use other values of parameters."""
    for name, value in values.items():
        if name != REQUEST_LATENCY:
            (parameters() if name.startswith("roofline.") else collective_parameters())[name] = value  # type: ignore[index]
    collectives._PATHS.clear()
    load_calibration().multiplier_cache.clear()


def log_errors(rows: Sequence[Row], values: Mapping[str, float]) -> np.ndarray:
    """Logs of measured over estimated seconds at these values of the parameters."""
    set_values(values)
    latency = values.get(REQUEST_LATENCY, 0.0)
    estimates = [row.estimate() + (latency if row.measured.kind == "prefill" else 0.0) for row in rows]
    return np.array([log(row.measured.seconds / one) for row, one in zip(rows, estimates, strict=True)])


def fit(rows: Sequence[Row], start: Mapping[str, float], guess: Mapping[str, float] | None = None) -> dict[str, float]:
    """Values of a family's parameters that fit these rows best; the prior is centred on `start`, the search begins at `guess`."""
    counts = Counter((row.group, row.measured.kind) for row in rows)
    weights = np.array([counts[row.group, row.measured.kind] ** -0.25 for row in rows])

    def residuals(logs: np.ndarray) -> np.ndarray:
        values = {name: exp(one) for name, one in zip(start, logs, strict=True)}
        prior = (logs - first) / PRIOR_WIDTH * 0.1
        return np.concatenate([log_errors(rows, values) * weights, prior])

    first = np.array([log(value) for value in start.values()])
    begin = np.array([log((guess or start)[name]) for name in start])
    highest = [0.0 if "_share." in name else np.inf for name in start]  # no share exceeds 1
    found = least_squares(
        residuals, np.minimum(begin, np.array(highest) - 1e-3), loss="soft_l1", f_scale=LOSS_WIDTH, diff_step=1e-2,
        max_nfev=20, ftol=1e-3, bounds=(-np.inf, highest),
    )  # fmt: skip
    return {name: exp(one) for name, one in zip(start, found.x, strict=True)}


def main(write: bool = False) -> None:
    """Fit every family with each group left out in turn, then on all rows; print errors and values."""
    rows = roofline_rows(Catalog())
    evidence: list[RooflineEvidence] = []
    fitted: dict[str, float] = {}
    for family, names in FITTED.items():
        own = [row for row in rows if row.family == family]
        table = {**parameters(), **collective_parameters()}
        start = {name: table[name] for name in names}
        if family == "neuron":
            start[REQUEST_LATENCY] = 0.02
        best = fit(own, start)
        left_out: list[tuple[Row, float]] = []
        for group in dict.fromkeys(row.group for row in own):
            kept, dropped = ([row for row in own if (row.group == group) == out] for out in (False, True))
            values = fit(kept, start, best)
            left_out += zip(dropped, log_errors(dropped, values).tolist(), strict=True)
            set_values(start)
        fitted |= best
        print(family, {name: float(f"{value:.4g}") for name, value in best.items()}, flush=True)
        seen = log_errors(own, {name: fitted[name] for name in start})
        report(family, left_out, dict(zip((id(row) for row in own), seen.tolist(), strict=True)))
        evidence += _evidence(family, left_out)
    for name, value in fitted.items():
        print(f"{name} = {value:.4g}")
    if write:
        counts = Counter(row.family for row in rows)
        _write_parameters(PARAMETERS_FILE, fitted, counts)
        _write_parameters(GROUP_PARAMETERS_FILE, fitted, counts)
        _write_evidence(evidence)


def report(family: str, left_out: Sequence[tuple[Row, float]], seen: Mapping[int, float]) -> None:
    """Print the median error of each group left out, and of the fit on all rows, by kind of step."""
    keys = dict.fromkeys((row.group, row.measured.kind) for row, _ in left_out)
    print("family\tleft out\tstep\trows\tmedian error, left out\tmedian error, seen")
    for group, kind in keys:
        chosen = [(row, error) for row, error in left_out if (row.group, row.measured.kind) == (group, kind)]
        inside = [seen[id(row)] for row, _ in chosen]
        print(family, group, kind, len(chosen), f"{_median([one for _, one in chosen]):.1%}", f"{_median(inside):.1%}", sep="\t")
    for group in dict.fromkeys(row.group for row, _ in left_out):
        print(family, group, "all", "", f"{_median([error for row, error in left_out if row.group == group]):.1%}", sep="\t")
    print(family, "all", "", len(left_out), f"{_median([error for _, error in left_out]):.1%}", sep="\t")


def _median(errors: Sequence[float]) -> float:
    """Median of |estimated / measured - 1|."""
    return float(np.median([abs(exp(-error) - 1.0) for error in errors]))


def _evidence(family: str, left_out: Sequence[tuple[Row, float]]) -> list[RooflineEvidence]:
    """Evidence of each chip and kind of step: the 90% range of the errors left out, at least MIN_HALF_RANGE each way."""
    found = []
    for gpu, step in dict.fromkeys((row.measured.gpu, row.measured.kind) for row, _ in left_out):
        chosen = [(row, error) for row, error in left_out if (row.measured.gpu, row.measured.kind) == (gpu, step)]
        low, high = np.percentile([error for _, error in chosen], RANGE_PERCENTILES)
        sources = tuple(dict.fromkeys(f"results-{row.measured.source}" for row, _ in chosen))
        error = round(_median([one for _, one in chosen]), 3)
        low, high = min(float(low), -MIN_HALF_RANGE), max(float(high), MIN_HALF_RANGE)
        one = RooflineEvidence(family, gpu, step, len(chosen), error, round(low, 3), round(high, 3), sources)
        found.append(one)
        kin = [name for name, same in SAME_CORES.items() if same == gpu]
        wider = SAME_CORES_WIDENING
        found += [replace(one, gpu=name, rows=0, low=round(low * wider, 3), high=round(high * wider, 3)) for name in kin]
    return found


def _write_parameters(file: Path, fitted: Mapping[str, float], rows: Mapping[str, int]) -> None:
    """Write fitted values into a table of parameters; other rows stay as they are."""
    with file.open(newline="", encoding="utf-8") as text:
        table = list(csv.DictReader(text))
    for line in table:
        if line["name"] in fitted:
            line["value"] = f"{fitted[line['name']]:.4g}"
            if "rows" in line:
                line["rows"] = str(rows[line["name"].rpartition(".")[2]])
    _write(file, list(table[0]), table)


def _write_evidence(evidence: Sequence[RooflineEvidence]) -> None:
    cells = [msgspec.structs.asdict(one) | {"sources": ";".join(one.sources)} for one in evidence]
    _write(EVIDENCE_FILE, list(RooflineEvidence.__struct_fields__), cells)


def _write(file: Path, columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    file.write_text(text.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main("--write" in sys.argv)
