"""Reading of small system files and of vendor tools' output; both may be missing."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

MAX_FILE_BYTES = 64 << 10  # Bytes read by default (assumed; files under /sys hold one page).
TOOL_SECONDS = 20  # Seconds that a vendor tool may take (assumed).

Run = Callable[[Sequence[str]], str | None]
_PAIR = re.compile(r"^(\w+)[ \t:]+(-?\d+)\b", re.MULTILINE)


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES) -> str | None:
    """Return the text of a file without surrounding whitespace; None if it is unreadable."""
    try:
        with open(path, "rb") as file:
            return file.read(max_bytes).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return None


def read_number(path: Path) -> int | None:
    """Return the integer in a file, or None."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def named_numbers(text: str) -> dict[str, int]:
    """Return numbers by name from lines such as `MemTotal:  1024 kB`.

    >>> named_numbers("MemTotal:   1024 kB\\ngfx_target_version 90402\\n")
    {'MemTotal': 1024, 'gfx_target_version': 90402}
    """
    return {name: int(number) for name, number in _PAIR.findall(text)}


def run_tool(command: Sequence[str]) -> str | None:
    """Return the standard output of a program; None if it is missing or fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TOOL_SECONDS, check=False, start_new_session=True
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
