"""Bytes that a training run reads and writes on disk: published weights and checkpoints."""

from __future__ import annotations

from whichgpu.decide.launch.disk import disk_gb
from whichgpu.decide.launch.train.options import TrainOptions
from whichgpu.estimate.memory.training.optimizer import ADAFACTOR, EIGHT_BIT, STATES
from whichgpu.workload.parameters import count_parameters

PUBLISHED_WIDTH = 2  # bytes of a published weight, in bf16
CHECKPOINTS = 2  # at once: the last one, and the one being written
DATA_BYTES = 50e9  # of a data set that the Hugging Face hub's cache holds beside the weights (assumed)
ADAPTER_BYTES = 2e9  # checkpoint of LoRA adapters of a high rank, with optimizer state (assumed)


def weight_bytes(options: TrainOptions) -> float:
    """Return the bytes of the published weights."""
    return float(PUBLISHED_WIDTH * count_parameters(options.shape).total)


def download_bytes(options: TrainOptions) -> int:
    """Return the bytes that a run may download: the published weights and a data set."""
    return int(weight_bytes(options) + DATA_BYTES)


def output_bytes(options: TrainOptions) -> float:
    """Return the bytes of the checkpoints that exist at once, with optimizer state."""
    if options.lora_rank:
        return CHECKPOINTS * ADAPTER_BYTES
    width = 2 if options.precision in ("bf16", "fp16") else 4
    state = {"adamw-8bit": EIGHT_BIT, "adafactor": ADAFACTOR * width}.get(options.optimizer)
    state = STATES[options.optimizer] * width if state is None else state
    return CHECKPOINTS * (width + state) * count_parameters(options.shape).total


def node_disk_gb(options: TrainOptions) -> int:
    """Return the gigabytes of a node's disk: one node may have to hold the whole checkpoint."""
    return disk_gb(weight_bytes(options), output_bytes(options))
