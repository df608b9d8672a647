"""The fitted numbers of the curves: one flat mapping, with what it was fitted on."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

DATA_FILE = Path(__file__).parent.parent / "data" / "calibration.json"


@cache
def parameters() -> dict[str, float]:
    """Every number, by name."""
    numbers: dict[str, Any] = json.loads(DATA_FILE.read_text(encoding="utf-8"))["parameters"]
    return {name: float(value) for name, value in numbers.items()}
