"""MLPerf Training v5.1: throughput as submitters logged it.

PYTHONPATH=src:tools python -m evidence.runs.mlperf_training ../shared/truth

Minutes alone are no time of a step: how many samples reach the target depends on the batch. The logs leave the precision out:
Llama ran in fp8 on the H100, which has nothing narrower, and on AMD, whose fp4 recipe came with v6.0
(rocm.blogs.amd.com/artificial-intelligence/mlperf-training-v6.0). RetinaNet trains three of its backbone's five stages, the
others are frozen, which no request can state.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from evidence.names import family, gpu_id, model_named
from evidence.published import Published, published_row
from evidence.reasons import Reason
from whichgpu.catalog.evidence import Measurement

FILE = "mlperf_training_v5_1"
AMD_ENGINE, NVIDIA_ENGINE = "pytorch-compile", "ngc"  # AMD's container fuses kernels too, but is none of NVIDIA's
NODE_GPUS = 8
NETWORK_GBPS = 400  # per GPU: ConnectX-7 of Hopper systems (NVIDIA's data sheets)


def training_results(truth: Path) -> list[Measurement]:
    """The rows that the tool can estimate."""
    return [result for _, result in read_results(truth) if isinstance(result, Measurement)]


def read_results(truth: Path) -> list[tuple[Published, Measurement | Reason]]:
    """Every row with its measurement or the reason why it is left out."""
    with (truth / "public2" / f"{FILE}.csv").open(newline="") as stream:
        rows = [published_row(line, fields) for line, fields in enumerate(csv.DictReader(stream), start=2)]
    logged = {(row.path, row.model) for row in rows if row.metric.startswith("throughput")}
    return [(row, _result(row, (row.path, row.model) in logged)) for row in rows]


def _result(row: Published, logged: bool) -> Measurement | Reason:
    if row.model == "retinanet":
        return Reason.INEXPRESSIBLE
    if row.metric.startswith("minutes"):
        return Reason.TWIN if logged else Reason.NOT_A_TIME
    return _llama(row)


def _llama(row: Published) -> Measurement | Reason:
    """Llama 3.1 8B with the distributed optimizer; every GPU is a replica if the batch has a sample for each."""
    amd = row.gpu.startswith("AMD")
    if not amd and "H100" not in row.gpu:
        return Reason.NO_PRECISION
    if not row.batch or row.batch < row.gpus:
        return Reason.NO_LAYOUT  # several GPUs share a sample in a way that is not logged
    accumulation = 2 if amd else 1
    gpu, model = gpu_id(row.gpu), model_named(row.source, row.model)
    if isinstance(gpu, Reason):
        return gpu
    if isinstance(model, Reason):
        return model
    nodes = row.gpus // NODE_GPUS
    request: dict[str, Any] = {
        "task": "train", "model": model, "gpu": gpu, "gpus": row.gpus, "nodes": nodes, "precision": "fp8", "batch": row.batch,
        "micro_batch": row.batch // row.gpus // accumulation, "seq_in": row.seq_in, "year": int(row.date[:4]),
        "engine": AMD_ENGINE if amd else NVIDIA_ENGINE, "attention": "flash", "optimizer": "adamw",
        "parallel": {"dp": row.gpus, "zero": 1},
    }  # fmt: skip
    if nodes > 1:
        request |= {"network": "infiniband", "network_gbps": NETWORK_GBPS}
    measured = Measurement(row.source, gpu, request, row.batch / row.value, "train", row.trust, family(model), row.line)
    return replace(measured, path=row.path, date=row.date)


def main(truth: Path) -> None:
    """Print the rows used, by GPU and model, and those left out, by reason."""
    results = read_results(truth)
    used = Counter((one.gpu, str(one.request["model"])) for _, one in results if isinstance(one, Measurement))
    for key, count in sorted(used.items()):
        print(*key, count, sep="\t")
    for reason, count in Counter(one for _, one in results if isinstance(one, Reason)).most_common():
        print(f"left out: {reason}", count, sep="\t")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/truth"))
