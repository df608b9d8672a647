"""Groups of GPUs that offers can form: the kind of GPU, their number, and their links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.lru import LruCache
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.catalog.store import Catalog
from whichgpu.decide.market import Market
from whichgpu.estimate.group.fabric import Fabric, fabric_of
from whichgpu.price.table import Floats, Ints

# Numbers of machines that a cluster may have: powers of two, and one number between each two.
MACHINE_COUNTS = tuple(sorted({*(1 << k for k in range(11)), *(3 << k for k in range(9))}))
REPLICA_MACHINES = (2, 4, 8, 16)  # Numbers of machines that one replica of a service may have.
MIN_NETWORK_GBPS = 100.0  # Machines with a slower network do not form a cluster (assumed).
_SLICES = LruCache[tuple[Gpu, Gpu]](512)  # The original GPU is kept with its slice, since its `id()` is part of the key.
_FABRICS = LruCache[tuple[Fabric, Gpu, Instance | None]](4096)
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Group(msgspec.Struct, frozen=True):
    """GPUs that work as one: all those of `machines` machines with `per_machine` each, or the slice `share` of one GPU."""

    gpu: Gpu
    per_machine: int
    machines: int
    fabric: Fabric
    share: float = 1.0
    precision: str | None = None  # precision tried on it; None for the default on its GPU
    quality: str = "lossless"  # level of quality that the precision keeps

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the group; a slice counts as one."""
        return self.per_machine * self.machines

    @property
    def size(self) -> float:
        """Return the number of GPUs paid for, less than one for a slice."""
        return self.gpus * self.share

    @property
    def kind(self) -> tuple[str, float, Fabric]:
        """Return a cache key of what step times depend on besides the number of GPUs: the GPU, the slice of it, its links."""
        return self.gpu.id, self.share, self.fabric


class Groups(msgspec.Struct, frozen=True):
    """Every group of GPUs that offers can form, and (group index, offer index) pairs that say which offers form which group."""

    groups: tuple[Group, ...]
    group_of: Ints
    offer_of: Ints
    left: int = 0  # number of offers left out, whose machines cannot have the required number of GPUs


def groups_of(
    market: Market, catalog: Catalog, span: tuple[float, float], several: bool, separate_machines: bool = False
) -> Groups:
    """Return the groups of GPUs that offers can form, of `span` GPUs (fewest, most); `several`: also over several machines.

    With `separate_machines`, replicas may run on separate machines, so each machine may have fewer GPUs than required in total.
    """
    table = market.table.select_rows(market.rows)
    machines = {(row.provider, row.instance): row for row in catalog.instances}
    clustered = frozenset(provider.id for provider in catalog.providers if provider.rents == "clusters")
    size = len(table.words)
    machine_codes = table.column("provider") * size + table.column("instance")
    places = ((table.place(provider), table.place(instance)) for provider, instance in machines)
    described = sorted(
        provider * size + instance for provider, instance in places if provider is not None and instance is not None
    )
    codes = np.array(described or [-1], dtype=np.int64)
    is_described = codes[np.searchsorted(codes, machine_codes).clip(max=len(codes) - 1)] == machine_codes
    machine_codes = np.where(is_described, machine_codes, -1)  # Machines the catalog does not describe differ by their GPUs only.
    first, kind_of = _kinds(machine_codes, table.column("gpu"), table.gpus)
    index: dict[tuple[object, ...], int] = {}
    groups: list[Group] = []
    of_kind: list[list[int]] = []  # Each entry lists the groups that one kind of machine can form.
    for row in first.tolist():
        gpu, count = catalog.gpu_by_id[table.word("gpu", row)], max(1, int(table.gpus[row]))
        share = min(1.0, float(table.gpus[row]))
        machine = machines.get((table.word("provider", row), table.word("instance", row)))
        fabric = _fabric(gpu, machine)
        joined = several and share >= 1.0 and _in_clusters(machine, clustered)
        own = []
        for together in _machine_counts(count, share, span, joined, separate_machines):
            network = round(fabric.network_bandwidth) if together > 1 else 0
            key = (gpu.id, share, count, together, fabric.name, round(fabric.link_bandwidth), network)
            if key not in index:
                index[key] = len(groups)
                groups.append(Group(sliced(gpu, share), count, together, fabric, share))
            own.append(index[key])
        of_kind.append(own)
    many = np.array([len(own) for own in of_kind], dtype=np.int64)
    ends, counts = np.cumsum(many), many[kind_of]
    offers = np.repeat(np.arange(len(kind_of)), counts)
    within = np.arange(len(offers)) - np.repeat(np.cumsum(counts) - counts, counts)
    flat = np.array([at for own in of_kind for at in own], dtype=np.int64)
    return Groups(tuple(groups), flat[(ends - many)[kind_of[offers]] + within], offers, int((counts == 0).sum()))


