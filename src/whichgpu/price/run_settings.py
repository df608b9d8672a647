"""Default settings of a run (start-up, checkpoints, interruptions), from a table that states the basis of each row."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from whichgpu.base.bundled_data import data_rows

TABLE = Path(__file__).parent / "data" / "habits.csv"
ANY = "*"


def run_default(what: str, provider: str = ANY) -> float:
    """Return the default of a run setting, the provider's own if it publishes one; in seconds, or interruptions per hour.

    >>> run_default("notice"), run_default("notice", "aws")
    (30.0, 120.0)
    """
    return float(_row(what, provider)["value"])


def run_default_sources(what: str, provider: str = ANY) -> tuple[str, ...]:
    """Return the ids of the documents behind the default of a run setting, such as `notice` or `startup`."""
    return tuple(one for one in _row(what, provider)["sources"].split(";") if one)


def _row(what: str, provider: str) -> dict[str, str]:
    rows = {row["provider"]: row for row in _table() if row["what"] == what}
    return rows.get(provider) or rows[ANY]


@cache
def _table() -> tuple[dict[str, str], ...]:
    return data_rows(TABLE)
