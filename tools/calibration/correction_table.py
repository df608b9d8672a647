"""Tables of fitted corrections (`corrections.csv`): level, group, term, log factor, its standard error and rows."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
from scipy.linalg import cho_factor, cho_solve  # type: ignore[import-untyped]

SAME_FIT = 0.01  # of a log factor: the same fit on two machines differs by up to 0.0087, by 0.0006 on average
HEADER = "level,group,term,log_factor,standard_error,rows"


class Correction(msgspec.Struct, frozen=True):
    """A fitted log multiplier of one term of a step, for one group of a level (`engine`: `vllm`)."""

    level: str
    group: str
    term: str
    log_factor: str
    standard_error: float
    rows: int


def write_corrections(folder: Path, corrections: Iterable[Correction], min_log_factor: float) -> float:
    """Write the folder's table in the order of levels, groups and terms; return the largest change of a log factor.

    The optimum is flat: machines differ by some thousandths. A fit that agrees with the table to SAME_FIT leaves it as it is.
    """
    table = folder / "corrections.csv"
    before = _log_factors(table) if table.exists() else {}
    fitted = {(one.level, one.group, one.term): one for one in corrections}
    written = {key: one.log_factor for key, one in fitted.items() if abs(float(one.log_factor)) >= min_log_factor}
    change = max(abs(float(written.get(key, 0)) - float(before.get(key, 0))) for key in {*written, *before})
    factors = before if change <= SAME_FIT and before.keys() <= fitted.keys() else written
    rows = [(*key, factors[key], f"{fitted[key].standard_error:.2g}", str(fitted[key].rows)) for key in sorted(factors)]
    table.write_text("\n".join([HEADER, *map(",".join, rows)]) + "\n", encoding="utf-8")
    return change


def _log_factors(table: Path) -> dict[tuple[str, str, str], str]:
    with table.open(newline="", encoding="utf-8") as text:
        return {(row["level"], row["group"], row["term"]): row["log_factor"] for row in csv.DictReader(text)}


def standard_errors(slopes: np.ndarray, information: np.ndarray, prior_widths: np.ndarray) -> np.ndarray:
    """Standard errors of log multipliers: Gauss-Newton at the optimum with Gaussian priors.

    `slopes` are d log(seconds) / d theta, a row per example; `information` is the weight of each example.
    """
    hessian = slopes.T @ (slopes * information[:, None]) + np.diag(prior_widths**-2.0)
    return np.asarray(np.sqrt(np.diag(cho_solve(cho_factor(hessian), np.eye(len(hessian))))))
