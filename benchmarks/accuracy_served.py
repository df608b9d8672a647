"""Published serving runs against the tool's current estimates: time between output tokens, or output rate at maximum load.

    PYTHONPATH=src:tools python -m calibration.served_scores > served.json
    PYTHONPATH=src:tools python -m benchmarks.accuracy_served [--rows] [--held-out served.json] [PATTERN]

Each row is estimated as for a user: the closed form of a decode step and the share of other requests' prefills. Estimates
are those of the product's own fit, which may have seen the rows. With `--held-out`, errors of fits that never saw a row's
source, model or GPU follow, with the ranges that the product gives. `--rows` prints every row, PATTERN selects groups.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from calibration.served_scores import LEFT_OUT, HeldServed, load

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.evidence import Measurement, measurements
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import from_object

SOURCES = (
    "aic-silicon", "cloudrift", "dstack", "gpustack-lab", "lambda-vllm", "ree2raz", "rocm-vllm", "sgl-cookbook", "trtllm-2026",
    "vllm-recipes",
)  # fmt: skip
AMD_SOURCES = ("argonne",)  # Their rows on other GPUs are scored elsewhere.


@dataclass(frozen=True, slots=True)
class Scored:
    """One row: measured and estimated seconds (of a token or a whole batch), the 90% range, and its group."""

    row: Measurement
    line: str
    model: str
    seconds: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """Estimated over measured seconds."""
        return self.seconds / self.row.seconds

    @property
    def covered(self) -> bool:
        """Whether the measured value lies in the 90% range."""
        return self.low <= self.row.seconds <= self.high

    @property
    def group(self) -> str:
        """Source, model, GPU and engine."""
        request = self.row.request
        return f"{self.row.source} {self.model} {request['precision']} {self.row.gpu} {request['engine']} {request['year']}"


def served_rows(rows: Iterable[Measurement]) -> list[Measurement]:
    """Return the rows of serving engines that are scored here."""
    return [row for row in rows if row.source in SOURCES or (row.source in AMD_SOURCES and row.gpu.startswith("mi"))]


def scored(row: Measurement, lookups: LookupCache) -> Scored | None:
    """Return a row with today's estimate, or None if the tool refuses the request."""
    try:
        answer = estimate_workload(from_object(dict(row.request)), lookups)
    except WhichGpuError as error:
        print(f"not answered: {row.source} line {row.row}: {error}", file=sys.stderr)
        return None
    if answer.time is None or answer.throughput is None:
        return None
    shape = lookups.shape(row.request["model"])
    seconds = answer.time.value * (int(row.request["seq_out"]) if row.kind == "generate" else 1)
    if row.kind == "max-load":
        seconds = 1.0 / answer.throughput.value
    low, high = answer.time.relative_range
    experts = isinstance(shape, Transformer) and shape.experts is not None
    name = row.request["model"] if isinstance(row.request["model"], str) else row.request["model"]["model_type"]
    return Scored(row, _line(row, experts), str(name), seconds, seconds * low, seconds * high)


def _line(row: Measurement, experts: bool) -> str:
    if row.gpu.startswith("mi"):
        return "MI300X and kin"
    if row.kind == "max-load":
        return "TensorRT-LLM at maximum load"
    several = row.request.get("gpus", 1) > 1
    return ("MoE, several GPUs" if several else "MoE, one GPU") if experts else "dense"


def table(rows: Sequence[Scored], key: str) -> Iterator[str]:
    """Yield rows, median and mean absolute error, bias and coverage of the groups that share `key`."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for one in rows:
        groups[getattr(one, key)].append(one)
    yield f"| {key} | rows | median error | mean error | bias | in 90% range |"
    yield "|---|---|---|---|---|---|"
    for name, members in sorted(groups.items()):
        ratios = np.array([one.ratio for one in members])
        errors = np.abs(ratios - 1.0)
        bias = float(np.exp(np.mean(np.log(ratios)))) - 1.0
        inside = np.mean([one.covered for one in members])
        yield f"| {name} | {len(members)} | {np.median(errors):.1%} | {errors.mean():.1%} | {bias:+.1%} | {inside:.0%} |"
    yield ""


def each(rows: Sequence[Scored]) -> Iterator[str]:
    """Yield one line per row."""
    for one in sorted(rows, key=lambda one: (one.group, one.row.request["gpus"], one.row.request.get("batch", 0))):
        request = one.row.request
        sizes = " ".join(f"{name}={request[name]}" for name in ("gpus", "batch", "seq_in", "seq_out") if name in request)
        yield f"{one.group} {sizes} {request.get('parallel', '')} measured {one.row.seconds:.4g} s, {one.ratio:.2f} times"


def without(rows: Sequence[Scored], held_out: Sequence[HeldServed], name: str) -> list[Scored]:
    """Return the rows with the predictions of fits without their source, model or GPU, and the product's range around them."""
    predictions = {(one.source, one.row, one.gpu, one.kind): one.predicted for one in held_out}
    result = []
    for one in rows:
        seconds = predictions.get((one.row.source, one.row.row, one.row.gpu, one.row.kind), {}).get(name)
        if seconds is not None:
            change = seconds / one.seconds
            result.append(replace(one, seconds=seconds, low=one.low * change, high=one.high * change))
    return result


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--held-out", type=Path)
    arguments = parser.parse_args()
    lookups = lookup_cache(Catalog(), own=False)
    rows = [one for row in served_rows(measurements()) if (one := scored(row, lookups))]
    rows = [one for one in rows if re.search(arguments.pattern, f"{one.line} {one.group}")]
    if arguments.rows:
        print("\n".join(each(rows)))
    print("\n".join([*table(rows, "line"), *table(rows, "group")]))
    for name in LEFT_OUT if arguments.held_out else ():
        left = without(rows, load(arguments.held_out.read_bytes()), name)
        print(f"Without the row's {name}:\n")
        print("\n".join([*table(left, "line"), *table(left, "group")]))


if __name__ == "__main__":
    main()
