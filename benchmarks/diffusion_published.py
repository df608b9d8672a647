"""Seconds a picture that OneDiff and MLPerf publish, beside today's estimates.

    PYTHONPATH=src:tools python -m benchmarks.diffusion_published [FOLDER] > docs/evidence/diffusion-published.md

FOLDER has public/calibration.csv and public2/onediff_diffusion.csv; default ../shared/truth.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.catalog.store import Catalog
from whichgpu.workload.spelling import from_object

ROOT = Path(__file__).resolve().parent.parent
STEPS = 20  # of OneDiff's commands for these models and of MLPerf's rules for SDXL
ONEDIFF_MODELS = {"sd2": "stable-diffusion-2.1", "pixart": "pixart-sigma"}
GPUS = {
    "A100-PCIE-40GB": "a100-pcie-40gb",
    "A800-SXM4-80GB": "a800-sxm-80gb",
    "H800-NVL-80GB": "h800-pcie",
    "H100 PCIe 80GB": "h100-pcie",
    "H100 SXM 80GB": "h100-sxm",
    "GH200 96GB": "gh200-96gb",
    "H200 SXM 141GB": "h200-sxm",
    "NVIDIA H200-SXM-141GB": "h200-sxm",
    "NVIDIA H200-NVL-141GB": "h200-nvl",
    "L40S 48GB": "l40s",
    "L4 24GB": "l4",
    "RTX 4090 24GB": "rtx-4090",
    "RTX 4090": "rtx-4090",
    "RTX 3090": "rtx-3090",
}
SMALL_GPUS = ("l40s", "l4")  # NVIDIA's configuration makes one picture at a time on these
EAGER, COMPILED, REFERENCE = "OneDiff's baseline, PyTorch", "OneDiff", "MLPerf v4.0, reference in PyTorch"
OFFLINE, OFFLINE_V5, SINGLE = "MLPerf v4.0, TensorRT", "MLPerf v5.0, TensorRT", "MLPerf v4.0, TensorRT, one at a time"
INTRODUCTION = """# Pictures, published and estimated

Made by `python -m benchmarks.diffusion_published`. Seconds a picture (text encoders, 20 denoising steps with guidance, VAE) as
OneDiff and MLPerf Inference publish them, beside the estimate. No row of a diffusion model is in the evidence that the model of
time was fitted on, so each of these estimates is of a group of rows that the fit never saw; the GPUs themselves are in it with
other networks, except for the H800 and the A800. OneDiff's "H800-NVL-80GB" is taken for the H800 PCIe. One constant
was read from rows of Stable Diffusion 2.1 here and of an H200: the host's cost of a call in a UNet (x 1.5).

- OneDiff (2024, fp16, one picture): its PyTorch baseline is eager, in the default memory format. Its own compiler is no engine
  here; the estimate beside it is that of `torch.compile`, so the difference is also that between the two compilers.
- MLPerf's reference (v4.0) is diffusers in fp16 under PyTorch 2.1, one picture at a time; the 90th percentile is published.
- MLPerf's submissions with TensorRT: medians of the submitters' results per GPU, offline unless the line says otherwise. Batch
  and precision are those of NVIDIA's published configuration: int8 in v4.0, fp8 in v5.0.

