"""Text of launch files: comments and YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def comments(lines: Sequence[str]) -> str:
    """Return lines as comments; a line break in a name must not end its comment."""
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def sbatch_head(name: str, nodes: int, gpus_per_node: int, others: Sequence[str] = ()) -> str:
    """Return the head of an sbatch script: one task on each node; `others` are more options of sbatch."""
    options = [f"--job-name={name}", f"--nodes={nodes}", "--ntasks-per-node=1", f"--gpus-per-node={gpus_per_node}", *others]
    return "#!/bin/bash\n" + "".join(f"#SBATCH {option}\n" for option in options)


SLURM_HEAD_ADDRESS = 'export HEAD_ADDRESS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


def yaml(value: Mapping[str, Any], depth: int = 0) -> str:
    """Format nested mappings as YAML, with strings quoted and lists written as in JSON.

    >>> print(yaml({"name": "a", "resources": {"ports": 8000, "use_spot": True}}), end="")
    name: "a"
    resources:
      ports: 8000
      use_spot: true
    """
    text = ""
    for name, item in value.items():
        start = "  " * depth + f"{name}:"
        text += f"{start}\n{yaml(item, depth + 1)}" if isinstance(item, dict) else f"{start} {json.dumps(item)}\n"
    return text
