"""Machines that launch files are for: GPUs, nodes, and the offer they are rented by."""

from __future__ import annotations

import msgspec


class Placement(msgspec.Struct, frozen=True):
    """Equal nodes with GPUs, and the offer they belong to; provider, instance and region are empty without one."""

    gpu: str
    vendor: str
    nodes: int
    gpus_per_node: int
    provider: str
    instance: str
    region: str
    is_spot: bool