Left out: Latte, a video network that is not known here; MLPerf's rows of an MI325X and of a TPU v6e, whose precision and batch
are not published with them; and rows of servers, whose rate is limited by a latency.
"""
CONCLUSION = """
The goal is a median of 20%: eager PyTorch is inside it, TensorRT in 8 bits is not. There the model gives GEMMs and convolutions
of the UNet the share of the 8-bit peak that ResNet-50 and language models reach, and these runs do not come near it on any GPU.
NVIDIA's published scripts explain little of it: they quantise convolutions and linear layers, as the estimate assumes, and run
the VAE of v4.0 in fp32, which the estimate has in 16 bits. The kernels are closed; no run in 16 bits is published.
"""


class PictureTime(msgspec.Struct, frozen=True):
    """Published seconds of a picture and the request for its estimate."""

    source: str
    gpu: str
    seconds: float
    request: dict[str, Any]


def onediff(folder: Path) -> Iterator[PictureTime]:
    """Yield OneDiff's seconds a picture, of its baseline and of its compiler."""
    for row in _rows(folder / "public2" / "onediff_diffusion.csv"):
        if row["metric"].endswith("E2E time") and row["model"] in ONEDIFF_MODELS:
            compiled = row["metric"].startswith("OneDiff")
            engine = {"engine": "pytorch-compile"} if compiled else {"engine": "pytorch", "memory_format": "contiguous"}
            image = int(row["seq_in"].partition("x")[0])
            request = {"model": ONEDIFF_MODELS[row["model"]], "image": image, "precision": "fp16", "batch": 1, **engine}
            yield PictureTime(COMPILED if compiled else EAGER, GPUS[row["gpu"]], float(row["value"]), request)


def mlperf(folder: Path) -> Iterator[PictureTime]:
    """Yield MLPerf's seconds a picture of SDXL on one GPU."""
    files = folder / "public" / "calibration.csv", folder / "public2" / "mlperf_inference_v5_0.csv"
    for row in (row for file in files for row in _rows(file)):
        if row["source"] != "mlperf-inf" or row["model"] != "stable-diffusion-xl" or row["gpu"] not in GPUS:
            continue
        gpu, metric, newer = GPUS[row["gpu"]], row["metric"], "v5.0" in row["framework"]
        one_at_a_time = "single-stream" in metric
        if "reference" in row["framework"]:
            source, more = REFERENCE, {"engine": "pytorch", "memory_format": "contiguous", "precision": "fp16", "batch": 1}
        else:
            batch = 1 if one_at_a_time or gpu in SMALL_GPUS else 32 if newer else 8
            source = OFFLINE_V5 if newer else SINGLE if one_at_a_time else OFFLINE
            more = {"engine": "tensorrt", "precision": "fp8" if newer else "int8", "batch": batch}
        request = {"model": "stable-diffusion-xl", "image": 1024, **more}
        if one_at_a_time:
            yield PictureTime(source, gpu, float(row["value"]) / 1e3, request)
        elif source != REFERENCE and (metric.startswith("offline") or row["task"] == "infer-offline"):
            yield PictureTime(source, gpu, int(row["n_gpus"]) / float(row["value"]), request)


def page(folder: Path) -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION
    yield "| source | GPU | model, pixels | engine, precision, batch | rows | measured, s | estimated, s | error | inside |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    groups: dict[tuple[str, str, str], list[PictureTime]] = {}
    for one in (*onediff(folder), *mlperf(folder)):
        groups.setdefault((one.source, one.gpu, f"{one.request['model']}, {one.request['image']}"), []).append(one)
    lookups, errors = lookup_cache(Catalog(), own=False), dict[str, list[float]]()
    for (source, gpu, model), times in groups.items():
        seconds, request = median(one.seconds for one in times), times[0].request
        answer = estimate_workload(
            from_object({"task": "batch", "gpu": gpu, "denoising_steps": STEPS, "year": 2024, **request}), lookups
        )
        assert answer.time is not None
        batch = request["batch"]
        error = answer.time.value / batch / seconds - 1
        errors.setdefault(source, []).append(abs(error))
        inside = "yes" if answer.time.low <= seconds * batch <= answer.time.high else "no"
        run = f"{request['engine']}, {request['precision']}, {batch}"
        figures = f"{len(times)} | {seconds:.3f} | {answer.time.value / batch:.3f} | {error:+.0%} | {inside}"
        yield f"| {source} | {gpu} | {model} | {run} | {figures} |"
    yield "\n| source | lines | median error |\n| --- | --- | --- |"
    for source, found in errors.items():
        yield f"| {source} | {len(found)} | {median(found):.0%} |"
    yield CONCLUSION.rstrip()


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)


if __name__ == "__main__":
    print("\n".join(page(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared" / "truth")))
