"""Versions of installed frameworks from their metadata; none is imported, since that could fail or allocate GPU memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import msgspec

from whichgpu.measure.files import read_text

# Names of the packages to look for.
PACKAGES = (
    "torch torchvision torchaudio pytorch-triton triton tensorflow tensorflow-macos tensorflow-metal jax jaxlib flax mxnet "
    "cupy-cuda11x cupy-cuda12x cupy-cuda13x numba numba-cuda mlx vllm sglang tensorrt tensorrt-llm llama-cpp-python onnxruntime "
    "onnxruntime-gpu transformers diffusers accelerate peft deepspeed megatron-core lightning pytorch-lightning timm "
    "sentence-transformers flash-attn flash-attn-3 flashinfer-python xformers bitsandbytes transformer-engine apex ray numpy "
    "jax-cuda12-plugin jax-cuda13-plugin nvidia-cudnn-cu11 nvidia-cudnn-cu12 nvidia-cudnn-cu13 nvidia-nccl-cu12 nvidia-nccl-cu13"
).split()
# Environment variables that limit visible GPUs; their values are private and not stored.
VISIBILITY = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_ASSIGNED = re.compile(r"^(cuda|hip)\s*(?::[^=\n]+)?=\s*['\"]([0-9][0-9.]*)[^'\"]*['\"]", re.MULTILINE)
_VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?")


class InstalledSoftware(msgspec.Struct, frozen=True):
    """Versions of what is installed; `torch_cuda` and `torch_rocm` say what PyTorch was built for."""

    packages: Mapping[str, str]
    torch_cuda: str | None
    torch_rocm: str | None
    cuda_toolkit: str | None
    hidden_by: tuple[str, ...]  # variables that are set and limit which GPUs programs see
    hides_all: bool  # whether one of these variables hides all GPUs


def read_software(
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
    version: Callable[[str], str] = metadata.version,
    torch_file: Path | None = None,
) -> InstalledSoftware:
    """Return the versions of installed frameworks and of the CUDA toolkit; the parameters replace the system in tests."""
    environ = os.environ if environ is None else environ
    built_for = dict(_ASSIGNED.findall(read_text(torch_file or _torch_file()) or ""))
    limits = {name: environ[name] for name in VISIBILITY if name in environ and environ[name] != "all"}
    return InstalledSoftware(
        packages={name: installed for name in PACKAGES if (installed := _installed(name, version))},
        torch_cuda=built_for.get("cuda"),
        torch_rocm=built_for.get("hip"),
        cuda_toolkit=_toolkit(root, environ),
        hidden_by=tuple(limits),
        hides_all=any(value.strip().lower() in ("", "-1", "none", "void", "nodevfiles") for value in limits.values()),
    )


def _installed(name: str, version: Callable[[str], str]) -> str | None:
    try:
        text = version(name)
    except Exception:  # Broken metadata counts as not installed.
        return None
    return text if isinstance(text, str) and re.fullmatch(r"[\w.+!-]{1,64}", text) else None


def _torch_file() -> Path:
    """Return the path of PyTorch's version file; find_spec of a top-level package imports nothing."""
    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    return Path(spec.origin).parent / "version.py" if spec and spec.origin else Path("/nonexistent")


def _toolkit(root: Path, environ: Mapping[str, str]) -> str | None:
    folders = [Path(environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    for folder in (*folders, root / "usr/local/cuda"):
        for file in ("version.json", "version.txt"):
            text = read_text(folder / file) or ""
            at = text.find('"cuda"') if file.endswith("json") else 0
            if at >= 0 and (version := _VERSION.search(text, at)):
                return version[0]
    version = _VERSION.search(environ.get("CUDA_VERSION", ""))
    return version[0] if version else None
