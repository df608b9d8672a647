"""`make refit`: fit everything on the evidence table, in order, and write the committed data files.

First the curves of single operators and the constants of collectives, then the corrections of steps on one GPU, which correct the
errors that the curves leave, then those of several GPUs, and at last the errors that the whole leaves on each row. About fifteen
minutes on two quiet cores. From unchanged evidence
`git diff` shows nothing afterwards, up to standard errors in the last digit on another machine.
"""

from __future__ import annotations

import sys

from calibration import fit, fit_collectives, fit_curves, fit_groups, left_out_table
from calibration.parameter_table import exceptions, problems, read_table


def main() -> int:
    """Run the fits; exit status 1 if a parameter sits on its bound or is confounded with another and is no known exception."""
    for number, part in enumerate((fit_curves, fit_collectives, fit, fit_groups, left_out_table), start=1):
        print(f"{number}/5 {part.__name__}", file=sys.stderr)
        print(f"    {part.refit()}", file=sys.stderr)
    unknown = [problem for problem in problems(read_table()) if problem not in exceptions()]
    for name, what in unknown:
        print(f"{name}: {what}", file=sys.stderr)
    return bool(unknown)


if __name__ == "__main__":
    raise SystemExit(main())