def with_precisions(groups: Groups, precisions_of: Callable[[Gpu], Mapping[str, str]]) -> Groups:
    """Return every group once for each precision to try on its GPU; `precisions_of` gives the level of quality by precision."""
    by_gpu = {group.gpu.id: precisions_of(group.gpu) for group in groups.groups}
    expanded = [
        replace(group, precision=precision, quality=quality)
        for group in groups.groups
        for precision, quality in by_gpu[group.gpu.id].items()
    ]
    counts = np.array([len(by_gpu[group.gpu.id]) for group in groups.groups], dtype=np.int64)
    first, pairs = np.cumsum(counts) - counts, counts[groups.group_of]
    starts = np.repeat(np.cumsum(pairs) - pairs, pairs)
    group_of = np.repeat(first[groups.group_of], pairs) + np.arange(int(pairs.sum())) - starts
    return Groups(tuple(expanded), group_of, np.repeat(groups.offer_of, pairs), groups.left)


def _kinds(*columns: Ints | Floats) -> tuple[Ints, Ints]:
    """Return the first row of each distinct combination of values, in order of the values, and each row's combination."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    first = np.zeros(0, dtype=np.int64)
    for column in columns:
        values, value_of = np.unique(column, return_inverse=True)
        _, first, number = np.unique(number * max(1, len(values)) + value_of.reshape(-1), return_index=True, return_inverse=True)
        number = number.reshape(-1)
    return first, number


def solve_by_class(
    groups: Sequence[Group], class_of: Callable[[Group], Key], solve: Callable[[Key, list[Group]], Sequence[Result]]
) -> list[Result]:
    """Return one result per group of GPUs; groups for which `class_of` is equal are passed to `solve` in one call."""
    classes: dict[Key, list[int]] = defaultdict(list)
    for at, group in enumerate(groups):
        classes[class_of(group)].append(at)
    results: dict[int, Result] = {}
    for key, members in classes.items():
        results |= zip(members, solve(key, [groups[at] for at in members]), strict=True)
    return [results[at] for at in range(len(groups))]


def _fabric(gpu: Gpu, machine: Instance | None) -> Fabric:
    """Return the links (NVLink, PCIe, network) of a GPU in a machine, cached by the identities of both."""
    return _FABRICS.get((id(gpu), id(machine)), lambda: (fabric_of(gpu, machine), gpu, machine))[0]


def sliced(gpu: Gpu, share: float) -> Gpu:
    """Return a slice of a GPU as a GPU with its share of memory, bandwidth and compute, as providers describe slices.

    Repeated calls return the same object, so that caches keyed by identity find it.
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


def clustered_machines(catalog: Catalog) -> dict[tuple[str, str], Instance]:
    """Return the machines of which several are rented joined by a fast network, by provider and name."""
    clustered = frozenset(provider.id for provider in catalog.providers if provider.rents == "clusters")
    return {(one.provider, one.instance): one for one in catalog.instances if _in_clusters(one, clustered)}


def _in_clusters(machine: Instance | None, clustered: Collection[str]) -> bool:
    """Return whether several of a machine are rented joined by a fabric: its provider rents clusters, and its network is fast."""
    return machine is not None and machine.provider in clustered and (machine.network_gbps or 0.0) >= MIN_NETWORK_GBPS


def _machine_counts(count: int, share: float, span: tuple[float, float], joined: bool, separate_machines: bool) -> list[int]:
    """Return how many machines of `count` GPUs, or of a slice (`share` < 1), may form a group within `span` GPUs.

    Machines that are `joined` by a fabric form groups of several. The ends of the span are tried exactly.
    """
    low, high = span
    min_gpus = 0.0 if separate_machines and share >= 1.0 else low
    alone = [1] if min_gpus <= count * share <= high else []
    if not joined:
        return alone
    ends = {int(end // count) for end in span if end % count == 0 and end // count <= MACHINE_COUNTS[-1]}
    counts = REPLICA_MACHINES if separate_machines else {*MACHINE_COUNTS, *ends}
    return alone + sorted(machines for machines in counts if machines > 1 and low <= count * machines <= high)
