"""MLPerf Inference: vendor-tuned runs, whose precision and batch are those of the submitters' configurations."""

from __future__ import annotations

import re

from evidence.names import reason_named, table
from evidence.published import Published
from evidence.reasons import Reason
from evidence.requests import measured
from whichgpu.catalog.evidence import Measurement


def mlperf(row: Published) -> Measurement | Reason:
    """Offline rates as large batches, single streams as one sample, multi-streams as eight; server runs are left out."""
    if "server" in row.metric:
        return Reason.LATENCY_BOUND
    entry = _entry(row)
    if entry is None:
        return Reason.UNKNOWN_NETWORK
    if entry["left_out"]:
        return reason_named(entry["left_out"])
    batch = int(entry["batch"])
    offline = row.metric.startswith("offline")
    more = {
        "batch": batch * row.gpus if offline else batch,
        "image": int(entry["image"]) if entry["image"] else None,
        "seq_in": int(entry["seq_in"]) if entry["seq_in"] else None,
    }
    seconds = batch * row.gpus / row.value if offline else row.value / 1e3
    return measured(row, "forward", seconds, model=entry["ours"], dtype=entry["precision"], more=more, throughput_only=offline)


def _entry(row: Published) -> dict[str, str] | None:
    for entry in table("mlperf"):
        if (
            row.model.startswith(entry["model"])
            and (not entry["batch"] or row.model == entry["model"])
            and entry["metric"] in row.metric
            and re.search(entry["gpu"], row.gpu)
        ):
            return entry
    return None
