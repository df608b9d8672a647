"""Command line of torchrun, PyTorch's launcher."""

from __future__ import annotations

from whichgpu.decide.launch.placement import Placement
from whichgpu.decide.launch.text import NodeWord

RENDEZVOUS_PORT = 29500  # torchrun's default


def torchrun_words(place: Placement) -> list[str]:
    """Return the launcher's words: one process per GPU, and the meeting point of several nodes."""
    words = ["torchrun", f"--nnodes={place.nodes}", f"--nproc-per-node={place.gpus_per_node}"]
    if place.nodes > 1:
        words += ["--rdzv-backend=c10d", NodeWord(f"--rdzv-endpoint=$HEAD_ADDRESS:{RENDEZVOUS_PORT}")]
    return words
