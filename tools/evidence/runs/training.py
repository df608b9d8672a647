"""Published training runs on many GPUs with their layout: Megatron-Bridge's performance tables.

PYTHONPATH=src:tools python -m evidence.runs.training ../shared/truth
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from evidence.names import as_model, family, gpu_id, model_named, precision
from evidence.published import Published, published_row
from evidence.reasons import Reason
from whichgpu.catalog.evidence import Measurement

RACK_GPUS = 64  # GPUs of one NVL72 rack that a layout of powers of two uses; elsewhere NODE_GPUS share NVLink
NODE_GPUS = 8
# Gbit/s per GPU: ConnectX-7 in DGX H100, B200 and GB200 NVL72, ConnectX-8 in DGX B300 and GB300 NVL72 (NVIDIA's data sheets).
NETWORK_GBPS = {"h100-sxm": 400, "b200": 400, "gb200": 400, "b300": 800, "gb300": 800}
LORA_RANK = 32  # Megatron-Bridge's default, on all linear layers
# Its 25.09 page labels Llama rows BF16 whose model FLOP/s are 78% of an H100's bf16 peak, and those of FP8 two months later.
MISLABELLED = ("2025-09", "LLAMA")
MAX_STAGES = {"LLAMA3.1_405B": 126}  # chunks of layers that a request may state: at most one per layer


class TrainingRun(msgspec.Struct, frozen=True):
    """A published row with its layout as printed, and its measurement or the reason why it is left out."""

    row: Published
    layout: str
    result: Measurement | Reason

    @property
    def setting(self) -> tuple[str, ...]:
        """What was run, without release and layout: rows that differ only in these repeat one another."""
        row = self.row
        return row.gpu, str(row.gpus), row.model, row.precision, _section(row)


def training_runs(truth: Path) -> list[Measurement]:
    """Rows of the tables that the tool can estimate: of each setting the newest release and the oldest."""
    by_setting: dict[tuple[str, ...], list[TrainingRun]] = {}
    for run in read_runs(truth):
        if isinstance(run.result, Measurement):
            by_setting.setdefault(run.setting, []).append(run)
    chosen = [run for runs in by_setting.values() for run in _newest_and_oldest(runs)]
    return [run.result for run in sorted(chosen, key=lambda run: run.row.line) if isinstance(run.result, Measurement)]


def _newest_and_oldest(runs: list[TrainingRun]) -> list[TrainingRun]:
    dated = sorted(runs, key=lambda run: _release(run.row))
    return dated[:1] if len(dated) == 1 else [dated[0], dated[-1]]


def read_runs(truth: Path) -> Iterator[TrainingRun]:
    """Yield every row of Megatron-Bridge's tables."""
    with (truth / "public2" / "nemo_megatron_bridge_train.csv").open(newline="") as stream:
        for line, fields in enumerate(csv.DictReader(stream), start=2):
            row = published_row(line, fields)
            yield TrainingRun(row, fields["parallelism"], megatron_bridge(row, fields["parallelism"]))


def megatron_bridge(row: Published, layout: str) -> Measurement | Reason:
    """NVIDIA's tables: tokens/s per GPU at a global batch; distributed optimizer, sequence parallelism, balanced experts."""
    if not row.metric.startswith("tokens/s"):
        return Reason.TWIN
    if row.date == MISLABELLED[0] and row.model.startswith(MISLABELLED[1]):
        return Reason.SUSPICIOUS
    if "tokendrop" in row.model:
        return Reason.OTHER_WORK  # tokens beyond an expert's capacity are dropped
    gpu, model = gpu_id(row.gpu), model_named(row.source, row.model)
    dtype = precision(row.source, row.precision, row.gpu)
    for name in (gpu, model, dtype):
        if isinstance(name, Reason):
            return name
    degrees = {name: int(size) for name, size in re.findall(r"(TP|PP|CP|EP|VP|FSDP)(\d+)", layout)}
    tp, pp, cp = (degrees.get(name, 1) for name in ("TP", "PP", "CP"))
    micro, dp = int(row.noted(r"MBS (\d+)") or 0), row.gpus // (tp * pp * cp)
    if not (micro and row.batch and row.seq_in) or row.batch % (micro * dp):
        return Reason.NO_LAYOUT
    if degrees.get("VP", 1) * pp > MAX_STAGES.get(row.model, inf):
        return Reason.INEXPRESSIBLE  # embedding and loss count as layers there
    parallel: dict[str, Any] = {"dp": dp, "tp": tp, "pp": pp, "cp": cp, "sp": tp > 1}
    parallel |= {"ep": degrees.get("EP", 1), "chunks": degrees.get("VP", 1), "zero": 3 if degrees.get("FSDP") else int(dp > 1)}
    rack = str(gpu).startswith("gb")
    request: dict[str, Any] = {
        "task": "train", "model": as_model(str(model)), "gpu": gpu, "gpus": row.gpus,
        "nodes": max(1, row.gpus // (RACK_GPUS if rack else NODE_GPUS)), "precision": dtype, "batch": row.batch,
        "micro_batch": micro, "seq_in": row.seq_in, "engine": "ngc", "year": int(row.date[:4]), "attention": "flash",
        "optimizer": "adamw", "parallel": parallel, "network": "infiniband", "network_gbps": NETWORK_GBPS[str(gpu)],
    }  # fmt: skip
    if _section(row) == "LoRA":
        request |= {"task": "finetune", "lora_rank": LORA_RANK}
    seconds = row.batch * row.seq_in / (row.value * row.gpus)
    measured = Measurement(row.source, str(gpu), request, seconds, "train", row.trust, family(str(model)), row.line)
    return replace(measured, path=row.path, date=row.date)


def _section(row: Published) -> str:
    return row.noted(r"/ (\S+) Performance")


def _release(row: Published) -> tuple[int, ...]:
    """Release of the container, as numbers; the page of unreleased results comes first."""
    return tuple(map(int, re.findall(r"\d+", row.framework)))


def left_out(truth: Path) -> Counter[tuple[str, Reason]]:
    """Rows left out by file and reason; repeats of a setting over releases count as another metric of a run that is used."""
    runs = list(read_runs(truth))
    used = {one.row for one in training_runs(truth)}
    return Counter(
        ("nemo_megatron_bridge_train", run.result if isinstance(run.result, Reason) else Reason.TWIN)
        for run in runs
        if run.row.line not in used
    )


def main(truth: Path) -> None:
    """Print the rows used, by GPU and precision, and those left out, by reason."""
    used = Counter((row.source, row.gpu, str(row.request["precision"])) for row in training_runs(truth))
    for key, count in sorted(used.items()):
        print(*key, count, sep="\t")
    for (name, reason), count in sorted(left_out(truth).items()):
        print(name, f"left out: {reason}", count, sep="\t")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/truth"))
