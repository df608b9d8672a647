"""Predictions of rows on several GPUs by fits that never saw their GPU, and errors of the scaling efficiency.

PYTHONPATH=src:tools python -m calibration.group_scores --held-out groups.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import asdict

from calibration.fit_groups import LeaveOneGpuOut
from calibration.group_alone import replicas_of


class HeldRow(msgspec.Struct, frozen=True):
    """One row with its seconds, measured and predicted by fits without its GPU."""

    source: str
    gpu: str
    gpus: int
    kind: str
    task: str
    row: int
    replicas: int  # under data parallelism; 1 for other layouts
    measured: float
    predicted: float
    anchored: float  # predicted from the measured time of one GPU
    alone: float  # predicted for one GPU: of one replica's batch, or of the whole model
    alone_measured: float  # 0 if unmeasured

    @property
    def efficiency(self) -> tuple[float, float]:
        """Measured and predicted scaling efficiency: throughput per GPU relative to one GPU alone, whose time is measured."""
        times = 1.0 if self.replicas > 1 else 1.0 / self.gpus
        return times * self.alone_measured / self.measured, times * self.alone_measured / self.anchored

    @property
    def blind(self) -> tuple[float, float]:
        """Measured and predicted scaling efficiency if the time of one GPU alone is predicted as well."""
        times = 1.0 if self.replicas > 1 else 1.0 / self.gpus
        return self.efficiency[0], times * self.alone / self.predicted


class HeldOutRows(msgspec.Struct, frozen=True):
    """Rows as arrays for the ranges."""

    rows: Sequence[HeldRow]

    @property
    def actual(self) -> np.ndarray:
        """Measured log seconds."""
        return np.log([row.measured for row in self.rows])

    @property
    def predicted(self) -> np.ndarray:
        """Predicted log seconds."""
        return np.log([row.predicted for row in self.rows])

    @property
    def kinds(self) -> list[str]:
        """Kinds of step."""
        return [row.task for row in self.rows]

    @property
    def weights(self) -> np.ndarray:
        """Weight of each row: each (source, GPU, kind) counts by the square root of its rows."""
        counts = Counter((row.source, row.gpu, row.kind) for row in self.rows)
        return np.array([counts[row.source, row.gpu, row.kind] ** -0.5 for row in self.rows])


def held_out(gpus: Iterable[str] = ()) -> HeldOutRows:
    """Every row on several GPUs, predicted by fits without its GPU."""
    fits = LeaveOneGpuOut()
    rows: list[HeldRow] = []
    for gpu in gpus or sorted({row.gpu for row in fits.rows}):
        examples, predicted, anchored = fits.without(gpu)
        for example, log, anchored_log in zip(examples, predicted, anchored, strict=True):
            row = example.row
            rows.append(
                HeldRow(
                    row.source,
                    gpu,
                    int(row.request["gpus"]),
                    row.kind,
                    example.setting.task,
                    row.row,
                    replicas_of(row),
                    example.seconds,
                    float(np.exp(log)),
                    float(np.exp(anchored_log)),
                    example.alone,
                    example.alone_measured,
                )
            )
        print(gpu, len(examples), file=sys.stderr)
    return HeldOutRows(rows)


def save(held: HeldOutRows, path: Path) -> None:
    """Write the predictions to a file: the fits take minutes."""
    path.write_text(json.dumps([asdict(row) for row in held.rows]))


def load(path: Path) -> HeldOutRows:
    """Read the predictions that `save` wrote."""
    return HeldOutRows([HeldRow(**row) for row in json.loads(path.read_bytes())])


def main() -> int:
    """Predict every row and write the predictions to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", type=Path, required=True, help="file for the predictions")
    parser.add_argument("--gpu", action="append", default=[], help="leave out only these GPUs")
    arguments = parser.parse_args()
    save(held_out(arguments.gpu), arguments.held_out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
