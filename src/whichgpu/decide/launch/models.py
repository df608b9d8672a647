"""Names for launch files: a model's repository, file names, and engine releases that still run on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from re import sub
from typing import Any

from msgspec.structs import replace

from whichgpu.catalog.engines.engine import Engine, engine_support
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.model import model_key
from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.serve_command import serving_engines
from whichgpu.workload.decoding.speculative import Speculative
from whichgpu.workload.models import built_in_member, local_folder, own_name

# Images of https://hub.docker.com/r/pytorch/pytorch by the oldest compute capability they have kernels for (2026-11-17).
PYTORCH_IMAGES = (
    ((7, 5), "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"),
    ((5, 0), "pytorch/pytorch:2.9.1-cuda12.6-cudnn9-runtime"),
)
LONGEST_NAME = 40  # of a run in dstack, the shortest limit of the targets
ROCM_PYTORCH = "rocm/pytorch:latest"  # https://hub.docker.com/r/rocm/pytorch


def repository_of(model: str | Mapping[str, Any], catalog: Catalog, name: str | None = None) -> str:
    """Return the model's Hugging Face repository if the catalog knows one, else its name; `name` is that of the request.

    A model on this disk is named by the absolute path of its folder, from which engines load it.
    """
    bare = (name or model).removeprefix("hf:") if isinstance(model, str) else own_name(model)
    keys = {model_key(bare), model_key(built_in_member(bare, catalog) or bare)}
    for row in catalog.models:
        if keys & set(map(model_key, row.names)):
            repositories = [alias for alias in row.aliases if "/" in alias]
            if row.kind == "diffusion":  # The first owner's: others are deleted or not in the format of diffusers.
                keys.add(model_key(bare.rpartition("/")[2]))
            same = (one for one in repositories if keys & {model_key(one), model_key(one.rpartition("/")[2])})
            return next(same, next(iter(repositories), bare))
    return local_folder(bare) or bare


def with_repository(speculative: Speculative | None, catalog: Catalog) -> Speculative | None:
    """Return settings of speculative decoding with the Hugging Face repository of the draft model."""
    if speculative is None or not speculative.draft:
        return speculative
    return replace(speculative, draft=repository_of(speculative.draft, catalog))


def pytorch_image(gpu: Gpu) -> str:
    """Return the container image of PyTorch whose binaries run on a GPU; empty if none is known."""
    if gpu.vendor == "amd":
        return ROCM_PYTORCH
    capability = tuple(map(int, (gpu.compute_capability or "0").split(".")))
    return next((image for oldest, image in PYTORCH_IMAGES if capability >= oldest), "")


def file_name(text: str) -> str:
    """Return a text as a name for files and services: lower case letters, digits and dashes, first a letter, not too long.

    >>> file_name("Llama-3.1 8B")
    'llama-3-1-8b'
    >>> file_name("7B-Instruct-of-a-model-with-a-very-long-name-RTX-PRO-6000")
    'm-7b-instruct-of-a-g-name-rtx-pro-6000'
    """
    name = sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = name if name[:1].isalpha() else f"m-{name}"
    if len(name) <= LONGEST_NAME:
        return name
    half = (LONGEST_NAME - 1) // 2  # Both ends: the model, and the GPU with the group's number.
    return f"{name[:half].strip('-')}-{name[-half:].strip('-')}"


def earlier_releases(engines: Sequence[Engine], gpu: Gpu) -> dict[str, str]:
    """Return, by engine, notes on earlier releases that run on a GPU the present release does not support."""
    return {
        one.id: one.note or one.name for one in engines if one.id in serving_engines() and engine_support(one, gpu) == "earlier"
    }


def known_releases(engines: Sequence[Engine], gpu: Gpu) -> dict[str, str]:
    """Return, of the engines that need an earlier release on a GPU, the latest release that runs there, if it is known."""
    earlier = earlier_releases(engines, gpu)
    releases = {engine: engine_record(engine).serve.releases.get(gpu.compute_capability or "") for engine in earlier}
    return {engine: release for engine, release in releases.items() if release}
