"""Features a GPU lacks for a workload, each with a workaround, from `data/lacks.csv`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from whichgpu.base.bundled_data import data_rows
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import GIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.workload.workload import Workload

FOLDER = Path(__file__).parents[1] / "data"  # This is the data folder of `decide`.
SMALL_MEMORY = 17 * GIB  # Bytes; slightly over 16 GiB, to include all cards sold as 16 GB.


def missing_support(gpu: Gpu, workload: Workload, language_model: bool) -> tuple[Message, ...]:
    """Return a message for each feature that the workload needs and the GPU lacks, with a workaround."""
    last_pytorch = gpu.software.pytorch_last if gpu.software else None
    values = {"gpu": gpu.name, "memory": gpu.memory_label, "version": last_pytorch if gpu.software else ""}
    conditions = {"small": gpu.memory_marketed_bytes <= SMALL_MEMORY, "old": last_pytorch not in (None, "current")}
    messages = []
    for row in _table():
        if row["task"] and (row["task"] == "train") != workload.training:
            continue
        if row["language_model"] == "yes" and not language_model:
            continue
        if row["when"].startswith("no-") and row["when"].removeprefix("no-") in gpu.supports:
            continue
        if conditions.get(row["when"], True):
            id = row["id"]
            messages.append(msg(f"lacks.{id}", **values))
    return tuple(messages)


def missing_support_sources(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the ids of the source documents that state the missing features of these messages."""
    ids = {one.id.removeprefix("lacks.") for one in messages}
    return tuple(name for row in _table() if row["id"] in ids for name in row["sources"].split(";") if name)


@cache
def _table() -> tuple[dict[str, str], ...]:
    return data_rows(FOLDER / "lacks.csv")
