"""Whether deep-learning frameworks had a stable build for a GPU's vendor on a day."""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path

from whichgpu.base.bundled_data import data_rows
from whichgpu.catalog.gpu import Gpu

TABLE = Path(__file__).parent / "data" / "frameworks.csv"
CUDA = "cuda"
ALWAYS = "nvidia"  # This vendor is supported on every day, since all frameworks began with CUDA.


def runs_frameworks(gpu: Gpu, day: date) -> bool:
    """Return whether some framework had an official build for a GPU on a day.

    NVIDIA had them from the start; PyTorch came to ROCm with 1.8 (2021-03-04), to Metal with 1.12 (2022-05-18, announced),
    to Intel's GPUs with 2.5 (2024-10-25, announced).
    """
    first = _first().get(gpu.vendor)
    return first is not None and first <= day.isoformat() and (gpu.vendor == ALWAYS or "pytorch" in gpu.supports)


@cache
def _first() -> dict[str, str]:
    return {row["vendor"]: row["first"] for row in data_rows(TABLE)}
