"""Image loading for training: samples per second that one hardware thread can read, decode and augment.

Published figures, all for ImageNet as it comes (JPEG of about 110 kB): decode, random crop to 224 pixels, flip, normalise.
Tokenised text never bounds a step; video and audio are not covered, since no general figures are published.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Literal

import msgspec

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg

LoadingVerdict = Literal["feeds", "tight", "starves"]

UNIT = "samples/s per vCPU"
THREADS_A_CORE = 2  # A vCPU is a hardware thread on nearly every cloud, two per core.
V100_HOST_VCPUS = 12  # 6 cores of the host in dali-pytorch-demo, where ShuffleNet 0.5 in fp16 is fast enough to show the loader
PILLOW_SIMD, DALI_CPU, DALI_GPU = 1058.0, 1816.0, 3910.0  # images/s on a V100 host of 12 vCPUs (dali-pytorch-demo)
A100_WORKERS = 10  # one worker per core of an A100 host (timm-issue-1491)
PILLOW_PLAIN, PILLOW_SIMD_LATER = 1923.0, 2500.0  # images/s on an A100 host; the GPU limits the second, a lower bound
FFCV_JPEG, FFCV_VCPUS = 31278.0, 96  # images/s from 512-pixel JPEG on a p3dn.24xlarge (ffcv-benchmarks)


class Loader(msgspec.Struct, frozen=True):
    """Data loader with the samples per second that one hardware thread loads."""

    id: str
    per_vcpu: Figure


def _loader(id: str, gain: float, sources: tuple[str, ...]) -> Loader:
    """Return a data loader with samples/s per hardware thread, `gain` times those of torchvision's loader.

    The value is the geometric mean of a V100 host and an A100 host five years newer; the low end is the V100 host without
    Pillow-SIMD, the high end the A100 host with it and a core per worker.
    """
    old, new = PILLOW_SIMD / V100_HOST_VCPUS, PILLOW_PLAIN / A100_WORKERS
    low, high = old * PILLOW_PLAIN / PILLOW_SIMD_LATER, PILLOW_SIMD_LATER / A100_WORKERS
    return Loader(id, Figure(sqrt(old * new) * gain, low * gain, high * gain, UNIT, "published", sources))


LOADERS = {
    loader.id: loader
    for loader in (
        _loader("torchvision", 1.0, ("dali-pytorch-demo", "timm-issue-1491", "ternaus-imread-benchmark")),
        _loader("dali-cpu", DALI_CPU / PILLOW_SIMD, ("dali-pytorch-demo", "timm-issue-1491")),
        _loader("dali-gpu", DALI_GPU / PILLOW_SIMD, ("dali-pytorch-demo", "timm-issue-1491")),
        _loader("ffcv", FFCV_JPEG / FFCV_VCPUS / (PILLOW_SIMD / V100_HOST_VCPUS), ("ffcv-benchmarks", "dali-pytorch-demo")),
    )
}


class Loading(msgspec.Struct, frozen=True):
    """Hardware threads and cores needed to load data as fast as a GPU trains, and whether a host has them."""

    loader: str
    vcpus: Figure
    cores: Figure
    feeds: LoadingVerdict | None  # whether the host loads fast enough; None if the host is unknown
    fed: Figure | None  # samples per second that the host can load; None if the host is unknown


def loading(samples_per_second: float, vcpus: float | None = None, loader: str = "torchvision") -> Loading:
    """Return the threads a host needs to load `samples_per_second`, and whether it has as many.

    >>> round(loading(1154).cores.value, 1)  # ResNet-50 on a V100 in mixed precision
    4.4
    >>> loading(1154, vcpus=8).feeds, loading(1154, vcpus=8, loader="dali-gpu").feeds
    ('tight', 'feeds')
    """
    if samples_per_second <= 0:
        raise ValueError(f"a rate must be above zero: {samples_per_second}")
    rate = LOADERS[loader].per_vcpu
    need = Figure(
        samples_per_second / rate.value,
        samples_per_second / rate.high,
        samples_per_second / rate.low,
        "vCPUs",
        "modelled",
        rate.sources,
    )
    fed = None if vcpus is None else _scaled(rate, vcpus, "samples/s")
    return Loading(
        loader=loader,
        vcpus=need,
        cores=_scaled(need, 1 / THREADS_A_CORE, "cores"),
        feeds=None if vcpus is None else "feeds" if vcpus >= need.high else "tight" if vcpus >= need.low else "starves",
        fed=fed,
    )


def loading_remark(samples_per_second: float, vcpus: float | None = None) -> Message:
    """Return a message on the threads needed to load at a rate, and on whether the host has them."""
    plain, dali = loading(samples_per_second, vcpus), loading(samples_per_second, vcpus, "dali-gpu")
    values = {
        "vcpus": _whole(plain.vcpus.value),
        "low": _whole(plain.vcpus.low),
        "high": _whole(plain.vcpus.high),
        "dali": _whole(dali.vcpus.value),
    }
    if plain.feeds is None:
        return msg("remark.loading", **values)
    return msg(f"remark.loading-{plain.feeds}", have=_whole(vcpus or 0), **values)


def _whole(count: float) -> str:
    return f"{ceil(count):,}"


def _scaled(figure: Figure, factor: float, unit: str) -> Figure:
    return Figure(figure.value * factor, figure.low * factor, figure.high * factor, unit, "modelled", figure.sources)
