"""The table of curve parameters (`estimate/time/data/parameters.csv`): read before a fit and written with its results.

A parameter's name, unit, meaning, status, bounds, prior and source are written by hand; value, standard error, rows and
`confounded_with` by the fit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from whichgpu.base.bundled_data import data_rows
from whichgpu.estimate.time.curves.parameters import PARAMETERS_FILE

FITTED, FIXED, NUISANCE = "fitted", "fixed", "nuisance"  # a nuisance parameter belongs to one source and is used by fits alone
EXCEPTIONS_FILE = Path(__file__).with_name("parameter_exceptions.csv")
ON_BOUND = 5e-3  # relative distance from a bound below which a parameter counts as sitting on it
CONFOUNDED = 0.95  # correlation of two parameters from which the rows cannot separate them


class ParameterRow(msgspec.Struct, frozen=True):
    """A line of the table; numbers are text as written, empty if there is none."""

    name: str
    value: str
    unit: str
    meaning: str
    status: str
    curve: str  # parameters of one curve are fitted together
    start: str  # first value, and centre of the prior
    lower: str
    upper: str
    prior_width: str  # of the logarithm
    standard_error: str  # relative: of the logarithm
    rows: str  # samples whose time depends on the parameter
    confounded_with: str  # a parameter that the rows cannot separate from this one
    source: str

    @property
    def on_bound(self) -> bool:
        """Whether a fitted value sits on one of its bounds."""
        if self.status != FITTED:
            return False
        value, lower, upper = float(self.value), float(self.lower), float(self.upper)
        return value <= lower * (1 + ON_BOUND) or value >= upper * (1 - ON_BOUND)


def read_table() -> list[ParameterRow]:
    """Every row, in the table's order, which is the order of the fit."""
    return [ParameterRow(**row) for row in data_rows(PARAMETERS_FILE)]


def write_table(rows: Iterable[ParameterRow]) -> None:
    """Rewrite the table."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ParameterRow.__struct_fields__, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    PARAMETERS_FILE.write_text(text.getvalue(), encoding="utf-8")


class Fit(msgspec.Struct, frozen=True):
    """Result of a fit for one parameter."""

    value: float
    standard_error: float
    rows: int
    confounded_with: str


def with_fits(table: Sequence[ParameterRow], fits: Mapping[str, Fit]) -> list[ParameterRow]:
    """The table with the columns that a fit writes; nuisance parameters keep no value."""
    return [_with_fit(row, fits[row.name]) if row.name in fits else row for row in table]


def _with_fit(row: ParameterRow, fit: Fit) -> ParameterRow:
    return replace(
        row,
        value="" if row.status == NUISANCE else f"{fit.value:.4g}",
        standard_error=f"{fit.standard_error:.2g}",
        rows=str(fit.rows),
        confounded_with=fit.confounded_with,
    )


def problems(table: Iterable[ParameterRow]) -> list[tuple[str, str]]:
    """Parameters on a bound and pairs that cannot be separated: name, and `on its bound` or the other's name."""
    fitted = [row for row in table if row.status == FITTED]
    bound = [(row.name, "on its bound") for row in fitted if row.on_bound]
    return bound + [(row.name, row.confounded_with) for row in fitted if row.confounded_with]


def exceptions() -> set[tuple[str, str]]:
    """Problems known and not yet solved; the list may only shrink."""
    with EXCEPTIONS_FILE.open(newline="", encoding="utf-8") as text:
        return {(row["name"], row["problem"]) for row in csv.DictReader(text)}
