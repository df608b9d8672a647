"""Tables of fitted corrections (`corrections.csv`): level, group, term, log factor, its standard error and rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve  # type: ignore[import-untyped]

HEADER = "level,group,term,log_factor,standard_error,rows"


@dataclass(frozen=True, slots=True)
class Correction:
    """A fitted log multiplier of one term of a step, for one group of a level (`engine`: `vllm`)."""

    level: str
    group: str
    term: str
    log_factor: str
    standard_error: float
    rows: int


def write_corrections(folder: Path, corrections: Iterable[Correction]) -> None:
    """Write the folder's table, a line per correction, in the order of levels and groups."""
    lines = [
        f"{one.level},{one.group},{one.term},{one.log_factor},{one.standard_error:.2g},{one.rows}"
        for one in sorted(corrections, key=lambda one: (one.level, one.group, one.term))
    ]
    (folder / "corrections.csv").write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")


def standard_errors(slopes: np.ndarray, information: np.ndarray, prior_widths: np.ndarray) -> np.ndarray:
    """Standard errors of log multipliers: Gauss-Newton at the optimum with Gaussian priors.

    `slopes` are d log(seconds) / d theta, a row per example; `information` is what each example weighs.
    """
    hessian = slopes.T @ (slopes * information[:, None]) + np.diag(prior_widths**-2.0)
    return np.asarray(np.sqrt(np.diag(cho_solve(cho_factor(hessian), np.eye(len(hessian))))))
