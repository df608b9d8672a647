"""The fitted numbers of the curves: one flat mapping, with what it was fitted on."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from whichgpu.base.bundled_data import read_data

DATA_FILE = Path(__file__).parent.parent / "data" / "calibration.json"


@cache
def parameters() -> dict[str, float]:
    """Every number, by name."""
    numbers: dict[str, Any] = json.loads(read_data(DATA_FILE))["parameters"]
    return {name: float(value) for name, value in numbers.items()}
