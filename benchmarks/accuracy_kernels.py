"""Errors of single kernels of serving engines, by fits that never saw the GPU and by the shipped parameters.

    PYTHONPATH=src:tools:. python -m benchmarks.accuracy_kernels collectives

One function per family of kernels, which reads its rows from the evidence table and prints a line per GPU. Leaving a GPU out fits
the parameters anew without any of its rows, which takes minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from calibration.fit_collectives import collective_measurements, errors, without_gpu

from whichgpu.catalog.evidence import Measurement
from whichgpu.estimate.group.collective_parameters import collective_parameters

NO_NVIDIA_GPU = ("arc-pro-b60-24gb",)


def error_line(name: str, left_out: np.ndarray, seen: np.ndarray) -> str:
    """Return a line of a table of errors, given log(predicted / measured) of both fits."""
    relative = [np.abs(np.expm1(one)) for one in (left_out, seen)]
    cells = [f"{np.median(one):.1%} | {one.mean():.1%}" if len(one) else "- | -" for one in relative]
    return f"| {name} | {len(seen)} | {cells[0]} | {cells[1]} |"


def collectives() -> None:
    """Print the errors of collectives and of DeepEP's dispatch and combine, by GPU and by kind."""
    rows = collective_measurements()
    shipped = errors(rows, dict(collective_parameters()))
    gpus = sorted({row.gpu for row in rows} - set(NO_NVIDIA_GPU))
    print("| | rows | left out: median | mean | seen: median | mean |\n|---|---|---|---|---|---|")
    kept: list[tuple[Measurement, float, float]] = []
    for gpu in gpus:
        own, found = without_gpu(rows, gpu)
        seen = shipped[[row.gpu == gpu for row in rows]]
        print(error_line(gpu, found, seen), flush=True)
        kept += zip(own, found, seen, strict=True)
    custom = ("vllm", "sglang", "tensorrt-llm")
    groups = {
        "all NVIDIA GPUs": (*custom, "nccl", "deepep"),
        "NCCL": ("nccl",),
        "custom all-reduce": custom,
        "DeepEP": ("deepep",),
    }
    for name, engines in groups.items():
        print(_line_of(name, [one for one in kept if one[0].request["engine"] in engines]))


def _line_of(name: str, kept: Sequence[tuple[Measurement, float, float]]) -> str:
    return error_line(name, np.array([found for _, found, _ in kept]), np.array([seen for _, _, seen in kept]))


FAMILIES: Mapping[str, Callable[[], None]] = {"collectives": collectives}


def main(names: Sequence[str]) -> None:
    """Print the errors of the families named, or of all."""
    for name in names or FAMILIES:
        FAMILIES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
