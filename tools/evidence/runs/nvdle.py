"""NVIDIA/DeepLearningExamples: tables of many READMEs, each with its own network, sizes and units.

`nvdle.csv` states what was run for each network and task: facts of the READMEs and of the benchmark scripts they name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from evidence.names import Software, precision, reason_named, table
from evidence.published import Published
from evidence.reasons import Reason
from evidence.requests import measured
from whichgpu.catalog.evidence import Kind, Measurement

_SHORT = {"amp-fp16": "amp", "amp-bf16": "amp", "fp16": "amp", "tf32": "tf32", "fp32": "fp32"}

Result = tuple[Published, Measurement | Reason]


def read(rows: Iterable[Published]) -> Iterator[Result]:
    """Every row with its measurement or the reason why it is left out; of two metrics of one run only the preferred is used."""
    pairs = list(_with_occurrence(rows))
    results = [(row, run, _read(row, nth)) for row, run, nth in pairs]
    used = {run for _, run, result in results if isinstance(result, Measurement)}
    for row, run, result in results:
        yield row, Reason.TWIN if result is Reason.NOT_A_TIME and run in used else result


def _with_occurrence(rows: Iterable[Published]) -> Iterator[tuple[Published, tuple[object, ...], int]]:
    """Each row with its run, and which of several equally described tables it belongs to."""
    occurrences: Counter[tuple[object, ...]] = Counter()
    for row in rows:
        described = (row.model, row.task, row.gpu, row.gpus, row.precision.lower(), row.batch, row.seq_in, row.notes)
        occurrences[(*described, row.metric)] += 1
        nth = occurrences[(*described, row.metric)]
        yield row, (*described, nth), nth


def _read(row: Published, nth: int) -> Measurement | Reason:
    entry = _entry(row, nth)
    if entry is None:
        return Reason.UNKNOWN_NETWORK
    if entry["left_out"]:
        return reason_named(entry["left_out"])
    dtype = precision("nv-dle", row.precision, row.gpu, row.model, row.task)
    if isinstance(dtype, Reason):
        return dtype
    batch = row.batch or _batches(entry).get(_SHORT[dtype])
    if not batch:
        return Reason.NO_BATCH
    seconds = _seconds(row, entry, batch)
    if seconds is None:
        return Reason.NOT_A_TIME
    kind: Kind = "train" if row.task == "train" else "forward"
    return measured(
        row,
        kind,
        seconds,
        model=entry["model"],
        dtype=dtype,
        run_by=Software(entry["engine"], int(entry["year"]), _layout(entry, dtype)),
        more=_more(row, entry, batch, kind),
    )


def _entry(row: Published, nth: int) -> dict[str, str] | None:
    for entry in table("nvdle"):
        if (
            row.model.startswith(entry["network"])
            and entry["task"] in ("", row.task)
            and re.search(entry["where"], f"{row.notes}; {row.gpu}")
            and entry["nth"] in ("", str(nth))
        ):
            return entry
    return None


def _batches(entry: dict[str, str]) -> dict[str, int]:
    return {name: int(size) for name, size in (pair.split("=") for pair in entry["batches"].split())}


def _layout(entry: dict[str, str], dtype: str) -> str:
    if not entry["image"]:
        return ""
    return "channels_last" if _SHORT[dtype] in entry["nhwc"].split() else "contiguous"


def _more(row: Published, entry: dict[str, str], batch: int, kind: Kind) -> dict[str, Any]:
    more: dict[str, Any] = {"batch": batch}
    if entry["image"]:
        more["image"] = int(entry["image"])
    if entry["seq_in"]:
        more["seq_in"] = row.seq_in if entry["seq_in"] == "row" else int(entry["seq_in"])
    if kind == "train":
        more |= {"include_optimizer_step": False} if entry["optimizer"] == "none" else {"optimizer": entry["optimizer"]}
    return more


def _seconds(row: Published, entry: dict[str, str], batch: int) -> float | None:
    """Seconds of one batch; None if the run's other metric is to be read."""
    latency = row.metric.startswith("latency")
    if (entry["prefer"] or "throughput") != ("latency" if latency else "throughput"):
        return None
    if latency:
        return row.value * (1.0 if row.metric.endswith(" s") else 1e-3)
    return batch / row.value
