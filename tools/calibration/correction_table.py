"""Tables of fitted corrections (`corrections.csv`): level, group, term, log factor, its standard error and rows."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve  # type: ignore[import-untyped]

SAME_FIT = 0.01  # of a log factor: two machines give 0.0087 at most, 0.0006 on average
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


def write_corrections(folder: Path, corrections: Iterable[Correction]) -> float:
    """Write the folder's table, a line per correction in the order of levels and groups; the largest change of a log factor.

    The optimum is flat: machines differ by some thousandths. A fit that agrees with the table to SAME_FIT keeps its factors.
    """
    table = folder / "corrections.csv"
    before = _log_factors(table) if table.exists() else {}
    rows = {
        (one.level, one.group, one.term): one for one in sorted(corrections, key=lambda one: (one.level, one.group, one.term))
    }
    changes = [abs(float(row.log_factor) - float(before.get(key, "inf"))) for key, row in rows.items()]
    changes += [abs(float(factor)) for key, factor in before.items() if key not in rows]
    same = max(changes) <= SAME_FIT
    lines = [
        f"{','.join(key)},{before[key] if same else row.log_factor},{row.standard_error:.2g},{row.rows}"
        for key, row in rows.items()
    ]
    table.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return max(changes)


def _log_factors(table: Path) -> dict[tuple[str, str, str], str]:
    with table.open(newline="", encoding="utf-8") as text:
        return {(row["level"], row["group"], row["term"]): row["log_factor"] for row in csv.DictReader(text)}


def standard_errors(slopes: np.ndarray, information: np.ndarray, prior_widths: np.ndarray) -> np.ndarray:
    """Standard errors of log multipliers: Gauss-Newton at the optimum with Gaussian priors.

    `slopes` are d log(seconds) / d theta, a row per example; `information` is what each example weighs.
    """
    hessian = slopes.T @ (slopes * information[:, None]) + np.diag(prior_widths**-2.0)
    return np.asarray(np.sqrt(np.diag(cho_solve(cho_factor(hessian), np.eye(len(hessian))))))
