"""`make refit`: fit everything on the evidence table, in order, and write the committed data files.

First the curves of single operators and the constants of collectives, then the corrections of steps on one GPU, which correct the
errors that the curves leave, then those of several GPUs, then the ranges, and at last the errors that the whole leaves on each
row. Each stage runs in a process of its own, so that none works with what it read before an earlier stage rewrote it. From
unchanged evidence `git diff` shows nothing afterwards, up to the last digits of standard errors and ranges on another machine.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Protocol

from calibration import fit, fit_collectives, fit_curves, fit_groups, fit_spread, left_out_table
from calibration.parameter_table import exceptions, problems, read_table

STAGES = (fit_curves, fit_collectives, fit, fit_groups, fit_spread, left_out_table)


class Stage(Protocol):
    """A module that fits something and writes it to the package."""

    def refit(self) -> str:
        """Fit, write the result and return a sentence on what changed."""
        ...


def run_alone(stage: Stage) -> str:
    """Run a stage in a process of its own and return its sentence."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(stage.refit).result()


def main() -> int:
    """Run the fits; exit status 1 if a parameter sits on its bound or is confounded with another and is no known exception."""
    for number, stage in enumerate(STAGES, start=1):
        print(f"{number}/{len(STAGES)} {stage.__name__}", file=sys.stderr)
        print(f"    {run_alone(stage)}", file=sys.stderr)
    unknown = [problem for problem in problems(read_table()) if problem not in exceptions()]
    for name, what in unknown:
        print(f"{name}: {what}", file=sys.stderr)
    return bool(unknown)


if __name__ == "__main__":
    raise SystemExit(main())
