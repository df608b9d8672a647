"""Bytes that a training run reads and writes on disk: published weights and checkpoints."""

from __future__ import annotations

from whichgpu.decide.launch.disk import disk_gb, published_bytes
from whichgpu.decide.launch.train.options import TrainOptions
from whichgpu.workload.parameters import count_parameters

CHECKPOINTS = 2  # at once: the last one, and the one being written
# Bytes of a checkpoint per parameter: the model in fp32, which FULL_STATE_DICT writes twice, and Adam's two states.
CHECKPOINT_WIDTH, CHECKPOINT_MARGIN = 16, 1.2
DATA_BYTES = 50e9  # of a data set that the Hugging Face hub's cache holds beside the weights (assumed)
ADAPTER_BYTES = 2e9  # checkpoint of LoRA adapters of a high rank, with optimizer state (assumed)


def download_bytes(options: TrainOptions) -> int:
    """Return the bytes that a run may download: the published weights and a data set."""
    return int(published_bytes(options.shape) + DATA_BYTES)


def output_bytes(options: TrainOptions) -> float:
    """Return the bytes of the checkpoints that exist at once, with optimizer state."""
    if options.lora_rank:
        return CHECKPOINTS * ADAPTER_BYTES
    return CHECKPOINTS * CHECKPOINT_WIDTH * CHECKPOINT_MARGIN * count_parameters(options.shape).total


def node_disk_gb(options: TrainOptions) -> int:
    """Return the gigabytes of a node's disk: one node may have to hold the whole checkpoint."""
    return disk_gb(published_bytes(options.shape), output_bytes(options))
