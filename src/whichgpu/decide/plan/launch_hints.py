"""Commands and service files that launch a fleet with vLLM, SGLang or SkyPilot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from whichgpu.catalog.engines.registry import default_engine, engine_ids, engine_record

SKYPILOT = "skypilot"  # SkyPilot launches the default engine.
CLOUDS = ("aws", "azure", "gcp", "lambda", "runpod", "oci", "ibm", "vast", "nebius", "fluidstack", "paperspace", "cudo", "do")
PORT = 8000  # The engine listens on this port.


class Hint(msgspec.Struct, frozen=True):
    """Options to launch one group of equal replicas with (model, GPUs, lengths, batch): the same for vLLM, SGLang, SkyPilot."""

    group: str  # a name for files and services
    model: str
    copies: int
    gpu: str
    gpus_per_copy: int
    tensor_parallel_size: int
    max_num_seqs: int
    max_model_len: int
    max_num_batched_tokens: int | None
    dtype: str
    memory_share: float | None
    provider: str
    instance: str
    region: str
    spot: bool
    earlier: dict[str, str] = msgspec.field(default_factory=dict)  # earlier engine releases that run on the GPU, by engine

    def command(self, engine: str) -> list[str]:
        """Return the command line that launches one replica with an engine."""
        serve = engine_record(engine).serve
        options = {
            serve.tensor_parallel: self.tensor_parallel_size,
            serve.max_sequences: self.max_num_seqs,
            serve.context: self.max_model_len,
            serve.chunk: self.max_num_batched_tokens,
            serve.memory_share: f"{self.memory_share:.2f}" if self.memory_share else None,
        }
        words = [word.format(model=self.model) for word in serve.command.split()]
        words += [f"{option}={value}" for option, value in options.items() if option and value]
        return words + [option for precision, option in serve.precision.items() if precision == self.dtype]

    def skypilot(self) -> dict[str, Any]:
        """Return the specification of a SkyServe service that keeps the group's replicas running."""
        server = default_engine("serve")
        resources: dict[str, Any] = {"accelerators": f"{_sky_gpu(self.gpu)}:{self.gpus_per_copy}", "ports": PORT}
        if self.provider in CLOUDS:
            resources["cloud"] = self.provider
            if self.region:
                resources["region"] = self.region
        if self.spot:
            resources["use_spot"] = True
        return {
            "name": self.group,
            "service": {
                "readiness_probe": "/health",
                "replica_policy": {"min_replicas": self.copies, "max_replicas": self.copies},
            },
            "resources": resources,
            **({"envs": {_version(server): ""}} if server in self.earlier else {}),
            "setup": self._setup(server),
            "run": " ".join([*self.command(server), f"--port={PORT}"]),
        }

    def _setup(self, server: str) -> str:
        """Return shell commands that install the engine `server`: its present release, or one set by an environment variable."""
        package = engine_record(server).serve.package
        if server not in self.earlier:
            return f"pip install {package}"
        reason = f"the present release does not run on {self.gpu}: name an earlier one"
        return f'pip install "{package}==${{{_version(server)}:?{reason}}}"'


def tools() -> tuple[str, ...]:
    """Return the names of the engines whose command line is known, and SkyPilot."""
    return (*(id for id in engine_ids() if engine_record(id).serve.command), SKYPILOT)


def launch_files(tool: str, hints: Sequence[Hint]) -> dict[str, str]:
    """Return files by name: one script of commands for an engine, or one service per group for SkyPilot."""
    if tool == SKYPILOT:
        return {f"{hint.group}.yaml": _release_comment(hint) + yaml(hint.skypilot()) for hint in hints}
    lines = ["#!/bin/sh", "# Each command is one copy; start it so many times, a load balancer in front."]
    for hint in hints:
        lines += [f"# {hint.copies} of these, each on {hint.gpus_per_copy}x {hint.gpu} ({hint.provider} {hint.instance})"]
        if tool in hint.earlier:
            lines += [f"# The present release does not run on {hint.gpu}, an earlier one did: {hint.earlier[tool]}"]
        lines += [" ".join(hint.command(tool))]
    return {f"{tool}.sh": "\n".join(lines) + "\n"}


def _release_comment(hint: Hint) -> str:
    server = default_engine("serve")
    if server not in hint.earlier:
        return ""
    return f"# {engine_record(server).name}: {hint.earlier[server]} Start it with --env {_version(server)}=…\n"


def _version(server: str) -> str:
    """Return the name of the environment variable that selects an engine's release."""
    return f"{engine_record(server).serve.package.upper()}_VERSION"


def yaml(value: dict[str, Any], depth: int = 0) -> str:
    """Format nested mappings as YAML, with strings quoted as in JSON.

    >>> print(yaml({"name": "a", "resources": {"ports": 8000, "use_spot": True}}), end="")
    name: "a"
    resources:
      ports: 8000
      use_spot: true
    """
    import json

    text = ""
    for name, item in value.items():
        start = "  " * depth + f"{name}:"
        text += f"{start}\n{yaml(item, depth + 1)}" if isinstance(item, dict) else f"{start} {json.dumps(item)}\n"
    return text


SKYPILOT_GPUS = {"a100-sxm-80gb": "A100-80GB", "a100-pcie-80gb": "A100-80GB", "a100-sxm-40gb": "A100", "a100-pcie-40gb": "A100"}


def _sky_gpu(gpu: str) -> str:
    """Return SkyPilot's name for a GPU: its family, with the memory size for the A100 only."""
    if gpu in SKYPILOT_GPUS:
        return SKYPILOT_GPUS[gpu]
    return gpu.replace("-", "").upper() if gpu.startswith("rtx-") else gpu.partition("-")[0].upper()
