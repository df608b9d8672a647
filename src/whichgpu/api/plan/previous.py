"""The fleet of an earlier plan, read from its JSON answer, so that a new plan changes it only where that pays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.files import read_regular_file
from whichgpu.base.messages import Message, msg
from whichgpu.decide.plan.solver.problem import OWNED

MAX_BYTES = 1 << 26  # Largest file accepted, in bytes.


def previous_fleet(path: Path) -> str:
    """Return the GPUs that an earlier plan rents in its busiest hours, as `--current` takes them, from its JSON answer."""
    try:
        document = json.loads(read_regular_file(path, MAX_BYTES))
    except OSError as problem:
        raise _bad(path, msg("plan.unreadable", why=problem.strerror or str(problem))) from problem
    except (ValueError, RecursionError) as problem:
        raise _bad(path, msg("plan.unreadable", why=str(problem)[:200])) from problem
    rows = document.get("bill") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise _bad(path, msg("plan.previous-shape"))
    gpus: dict[str, int] = {}
    for row in rows:
        gpu, machines, size = _fields(path, row)
        if row.get("provider") != OWNED and machines * size:
            gpus[gpu] = gpus.get(gpu, 0) + machines * size
    if not gpus:
        raise _bad(path, msg("plan.previous-empty"))
    return ",".join(f"{count}x{gpu}" for gpu, count in gpus.items())


def _fields(path: Path, row: Any) -> tuple[str, int, int]:
    match row:
        case {"gpu": str(gpu), "machines": int(machines), "gpus_per_machine": int(size)} if machines >= 0 and size >= 1:
            return gpu, machines, size
    raise _bad(path, msg("plan.previous-shape"))


def _bad(path: Path, what: Message) -> UsageError:
    return UsageError("bad-previous", msg("error.bad-plan", name=path.name, what=what), msg("hint.previous"))
