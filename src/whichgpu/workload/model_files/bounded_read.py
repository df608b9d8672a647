"""Reader of config.json files, which may come from anyone: the size is limited and the content must be a JSON object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

MAX_CONFIG_BYTES = 2_000_000  # Largest file that is read, in bytes; published config.json files have at most some 100 kB.


def read_config(path: Path) -> dict[str, Any]:
    """Return the JSON object in a config.json; raise if the file is too large or is not one object."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise unreadable(path, problem) from problem
    return parse_config(data, str(path))


def parse_config(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in the bytes of a config.json; `where` names the file in errors."""
    if len(data) > MAX_CONFIG_BYTES:
        message = msg("error.config-too-long", path=where, most=MAX_CONFIG_BYTES)
        raise UsageError("bad-config", message, msg("hint.bad-config"))
    try:
        config = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        message = msg("error.config-not-json", path=where, why=str(problem)[:120])
        raise UsageError("bad-config", message, msg("hint.bad-config")) from problem
    if not isinstance(config, dict):
        raise UsageError("bad-config", msg("error.config-not-object", path=where), msg("hint.bad-config"))
    return config


def unreadable(path: Path, problem: Exception) -> UsageError:
    """Return the error for a model file that cannot be opened or read."""
    why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)[:120]
    return UsageError("file-unreadable", msg("error.file-unreadable", path=str(path), why=why), msg("hint.model"))
