"""Predictions of groups' rows by fits that never saw their GPU, and how far scaling is told rightly.

PYTHONPATH=src:tools python -m calibration.group_scores --held groups.json
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
from calibration.group_alone import copies_of


class HeldRow(msgspec.Struct, frozen=True):
    """One row and what was said of it by fits without its GPU; seconds."""

    source: str
    gpu: str
    gpus: int
    kind: str
    task: str
    row: int
    copies: int  # data-parallel ones; 1 where the model is cut up
    measured: float
    predicted: float
    anchored: float  # predicted, given what was measured on one GPU
    alone: float  # predicted for one GPU: of one copy's batch, or of everything
    alone_measured: float  # 0 where nobody measured it

    @property
    def efficiency(self) -> tuple[float, float]:
        """Measured and predicted: what a GPU of the group gets done against one alone, whose time is given."""
        times = 1.0 if self.copies > 1 else 1.0 / self.gpus
        return times * self.alone_measured / self.measured, times * self.alone_measured / self.anchored

    @property
    def blind(self) -> tuple[float, float]:
        """The same where one GPU's time is predicted as well."""
        times = 1.0 if self.copies > 1 else 1.0 / self.gpus
        return self.efficiency[0], times * self.alone / self.predicted


class Held(msgspec.Struct, frozen=True):
    """Rows as arrays for the ranges."""

    rows: Sequence[HeldRow]

    @property
    def actual(self) -> np.ndarray:
        """Log seconds measured."""
        return np.log([row.measured for row in self.rows])

    @property
    def predicted(self) -> np.ndarray:
        """Log seconds told."""
        return np.log([row.predicted for row in self.rows])

    @property
    def kinds(self) -> list[str]:
        """Kinds of step."""
        return [row.task for row in self.rows]

    @property
    def weights(self) -> np.ndarray:
        """Each (source, GPU, kind) by the square root of its rows."""
        counts = Counter((row.source, row.gpu, row.kind) for row in self.rows)
        return np.array([counts[row.source, row.gpu, row.kind] ** -0.5 for row in self.rows])


def held_out(gpus: Iterable[str] = ()) -> Held:
    """Every row of a group, by fits of the work and of the links without its GPU."""
    leaving = LeaveOneGpuOut()
    found: list[HeldRow] = []
    for gpu in gpus or sorted({row.gpu for row in leaving.rows}):
        examples, predicted, anchored = leaving.without(gpu)
        for example, log, given in zip(examples, predicted, anchored, strict=True):
            row = example.row
            found.append(
                HeldRow(
                    row.source,
                    gpu,
                    int(row.request["gpus"]),
                    row.kind,
                    example.setting.task,
                    row.row,
                    copies_of(row),
                    example.seconds,
                    float(np.exp(log)),
                    float(np.exp(given)),
                    example.alone,
                    example.alone_measured,
                )
            )
        print(gpu, len(examples), file=sys.stderr)
    return Held(found)


def save(held: Held, path: Path) -> None:
    """Keep them: it takes minutes."""
    path.write_text(json.dumps([asdict(row) for row in held.rows]))


def load(path: Path) -> Held:
    """What was kept."""
    return Held([HeldRow(**row) for row in json.loads(path.read_bytes())])


def main() -> int:
    """Predict and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held", type=Path, required=True)
    parser.add_argument("--gpu", action="append", default=[], help="only these")
    asked = parser.parse_args()
    save(held_out(asked.gpu), asked.held)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
