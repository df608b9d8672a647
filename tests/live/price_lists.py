"""Small price lists and their import."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from tests.surface.cli import call

DAY = date.today()


def imported(path: Path, *more: str) -> None:
    reply = call("catalog", "import", str(path), *more)
    assert reply.code == 0, reply.err
