"""What a GPU is good for: its speed among its neighbours, the models that fit, its strengths and what to watch out for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import exp, log

import msgspec

from whichgpu.api.facts.fit_grid import FitLine, fit_line
from whichgpu.api.facts.relative_speed import RelativeAnswer, relative, relative_to
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Fact, Message, msg
from whichgpu.base.units import significant
from whichgpu.catalog.find import find_gpu
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache

# Text models of each size that people run most (chosen), the smallest first.
COMMON_MODELS = (
    "llama-3.2-3b", "llama-3.1-8b", "qwen3-14b", "gpt-oss-20b", "gemma-3-27b", "qwen3-32b", "mixtral-8x7b", "llama-3.1-70b",
    "gpt-oss-120b", "qwen3-235b-a22b", "llama-3.1-405b", "deepseek-v3",
)  # fmt: skip
NEIGHBOURS = 3  # GPUs faster and GPUs slower that are listed.
RANKED = ("memory_bytes", "memory_bandwidth", "peaks.bf16", "peaks.fp16", "peaks.fp8", "link.bandwidth")
NARROW_FLOATS = ("fp8", "fp6", "fp4")  # Precisions below 16 bits that not every recent GPU has units for.
PEERS_YEARS = 2  # GPUs of the same segment launched within this many years are compared (assumed).
STRONG, WEAK = 0.75, 0.25  # Shares of peers above which a figure is a strength, and below which it is a weakness (assumed).
MIN_PEERS = 8  # Fewer GPUs are no crowd to rank a GPU in (assumed).


class GpuProfile(msgspec.Struct, frozen=True):
    """A GPU's speed relative to its neighbours', the models that fit, its strengths and what to watch out for."""

    gpu: Gpu
    speed: RelativeAnswer | None  # None if no speed can be estimated
    models: tuple[FitLine, ...]
    strengths: tuple[Message, ...]
    cautions: tuple[Message | Fact, ...]


def gpu_profile(name: str, catalog: Catalog, lookups: LookupCache) -> GpuProfile:
    """Return what a GPU is good for; raise an error if no GPU has that name, or several have it."""
    gpu = find_gpu(catalog, name)
    model_ids = {model.id for model in catalog.models}
    lines = tuple(fit_line(model, gpu, lookups) for model in COMMON_MODELS if model in model_ids)
    shares = dict(_shares(gpu, catalog.gpus))
    strong = tuple(_ranked("gpu.strong", name, share) for name, share in shares.items() if share >= STRONG)
    weak = tuple(_ranked("gpu.weak", name, 1 - share) for name, share in shares.items() if share <= WEAK)
    return GpuProfile(gpu, _speed(gpu, catalog), lines, (*strong, *_features(gpu, catalog.gpus)), (*weak, *_cautions(gpu)))


def _ranked(id: str, field: str, share: float) -> Message:
    """Return a message on a fact of a GPU that beats this share of its peers, or all of them."""
    what = msg(f"field.{field}")
    return msg(f"{id}est", what=what) if share == 1 else msg(id, what=what, share=f"{min(share, 0.99):.0%}")


def _speed(gpu: Gpu, catalog: Catalog) -> RelativeAnswer | None:
    """Return the speed of a GPU and of those next faster and slower, relative to it; None if it has no estimate."""
    scores = speed_scores(catalog)
    if gpu.id not in scores:
        return None
    peers = [one for one in catalog.gpus if one.id in scores and one.segment == gpu.segment and one.family != gpu.family]
    ordered = sorted(peers, key=lambda one: scores[one.id])
    faster = _one_per_family([one for one in ordered if scores[one.id] > scores[gpu.id]])
    slower = _one_per_family([one for one in reversed(ordered) if scores[one.id] <= scores[gpu.id]])
    try:
        return relative_to([*reversed(faster), gpu, *slower], gpu, catalog)
    except WhichGpuError:
        return None


def _one_per_family(gpus: Sequence[Gpu]) -> list[Gpu]:
    by_family: dict[str, Gpu] = {}
    for gpu in gpus:
        by_family.setdefault(gpu.family, gpu)
    return list(by_family.values())[:NEIGHBOURS]


@lru_cache(maxsize=2)
def speed_scores(catalog: Catalog) -> dict[str, float]:
    """Return the overall speed of each GPU: the geometric mean of its speed indices, for GPUs that have all of them."""
    answer = relative(catalog=catalog)
    count = len({item.index for item in answer.mix})
    rows = (row for row in answer.rows if len(row.relative) == count)
    return {row.gpu: exp(sum(log(figure.value) for figure in row.relative.values()) / count) for row in rows}


def _peers(gpu: Gpu, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs of the same segment launched at about the same time; none if there are too few to rank a GPU in."""
    year = int(gpu.launch_date[:4])
    peers = [
        one
        for one in gpus
        if one.segment == gpu.segment and one.id != gpu.id and abs(int(one.launch_date[:4]) - year) <= PEERS_YEARS
    ]
    return peers if len(peers) >= MIN_PEERS else []


def _features(gpu: Gpu, gpus: Sequence[Gpu]) -> Iterator[Message]:
    """Yield strengths other than large figures: low power, precisions below 16 bits, and division into instances."""
    powers = [one.tdp_watts for one in _peers(gpu, gpus) if one.tdp_watts]
    if gpu.tdp_watts and powers and (share := sum(one > gpu.tdp_watts for one in powers) / len(powers)) >= STRONG:
        yield msg("gpu.low-power", watts=significant(gpu.tdp_watts), share=f"{share:.0%}")
    if precisions := tuple(one for one in NARROW_FLOATS if one in gpu.supports):
        yield msg("gpu.narrow-floats", names=precisions)
    if gpu.mig_instances:
        yield msg("gpu.mig", n=gpu.mig_instances)


def _shares(gpu: Gpu, gpus: Sequence[Gpu]) -> Iterator[tuple[str, float]]:
    """Yield facts of a GPU with the share of its peers that have less; one without the fact counts as having less."""
    peers = _peers(gpu, gpus)
    for name in RANKED if peers else ():
        own = _fact(gpu, name)
        if own is not None:
            yield name, sum((_fact(one, name) or 0) < own for one in peers) / len(peers)


def _fact(gpu: Gpu, name: str) -> float | None:
    table, _, key = name.partition(".")
    value = getattr(gpu, table)
    if not key:
        return value  # type: ignore[no-any-return]
    return value.get(key) if table == "peaks" else getattr(value, key, None)


def _cautions(gpu: Gpu) -> Iterator[Message | Fact]:
    """Yield what to watch out for: known deviations, missing precisions, and frameworks that no longer support the GPU."""
    yield from map(Fact, gpu.quirks)
    if "bf16" not in gpu.supports:
        yield msg("gpu.no-bf16")
    elif "fp8" not in gpu.supports:
        yield msg("gpu.no-fp8")
    software = gpu.software
    if software is None:
        return
    if software.pytorch_last not in (None, "current", "none"):
        yield msg("gpu.last-pytorch", release=software.pytorch_last)
    elif software.pytorch_last == "none":
        yield msg("gpu.no-pytorch")
