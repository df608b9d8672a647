"""What a chosen GPU cannot do, and the way round it. The table `data/lacks.csv` says which and where it is documented."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from whichgpu.base.bundled_data import data_rows
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import GIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.workload.workload import Workload

FOLDER = Path(__file__).parents[1] / "data"
SMALL = 17 * GIB  # cards of 16 GB and less


def lacks(gpu: Gpu, workload: Workload, language_model: bool) -> tuple[Message, ...]:
    """Each thing this GPU lacks that such work wants, with the way round it."""
    said = []
    for row in _table():
        if row["task"] and (row["task"] == "train") != workload.training:
            continue
        if row["language_model"] == "yes" and not language_model:
            continue
        if row["when"].startswith("no-") and row["when"].removeprefix("no-") in gpu.supports:
            continue
        if row["when"] == "small" and gpu.memory_marketed_bytes > SMALL:
            continue
        if row["when"] == "old" and not _old(gpu):
            continue
        values = {"gpu": gpu.name, "memory": gpu.memory_label, "version": gpu.software.pytorch_last if gpu.software else ""}
        id = row["id"]
        said.append(msg(f"lacks.{id}", **values))
    return tuple(said)


def _old(gpu: Gpu) -> bool:
    """Whether the newest PyTorch leaves it out."""
    last = gpu.software.pytorch_last if gpu.software else None
    return last not in (None, "current")


def lacks_sources(said: Sequence[Message]) -> tuple[str, ...]:
    """The documents behind such lines."""
    ids = {one.id.removeprefix("lacks.") for one in said}
    return tuple(name for row in _table() if row["id"] in ids for name in row["sources"].split(";") if name)


@cache
def _table() -> tuple[dict[str, str], ...]:
    return data_rows(FOLDER / "lacks.csv")
