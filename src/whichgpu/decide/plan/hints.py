"""What to start the fleet with: counts, tensor-parallel size and largest batch, as vLLM, SGLang and SkyPilot take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

TOOLS = ("vllm", "sglang", "skypilot")
CLOUDS = ("aws", "azure", "gcp", "lambda", "runpod", "oci", "ibm", "vast", "nebius", "fluidstack", "paperspace", "cudo", "do")
PORT = 8000


@dataclass(frozen=True, slots=True)
class Hint:
    """One group of copies to start: the same whatever starts it."""

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
    earlier: dict[str, str] = field(default_factory=dict)  # by engine: which releases run there, where the present one does not

    def vllm(self) -> list[str]:
        """The command of one copy."""
        words = ["vllm", "serve", self.model, f"--tensor-parallel-size={self.tensor_parallel_size}"]
        words += [f"--max-num-seqs={self.max_num_seqs}", f"--max-model-len={self.max_model_len}"]
        if self.max_num_batched_tokens:
            words.append(f"--max-num-batched-tokens={self.max_num_batched_tokens}")
        if self.memory_share:
            words.append(f"--gpu-memory-utilization={self.memory_share:.2f}")
        return [*words, *_vllm_dtype(self.dtype)]

    def sglang(self) -> list[str]:
        """The command of one copy."""
        words = ["python", "-m", "sglang.launch_server", f"--model-path={self.model}", f"--tp={self.tensor_parallel_size}"]
        words += [f"--max-running-requests={self.max_num_seqs}", f"--context-length={self.max_model_len}"]
        if self.max_num_batched_tokens:
            words.append(f"--chunked-prefill-size={self.max_num_batched_tokens}")
        if self.memory_share:
            words.append(f"--mem-fraction-static={self.memory_share:.2f}")
        return [*words, *_sglang_dtype(self.dtype)]

    def skypilot(self) -> dict[str, Any]:
        """A service of SkyServe that keeps so many copies up."""
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
            **({"envs": {"VLLM_VERSION": ""}} if "vllm" in self.earlier else {}),
            "setup": self._setup(),
            "run": " ".join([*self.vllm(), f"--port={PORT}"]),
        }

    def _setup(self) -> str:
        """The present release, or the earlier one that whoever starts it names."""
        if "vllm" not in self.earlier:
            return "pip install vllm"
        return f'pip install "vllm==${{VLLM_VERSION:?the present release does not run on {self.gpu}: name an earlier one}}"'


def exported(tool: str, hints: Sequence[Hint]) -> dict[str, str]:
    """Files by name: a script of commands for an engine, a service each for SkyPilot."""
    if tool == "skypilot":
        return {f"{hint.group}.yaml": _remark(hint) + yaml(hint.skypilot()) for hint in hints}
    lines = ["#!/bin/sh", "# Each command is one copy; start it so many times, a load balancer in front."]
    for hint in hints:
        words = hint.vllm() if tool == "vllm" else hint.sglang()
        lines += [f"# {hint.copies} of these, each on {hint.gpus_per_copy}x {hint.gpu} ({hint.provider} {hint.instance})"]
        if tool in hint.earlier:
            lines += [f"# The present release does not run on {hint.gpu}, an earlier one did: {hint.earlier[tool]}"]
        lines += [" ".join(words)]
    return {f"{tool}.sh": "\n".join(lines) + "\n"}


def _remark(hint: Hint) -> str:
    return f"# vLLM: {hint.earlier['vllm']} Start it with --env VLLM_VERSION=…\n" if "vllm" in hint.earlier else ""


def yaml(value: dict[str, Any], depth: int = 0) -> str:
    """Plain YAML of nested mappings; strings are quoted as JSON, which YAML takes.

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


def _vllm_dtype(dtype: str) -> list[str]:
    names = {
        "bf16": ["--dtype=bfloat16"],
        "fp16": ["--dtype=float16"],
        "fp32": ["--dtype=float32"],
        "fp8": ["--quantization=fp8"],
    }
    return names.get(dtype, [])


def _sglang_dtype(dtype: str) -> list[str]:
    return _vllm_dtype(dtype)


SKY = {"a100-sxm-80gb": "A100-80GB", "a100-pcie-80gb": "A100-80GB", "a100-sxm-40gb": "A100", "a100-pcie-40gb": "A100"}


def _sky_gpu(gpu: str) -> str:
    """SkyPilot's name of a GPU: the family, which tells memory sizes apart for the A100 alone."""
    if gpu in SKY:
        return SKY[gpu]
    parts = gpu.split("-")
    if parts[0] == "rtx":
        return "".join([parts[0].upper(), *(part.upper() for part in parts[1:])])
    return parts[0].upper()
