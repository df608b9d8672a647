"""Groups of GPUs that offers hold: a kind of GPU, how many of them, and how they reach one another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from whichgpu.base.lru import LruCache
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.catalog.store import Catalog
from whichgpu.decide.market import Market
from whichgpu.estimate.group.fabric import Fabric, fabric_of
from whichgpu.price.table import Ints

MOST_MACHINES = 16
_SLICES = LruCache[tuple[Gpu, Gpu]](512)  # with the GPU whose identity is part of the key
_FABRICS = LruCache[tuple[Fabric, Gpu, Instance | None]](4096)


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs that work as one: those of `machines` machines with `per_machine` each; or a `share` of one."""

    gpu: Gpu
    per_machine: int
    machines: int
    fabric: Fabric
    share: float = 1.0

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.per_machine * self.machines

    @property
    def size(self) -> float:
        """GPUs as they are counted and paid for: less than one of a slice."""
        return self.gpus * self.share

    @property
    def kind(self) -> tuple[str, float, Fabric]:
        """What time depends on beside the number of GPUs."""
        return self.gpu.id, self.share, self.fabric


@dataclass(frozen=True, slots=True)
class Groups:
    """Every group, and the offers that hold each: pairs of a group's place and an offer's."""

    groups: tuple[Group, ...]
    group_of: Ints
    offer_of: Ints
    left: int = 0  # offers whose machines cannot make up the number of GPUs


def groups_of(found: Market, catalog: Catalog, span: tuple[float, float], several: bool, beside: bool = False) -> Groups:
    """Groups of the offers left; `several` machines together where the span asks for more GPUs than one holds.

    Where copies of the work may stand `beside` one another, a machine may have fewer GPUs than are asked for in all.
    """
    table = found.table.taken(found.rows)
    machines = {(row.provider, row.instance): row for row in catalog.instances}
    words, gpus = table.words, catalog.gpu_by_id
    size = len(words)
    codes = (table.column("provider") * size + table.column("instance")) * size + table.column("gpu")
    pairs = np.stack([codes.astype(np.float64), table.gpus])
    unique, first, of = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
    of = of.reshape(-1)
    places: dict[tuple[object, ...], int] = {}
    groups: list[Group] = []
    holding: list[list[int]] = []
    for kind in range(unique.shape[1]):
        row = int(first[kind])
        gpu, count = gpus[table.word("gpu", row)], max(1, int(table.gpus[row]))
        share = min(1.0, float(table.gpus[row]))
        fabric = _fabric(gpu, machines.get((table.word("provider", row), table.word("instance", row))))
        mine = []
        for copies in _copies(count, share, span, several, beside):
            key = (
                gpu.id,
                share,
                count,
                copies,
                fabric.name,
                round(fabric.link_bandwidth),
                round(fabric.network_bandwidth) if copies > 1 else 0,
            )
            if key not in places:
                places[key] = len(groups)
                groups.append(Group(sliced(gpu, share), count, copies, fabric, share))
            mine.append(places[key])
        holding.append(mine)
    many = np.array([len(mine) for mine in holding], dtype=np.int64)
    ends, counts = np.cumsum(many), many[of]
    offers = np.repeat(np.arange(len(of)), counts)
    within = np.arange(len(offers)) - np.repeat(np.cumsum(counts) - counts, counts)
    held = np.array([place for mine in holding for place in mine], dtype=np.int64)
    return Groups(tuple(groups), held[(ends - many)[of[offers]] + within], offers, int((counts == 0).sum()))


def _fabric(gpu: Gpu, machine: Instance | None) -> Fabric:
    """Worked out once for a GPU in a machine; both are kept, so that their identities stay theirs."""
    return _FABRICS.get((id(gpu), id(machine)), lambda: (fabric_of(gpu, machine), gpu, machine))[0]


def sliced(gpu: Gpu, share: float) -> Gpu:
    """A slice of a GPU as one of its own: its share of memory, bandwidth and arithmetic, as providers describe theirs.

    The same slice of the same GPU is the same object, so that what is known of it is found again.
    """
    return gpu if share >= 1.0 else _SLICES.get((id(gpu), share), lambda: (_sliced(gpu, share), gpu))[0]


def _sliced(gpu: Gpu, share: float) -> Gpu:
    return replace(
        gpu,
        memory_bytes=int(gpu.memory_bytes * share),
        memory_marketed_bytes=int(gpu.memory_marketed_bytes * share),
        memory_bandwidth=int(gpu.memory_bandwidth * share),
        peaks={name: int(rate * share) for name, rate in gpu.peaks.items()},
        l2_bytes=int(gpu.l2_bytes * share) if gpu.l2_bytes else None,
        sms=max(1, round(gpu.sms * share)) if gpu.sms else None,
    )


def _copies(count: int, share: float, span: tuple[float, float], several: bool, beside: bool) -> list[int]:
    """How many machines may stand together: powers of two within the span; slices stand alone."""
    low, high = span
    if not several or share < 1.0:
        least = 0.0 if beside and share >= 1.0 else low
        return [1] if least <= count * share <= high else []
    alone = [1] if beside and count < low else []
    return alone + [copies for copies in (1, 2, 4, 8, MOST_MACHINES) if low <= count * copies <= high]
