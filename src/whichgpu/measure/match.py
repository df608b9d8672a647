"""Which catalog variant a GPU of this machine is: by its name, then by what tells variants of one name apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory
from whichgpu.catalog.find import gpus_named
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.measure.drivers.card import Card

# A driver shows less than the label: ECC on GDDR takes 1/16, reserves the rest. The sizes of one family lie further apart.
MIN_MEMORY_SHARE, MAX_MEMORY_SHARE = 0.87, 1.02
SHARED_MEMORY = "apple"  # its label is the largest size sold; the machine may have less
_SLICE = re.compile(r"\s+MIG\s+\d+g\.\d+gb.*$", re.IGNORECASE)
_VIRTUAL = re.compile(r"^(?:NVIDIA\s+)?(?:GRID\s+)?(\S+)-\d+(?:-\d+)?[QCAB]$")
_SHOWN = re.compile(r"\b(?:VF|OAM)\b")


@dataclass(frozen=True, slots=True)
class VariantMatch:
    """The variant, or those it may be; `why` where the answer is not plain."""

    gpu: str | None
    name: str | None
    candidates: tuple[str, ...]
    why: Message | None
    supports: tuple[str, ...] = ()
    quirks: tuple[str, ...] = ()


def match_card(card: Card, catalog: Catalog) -> VariantMatch:
    """The catalog's variant of a GPU."""
    named = _by_name(card, catalog)
    if not named:
        return _by_target(card, catalog)
    left = named
    for tells in (_same_target, _same_memory):
        left = tells(card, left) or left
    if len(left) > 1:
        ids = tuple(gpu.id for gpu in left)
        return VariantMatch(None, None, ids, msg("match.several", name=card.name, choices=ids))
    gpu, doubt = left[0], _doubt(card, left[0])
    if doubt is not None and not _is_part(card):  # a variant of that name which the catalog does not have
        return VariantMatch(None, None, (gpu.id,), doubt)
    return VariantMatch(gpu.id, gpu.name, (gpu.id,), doubt, gpu.supports, gpu.quirks)


def matched_gpu(match: VariantMatch, catalog: Catalog) -> Gpu | None:
    """The matched row."""
    return catalog.gpu_by_id.get(match.gpu) if match.gpu else None


def _by_name(card: Card, catalog: Catalog) -> tuple[Gpu, ...]:
    """Variants the driver's name fits; a name one variant bears alone still brings its siblings, for their memory to decide."""
    name = _SHOWN.sub("", _SLICE.sub("", card.name)).strip()
    virtual = _VIRTUAL.match(name)
    found = gpus_named(catalog, virtual[1] if virtual else name, loosely=False)
    found = tuple(gpu for gpu in found if gpu.vendor == card.vendor)
    if len(found) == 1 and not virtual and not _same_memory(card, found):
        family = gpus_named(catalog, found[0].family, loosely=False)
        found = tuple(gpu for gpu in _same_memory(card, family) if gpu.form_factor == found[0].form_factor) or found
    return found


def _is_part(card: Card) -> bool:
    """Whether what is seen is a slice of a GPU, which has a part of its memory."""
    parted = card.partition is not None and not card.partition.startswith("SPX/NPS1")
    return parted or bool(_SLICE.search(card.name) or _VIRTUAL.match(card.name))


def _by_target(card: Card, catalog: Catalog) -> VariantMatch:
    """Where the name says nothing: the one variant of that instruction set with that much memory."""
    size = card.now.memory_bytes
    if card.target and size and card.name.startswith("AMD GPU"):
        same = [gpu for gpu in catalog.gpus if gpu.vendor == card.vendor and gpu.target == card.target]
        found = _same_memory(card, tuple(same))
        if len(found) == 1:
            why = msg("match.by-target", target=card.target, memory=format_memory(size))
            return VariantMatch(found[0].id, found[0].name, (found[0].id,), why, found[0].supports, found[0].quirks)
        if found:
            ids = tuple(gpu.id for gpu in found)
            return VariantMatch(None, None, ids, msg("match.several", name=card.name, choices=ids))
    return VariantMatch(None, None, (), msg("match.none", name=card.name))


def _same_target(card: Card, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in gpus if card.target is None or gpu.target is None or gpu.target == card.target)


def _same_memory(card: Card, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    size = card.now.memory_bytes
    if size is None:
        return gpus
    return tuple(gpu for gpu in gpus if _fits(size, gpu))


def _fits(size: int, gpu: Gpu) -> bool:
    if gpu.vendor == SHARED_MEMORY:
        return size <= gpu.memory_marketed_bytes * MAX_MEMORY_SHARE
    return MIN_MEMORY_SHARE * gpu.memory_marketed_bytes <= size <= MAX_MEMORY_SHARE * gpu.memory_marketed_bytes


def _doubt(card: Card, gpu: Gpu) -> Message | None:
    """What does not agree although the name does."""
    tests: tuple[tuple[Callable[[Card, tuple[Gpu, ...]], tuple[Gpu, ...]], str], ...] = (
        (_same_target, "target"),
        (_same_memory, "memory"),
    )
    for tells, what in tests:
        if not tells(card, (gpu,)):
            shown = format_memory(card.now.memory_bytes or 0)
            values = {"name": gpu.name, "shown": shown, "listed": gpu.memory_label, "target": card.target or "?"}
            return msg(f"match.other-{what}", **values)
    return None
