"""The curves' fitted parameters: one flat mapping from name to number."""

from __future__ import annotations

import json
from functools import cache

from whichgpu.base.bundled_data import read_data
from whichgpu.estimate.time import calibration

DATA_FILE = calibration.DATA_FILE


@cache
def parameters() -> dict[str, float]:
    """Return every parameter of the calibration file by name."""
    return {name: float(value) for name, value in json.loads(read_data(DATA_FILE))["parameters"].items()}
