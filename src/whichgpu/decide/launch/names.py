"""Names that launch targets have for GPUs, clouds and regions, from `data/launch_gpus.csv` and `data/launch_providers.csv`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from whichgpu.base.bundled_data import data_rows, parse_record
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.launch.placement import Placement

FOLDER = Path(__file__).parent.parent / "data"
ALL_REGIONS = "*"


class GpuName(msgspec.Struct, frozen=True):
    """A target's name for a GPU, in machines of these providers (all if empty) whose names start with `instance`."""

    target: str
    providers: tuple[str, ...]
    instance: str
    gpu: str
    name: str

    def applies(self, place: Placement) -> bool:
        """Whether it is the name of the GPUs in these machines."""
        return (not self.providers or place.provider in self.providers) and place.instance.startswith(self.instance)


class ProviderName(msgspec.Struct, frozen=True):
    """A target's name for a provider, and the regions it knows there: `*` for all, none if it names them otherwise."""

    target: str
    provider: str
    name: str
    regions: tuple[str, ...]


def gpu_name(target: str, place: Placement) -> str:
    """Return a target's name for the GPUs of some machines; raise an error if it has none."""
    name = known_gpu_name(target, place)
    if name is None:
        gpu = f"{place.gpu} ({place.provider})" if provider_name(target, place) else place.gpu
        raise UsageError("emit-name", msg("error.emit-name", target=target, gpu=gpu), msg("hint.emit-name"))
    return name


def known_gpu_name(target: str, place: Placement) -> str | None:
    """Return a target's name for the GPUs of some machines, None if it has none.

    Machines of a provider that the target does not rent from have the GPU's first name there.
    """
    rents = provider_name(target, place) is not None
    names = _gpu_names()[target].get(place.gpu, ())
    return next((one.name for one in names if one.applies(place) or not (rents or one.instance)), None)


def provider_name(target: str, place: Placement) -> ProviderName | None:
    """Return a target's name for the provider of some machines; None if it does not rent from it."""
    return _providers()[target].get(place.provider)


def region_of(target: str, place: Placement) -> str:
    """Return the region that a target's file names; empty if there is none or the target names it otherwise."""
    provider = provider_name(target, place)
    return place.region if provider and provider.regions else ""


def region_notes(target: str, place: Placement) -> list[str]:
    """Return what to do about a region that a target does not know by this name."""
    provider = provider_name(target, place)
    if provider is None or not place.region or ALL_REGIONS in provider.regions or place.region in provider.regions:
        return []
    if provider.regions:
        return [f"Region: {place.region} is not in the catalog that {target} downloads; extend its catalog first."]
    return [f"Region: the estimate is for {place.region}; {target} names regions of {place.provider} otherwise, add yours."]


@cache
def _gpu_names() -> Mapping[str, Mapping[str, tuple[GpuName, ...]]]:
    names: dict[str, dict[str, tuple[GpuName, ...]]] = {}
    for row in data_rows(FOLDER / "launch_gpus.csv"):
        one = parse_record(GpuName, row)
        by_gpu = names.setdefault(one.target, {})
        by_gpu[one.gpu] = (*by_gpu.get(one.gpu, ()), one)
    return names


@cache
def _providers() -> Mapping[str, Mapping[str, ProviderName]]:
    providers: dict[str, dict[str, ProviderName]] = {}
    for row in data_rows(FOLDER / "launch_providers.csv"):
        one = parse_record(ProviderName, row)
        providers.setdefault(one.target, {})[one.provider] = one
    return providers
