"""Errors of estimated kernel times by family of kernels: with the GPU seen by the fit, and with each GPU left out of it.

PYTHONPATH=src:tools python -m benchmarks.accuracy_kernels attention mla moe linear collectives
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from calibration import fit_collectives
from calibration.curve_rows import UNTUNED_MOE, Sample, samples
from calibration.fit_curves import Parameters, Problem, fit, gpu_columns, usable
from calibration.parameter_table import read_table

from whichgpu.catalog.evidence import measurements
from whichgpu.estimate.group.collective_parameters import collective_parameters
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.parameters import parameters

OTHER_VENDORS = ("arc-pro-b60-24gb",)
EFFORT = 25  # evaluations of the Jacobian for each fit without a GPU


def attention() -> None:
    """Print the errors of attention kernels, prefill and decode."""
    _attention_errors("aiconfigurator-attention")


def mla() -> None:
    """Print the errors of MLA kernels, prefill and decode."""
    _attention_errors("aiconfigurator-mla")


def _attention_errors(source: str) -> None:
    """Print the errors of one source of attention kernels; the curve is fitted to all sources and to PyTorch's on the H200."""
    chosen = [sample for sample in usable(measurements()) if sample.curve == "attention"]
    seen, left_out = seen_and_left_out(chosen, [True] * len(chosen), "attention")
    own = np.array([sample.source == source for sample in chosen])
    print_errors([sample for sample in chosen if sample.source == source], seen[own], left_out[own])


def moe() -> None:
    """Print the errors of fused MoE kernels; the untuned kernel is scored, but no fit sees it."""
    chosen = [sample for sample in samples(measurements()) if sample.curve == "moe"]
    fitted = [sample.kind != UNTUNED_MOE for sample in chosen]
    print_errors(chosen, *seen_and_left_out(chosen, fitted, "moe"))


def linear() -> None:
    """Print the errors of linear attention over prompts: recurrences and the short convolutions before them."""
    chosen = [sample for sample in usable(measurements()) if sample.curve == "scan"]
    print_errors(chosen, *seen_and_left_out(chosen, [True] * len(chosen), "scan"))


def collectives() -> None:
    """Print the errors of collectives, custom all-reduce and DeepEP's dispatch and combine, each NVIDIA GPU left out in turn."""
    rows = [row for row in fit_collectives.collective_measurements() if row.gpu not in OTHER_VENDORS]
    chosen = [Sample(row.source, row.gpu, f"{row.request['engine']} {row.request['kind']}", "", (), row.seconds) for row in rows]
    measured, left_out = np.array([row.seconds for row in rows]), np.empty(len(rows))
    for gpu in sorted({row.gpu for row in rows}):
        here = [row.gpu == gpu for row in rows]
        left_out[here] = measured[here] * np.exp(fit_collectives.without_gpu(fit_collectives.collective_measurements(), gpu)[1])
    seen = measured * np.exp(fit_collectives.errors(rows, dict(collective_parameters())))
    print_errors(chosen, seen, left_out)


def seen_and_left_out(chosen: Sequence[Sample], fitted: Sequence[bool], curve: str) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds by the committed parameters, and by fits to the `fitted` samples of all other GPUs."""
    gpus, start = gpu_columns(chosen), {row.name: float(row.start) for row in read_table()} | dict(parameters())
    left_out = np.empty(len(chosen))
    for gpu in gpus:
        places = [place for place, sample in enumerate(chosen) if sample.gpu == gpu]
        others = [sample for sample, used in zip(chosen, fitted, strict=True) if used and sample.gpu != gpu]
        refitted = fit_without(others, gpus, start, curve)
        left_out[places] = Problem([chosen[place] for place in places], gpus).predict(refitted)
    return Problem(chosen, gpus).predict(start), left_out


def fit_without(others: Sequence[Sample], gpus: Mapping[str, GpuColumns], start: Parameters, curve: str) -> Parameters:
    """Return the parameters of a curve fitted to these samples from neutral starts; GPUs without samples have multiplier 1."""
    declared = [row for row in read_table() if row.curve == curve]
    return fit(Problem(others, gpus), start | {row.name: float(row.start) for row in declared}, declared, EFFORT)


def print_errors(chosen: Sequence[Sample], seen: np.ndarray, left_out: np.ndarray) -> None:
    """Print the median and mean absolute error by GPU, by format and over all rows."""
    measured = np.array([sample.seconds for sample in chosen])
    labels: tuple[Callable[[Sample], str], ...] = (
        lambda sample: sample.gpu,
        lambda sample: f"{sample.gpu} {_operator_kind(sample)}",
        lambda sample: sample.kind,
        _operator_kind,
        lambda _: "all",
    )
    print(f"{'':42}{'rows':>6}{'seen: median':>14}{'mean':>7}{'left out: median':>18}{'mean':>7}{'bias':>7}")
    for label in labels:
        names = np.array([label(sample) for sample in chosen])
        for name in sorted(set(names)):
            here = names == name
            off = [(predicted / measured - 1.0)[here] for predicted in (seen, left_out)]
            cells = [f"{np.median(np.abs(one)):>14.1%}{np.abs(one).mean():>7.1%}" for one in off]
            print(f"{name:42}{here.sum():6d}{cells[0]}    {cells[1]}{np.median(off[1]):+7.1%}")


def _operator_kind(sample: Sample) -> str:
    """Return the kind of the sample's first operator, or of its collective, which has no operators."""
    return sample.ops[0].kind if sample.ops else sample.kind


FAMILIES: Mapping[str, Callable[[], None]] = {
    "attention": attention,
    "mla": mla,
    "moe": moe,
    "linear": linear,
    "collectives": collectives,
}


def main() -> int:
    """Print the tables of the named families; by default of all."""
    for name in sys.argv[1:] or FAMILIES:
        print(f"\n{name}")
        FAMILIES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
