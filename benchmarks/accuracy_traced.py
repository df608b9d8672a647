"""Memory of traced models against measured training steps: the vision models of `accuracy_memory`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from whichgpu.base.units import MIB
from whichgpu.estimate.memory.traced import traced_memory
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.tables import table_names
from whichgpu.workload.workload import Workload

SHARED = Path(os.environ.get("WHICHGPU_SHARED", Path(__file__).resolve().parent.parent.parent / "shared"))
TRUTH = SHARED / "truth" / "h200" / "train.jsonl"
OPTIMIZERS = {"sgdm": "sgd-momentum"}  # spelling of the rows
IMAGE = 224


@dataclass(frozen=True, slots=True)
class Row:
    """A measured step and its estimate in bytes; `…_device` is the memory in use that the device reports."""

    name: str
    precision: str
    batch: int
    measured: int
    estimated: int
    measured_device: int
    estimated_device: int


def rows(truth: Path = TRUTH) -> list[Row]:
    """Every measured step of a model that has a table; empty without the measurements."""
    if not truth.exists():
        return []
    models = frozenset(table_names())
    measured = [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]
    return [_row(step) for step in measured if step["model"] in models and "peak_alloc_mib" in step]


def _row(step: dict[str, object]) -> Row:
    model, precision, batch = str(step["model"]), str(step["precision"]), int(str(step["batch"]))
    optimizer = OPTIMIZERS.get(str(step["opt"]), str(step["opt"]))
    workload = Workload("train", model, precision=precision, batch=batch, optimizer=optimizer, image=IMAGE)
    estimate = traced_memory(workload, TracedShape(model, model, IMAGE), None)

    def measured(*fields: str) -> int:
        return round(sum(float(str(step[field])) for field in fields) * MIB)

    return Row(
        model,
        precision,
        batch,
        measured("peak_alloc_mib", "base_alloc_mib"),
        round(estimate.allocated.value),
        measured("device_used_mib"),
        round(estimate.device.value),
    )


def main() -> None:
    """Print each row and the mean and worst errors."""
    errors = []
    print("\t".join(("model", "precision", "batch", "measured MiB", "estimated", "error", "device MiB", "estimated", "error")))
    for row in rows():
        pair = row.estimated / row.measured - 1, row.estimated_device / row.measured_device - 1
        errors.append(pair)
        sizes = [size / MIB for size in (row.measured, row.estimated, row.measured_device, row.estimated_device)]
        print(
            f"{row.name}\t{row.precision}\t{row.batch}\t{sizes[0]:.0f}\t{sizes[1]:.0f}\t{pair[0]:+.1%}"
            f"\t{sizes[2]:.0f}\t{sizes[3]:.0f}\t{pair[1]:+.1%}"
        )
    for name, values in zip(("allocated", "device"), zip(*errors, strict=True), strict=False):
        off = [abs(value) for value in values]
        print(f"{name}: mean {sum(off) / len(off):.2%}, worst {max(off):.1%} of {len(off)} rows")


if __name__ == "__main__":
    main()
