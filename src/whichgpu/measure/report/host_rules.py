"""Rules about the host: access to the GPUs, memory, processors, frameworks and their builds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whichgpu.base.units import GIB, format_memory, significant
from whichgpu.catalog.gpu import Software as Known
from whichgpu.measure.drivers.card import Card
from whichgpu.measure.drivers.probe import MissingVendor
from whichgpu.measure.host import Host, usable_cores
from whichgpu.measure.report.finding import DoctorFinding, finding, version_numbers
from whichgpu.measure.software import InstalledSoftware

MIN_SHARED_MEMORY = GIB  # Size of /dev/shm in bytes: PyTorch's data loaders fail with Docker's default of 64 MiB.
MIN_CORES_PER_GPU = 4  # Processor cores needed to feed one GPU (assumed).

CardSupport = tuple[Card, Known | None]  # A GPU, and the software that the catalog knows to run on its instruction set.


def host_findings(
    host: Host, software: InstalledSoftware, cards: Sequence[CardSupport], absences: Sequence[MissingVendor]
) -> Iterator[DoctorFinding]:
    """Yield problems of the host and its software; `absences` are the vendors whose GPUs could not be read."""
    if not cards:
        yield _no_gpu(host, absences)
    if software.hides_all:
        yield finding("hidden-all", "problem" if cards else "note", names=software.hidden_by)
    elif software.hidden_by:
        yield finding("hidden-some", "note", names=software.hidden_by)
    if cards:
        yield from _supply(host, [card for card, _ in cards])
        yield from _torch(software, cards)
        yield from _jax(software, cards)


def _no_gpu(host: Host, absences: Sequence[MissingVendor]) -> DoctorFinding:
    kinds = {absence.kind for absence in absences if absence.vendor == "nvidia"}
    if host.container and not host.nvidia_devices and not host.amd_devices:
        return finding("no-gpu-container", "problem", container=host.container)
    if host.nvidia_devices and "no-library" in kinds:
        return finding("no-gpu-library", "problem")
    for kind in ("no-package", "no-driver", "driver-mismatch", "no-permission", "no-answer"):
        if kind in kinds:
            return finding(f"no-gpu-{kind}", "problem")
    return finding("no-gpu", "note")


def _supply(host: Host, cards: Sequence[Card]) -> Iterator[DoctorFinding]:
    """Yield findings about too few processor cores, or too little host memory or shared memory, for the GPUs."""
    cores = usable_cores(host)
    if cores is not None and cores < MIN_CORES_PER_GPU * len(cards):
        yield finding("few-cores", "note", cores=significant(cores), n=len(cards))
    ram = min((size for size in (host.ram_bytes, host.ram_limit_bytes) if size), default=None)
    largest = max((card.now.memory_bytes or 0 for card in cards if card.vendor != "apple"), default=0)
    if ram is not None and ram < largest:
        yield finding("little-ram", "note", ram=format_memory(ram), memory=format_memory(largest))
    if host.shared_memory_bytes is not None and host.shared_memory_bytes < MIN_SHARED_MEMORY:
        yield finding("little-shared", "warning", size=format_memory(host.shared_memory_bytes))


def _torch(software: InstalledSoftware, cards: Sequence[CardSupport]) -> Iterator[DoctorFinding]:
    """Yield findings about PyTorch: whether it has code for each GPU and a driver that runs it."""
    installed = software.packages.get("torch")
    vendors = {card.vendor for card, _ in cards}
    if installed is None:
        return
    if software.torch_cuda is None and software.torch_rocm is None:
        if vendors & {"nvidia", "amd"}:
            yield finding("torch-cpu", "problem", version=installed)
        return
    if (software.torch_cuda and "nvidia" not in vendors) or (software.torch_rocm and "amd" not in vendors):
        if vendors & {"nvidia", "amd"}:
            yield finding("torch-other-vendor", "problem", version=installed)
        return
    for card, support in cards:
        if card.vendor == "nvidia" and not card.now.lost:
            yield from _torch_on(card, support, installed, software.torch_cuda)


def _torch_on(card: Card, support: Known | None, installed: str, built: str | None) -> Iterator[DoctorFinding]:
    cuda, driver = version_numbers(built), version_numbers(card.api_version)
    if cuda and driver and cuda[0] > driver[0]:  # Within a major version, newer CUDA versions run on older drivers.
        yield finding("torch-driver", "problem", card.index, version=installed, built=built, driver=card.api_version)
    if support is None or cuda is None:
        return
    first, last = version_numbers(support.toolkit_first), version_numbers(support.toolkit_last)
    newest, have = version_numbers(support.pytorch_last), version_numbers(installed)
    values = {"version": installed, "built": built, "capability": card.compute_capability or "?"}
    if (last and cuda[: len(last)] > last) or (first and cuda[: len(first)] < first) or support.pytorch_last == "none":
        yield finding("torch-architecture", "problem", card.index, **values)
    elif newest and have and have[: len(newest)] > newest:
        yield finding("torch-last", "warning", card.index, last=support.pytorch_last, **values)


def _jax(software: InstalledSoftware, cards: Sequence[CardSupport]) -> Iterator[DoctorFinding]:
    has_plugin = any(name.startswith("jax-cuda") for name in software.packages)
    if "jax" in software.packages and not has_plugin and any(card.vendor == "nvidia" for card, _ in cards):
        yield finding("jax-cpu", "warning", version=software.packages["jax"])
