"""Measured rows on several GPUs as requests with their layout and machine.

PYTHONPATH=src:tools python -m evidence.group_rows ../shared/truth
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from evidence.fits_in_memory import max_sequences
from evidence.language import tensorrt_llm_max_load
from evidence.names import gpu_id, model_named, table
from evidence.published import Published, read_published
from evidence.reasons import Reason
from evidence.rows import read_all
from whichgpu.catalog.evidence import Measurement

NODE_GPUS = 8  # GPUs per node of the measured machines, unless stated otherwise
ACTIVATION_HEADROOM = 1.5  # assumed: engines of 2023 also reserved memory for the activations of the longest prompts
DATA_PARALLEL_SOURCES = ("nv-dle", "mlperf-inf")
# nv-dle's pre-training runs accumulate gradients over many micro-batches and reduce them in every one.
_REPLICAS = re.compile(r"(\d+) replica\(s\) x TP(\d+) PP(\d+)")


def group_rows(truth: Path) -> list[Measurement]:
    """Every step on several GPUs that the tool can estimate: published rows, each with its layout."""
    layouts = _stated_layouts(truth)
    rows = []
    for read in read_all(truth):
        if read.row.gpus < 2:
            continue
        result = foundry(read.row) if read.row.source == "llm-foundry" else read.result
        if isinstance(result, Measurement):
            measurement = with_layout(read.row, result, layouts[read.row.line])
            if isinstance(measurement, Measurement):
                rows.append(measurement)
    return rows


def loaded_rows(truth: Path) -> list[Measurement]:
    """TensorRT-LLM's tables at maximum load on several GPUs, with the largest batch that fits; not in the table."""
    rows = [row for row in read_published(truth / "public" / "calibration.csv") if row.source == "trtllm" and row.gpus > 1]
    return [_tensor(result, row.gpus) for row in rows if isinstance(result := tensorrt_llm_max_load(row), Measurement)]


def with_layout(row: Published, result: Measurement, stated: str) -> Measurement | Reason:
    """The request with the layout that the source ran, and its machine if that is unusual."""
    request: dict[str, Any] = {**result.request}
    if row.source == "ryujaehun":
        if row.gpus == 4 and row.gpu.startswith("Titan Xp") and row.precision == "fp32":
            return Reason.SUSPICIOUS  # every network takes three times as long as on three GPUs
        request["parallel"] = {"dp": row.gpus, "threads": True}
    elif row.source in DATA_PARALLEL_SOURCES:
        request["parallel"] = {"dp": row.gpus}
        if row.source == "nv-dle":
            return _nv_dle(row, result, request)
        if not row.metric.startswith("offline"):
            return Reason.OTHER_WORK  # one stream uses one GPU
    elif row.source == "llm-foundry":
        pass
    elif row.source == "cloudrift":
        match = _REPLICAS.search(stated)
        if not match:
            return Reason.OTHER_WORK
        copies, tensor, stages = map(int, match.groups())
        request["parallel"] = {"dp": copies, "tp": tensor, "pp": stages}
    else:
        if row.source == "splitwise" and not _fits(row, request):
            return Reason.QUEUED
        return _with_host_speed(_tensor(result, row.gpus))
    return replace(result, request=request)


def _tensor(result: Measurement, gpus: int) -> Measurement:
    return replace(result, request={**result.request, "parallel": {"tp": gpus}})


def _with_host_speed(result: Measurement) -> Measurement:
    """Add the speed of the host's processor, if the machine is known and launch overhead took most of the time."""
    hosts = [row for row in table("group_hosts") if (row["source"], row["gpu"]) == (result.source, result.gpu)]
    return replace(result, request={**result.request, "host_speed": float(hosts[0]["host_speed"])}) if hosts else result


def _fits(row: Published, request: Mapping[str, Any]) -> bool:
    """Whether the whole batch fitted in memory at once."""
    model = model_named(row.source, row.model)
    if isinstance(model, Reason):
        return False
    tokens = (row.seq_in or 0) + (row.seq_out or 0)
    return max_sequences(model, str(request["gpu"]), "fp16", tokens, "", row.gpus) >= ACTIVATION_HEADROOM * int(request["batch"])


def _nv_dle(row: Published, result: Measurement, request: dict[str, Any]) -> Measurement:
    """NVIDIA's examples: a batch that is not printed is per GPU; 16 V100 are a DGX-2, more than eight A100 several nodes."""
    seconds = result.seconds
    if not row.batch:
        request["batch"] = int(request["batch"]) * row.gpus
        seconds *= row.gpus
    if "DGX-2" in row.notes or (row.gpus == 16 and "V100" in row.gpu):
        request["interconnect"] = "nvswitch"
    elif row.gpus > NODE_GPUS:
        request["nodes"] = row.gpus // NODE_GPUS
    return replace(result, request=request, seconds=seconds)


def foundry(row: Published) -> Measurement | Reason:
    """MosaicML's tables: MPT under FSDP in bf16, which shards everything and reduces gradients in 16 bits.

    Composer trains with PyPI's PyTorch: its GEMMs and pointwise kernels are those of eager PyTorch, its attention is fused.
    """
    sizes = next((entry for entry in table("mpt") if entry["model"] == row.model), None)
    gpu = gpu_id(row.gpu)
    if sizes is None or isinstance(gpu, Reason) or not row.batch or not row.seq_in:
        return Reason.UNKNOWN_NETWORK
    config = {
        "model_type": "mpt", "d_model": int(sizes["hidden"]), "n_layers": int(sizes["layers"]), "n_heads": int(sizes["heads"]),
        "vocab_size": 50368, "max_seq_len": row.seq_in, "expansion_ratio": 4,
    }  # fmt: skip
    request: dict[str, Any] = {
        "task": "train", "model": config, "gpu": gpu, "gpus": row.gpus, "nodes": max(1, row.gpus // NODE_GPUS),
        "precision": "bf16", "batch": row.batch, "seq_in": row.seq_in,
        "accumulation": int(row.noted(r"gradaccum=(\d+)")), "engine": "pytorch",
        "year": 2023, "attention": "flash", "checkpointing": "full" if "act_ckpt=True" in row.notes else "none",
        "optimizer": "adamw", "parallel": {"dp": row.gpus, "zero": 3}, "network": "roce", "network_gbps": 200,
    }  # fmt: skip
    seconds = row.batch * row.seq_in / row.value
    return Measurement(row.source, gpu, request, seconds, "train", row.trust, "mpt", row.line)


def _stated_layouts(truth: Path) -> dict[int, str]:
    with (truth / "public" / "calibration.csv").open(newline="") as stream:
        return {line: fields["parallelism"] for line, fields in enumerate(csv.DictReader(stream), start=2)}


def main(truth: Path) -> None:
    """Print the number of rows by source, kind and number of GPUs."""
    counts = Counter((row.source, row.gpu, row.request["gpus"], row.kind) for row in group_rows(truth))
    for (source, gpu, gpus, kind), count in sorted(counts.items()):
        print(source, gpu, gpus, kind, count, sep="\t")
    print("at maximum load", len(loaded_rows(truth)), sep="\t")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/truth"))
