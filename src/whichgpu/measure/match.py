"""Match of a detected GPU to a catalog variant: by name, then by instruction set and memory size."""

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

# Memory the driver reports over the marketed size: ECC on GDDR takes 1/16, reserves more. Sizes of one family differ by more.
MIN_MEMORY_SHARE, MAX_MEMORY_SHARE = 0.87, 1.02
SHARED_MEMORY = "apple"  # The catalog has the largest size sold; a machine may have less.
_SLICE = re.compile(r"\s+MIG\s+\d+g\.\d+gb.*$", re.IGNORECASE)
_VIRTUAL = re.compile(r"^(?:NVIDIA\s+)?(?:GRID\s+)?(\S+)-\d+(?:-\d+)?[QCAB]$")
_SHOWN = re.compile(r"\b(?:VF|OAM)\b")


@dataclass(frozen=True, slots=True)
class VariantMatch:
    """The matched variant, or the candidates; `why` explains a doubtful match."""

    gpu: str | None
    name: str | None
    candidates: tuple[str, ...]
    why: Message | None
    supports: tuple[str, ...] = ()
    quirks: tuple[str, ...] = ()


def match_card(card: Card, catalog: Catalog) -> VariantMatch:
    """Match a detected GPU to its catalog variant."""
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
    if doubt is not None and not _is_part(card):  # The catalog lacks the variant of that name.
        return VariantMatch(None, None, (gpu.id,), doubt)
    return VariantMatch(gpu.id, gpu.name, (gpu.id,), doubt, gpu.supports, gpu.quirks)


def matched_gpu(match: VariantMatch, catalog: Catalog) -> Gpu | None:
    """Return the catalog row of a match, or None."""
    return catalog.gpu_by_id.get(match.gpu) if match.gpu else None


def _by_name(card: Card, catalog: Catalog) -> tuple[Gpu, ...]:
    """Variants with the driver's name; if the only one has another memory size, those of its family with this size."""
    name = _SHOWN.sub("", _SLICE.sub("", card.name)).strip()
    virtual = _VIRTUAL.match(name)
    found = gpus_named(catalog, virtual[1] if virtual else name, loosely=False)
    found = tuple(gpu for gpu in found if gpu.vendor == card.vendor)
    if len(found) == 1 and not virtual and not _same_memory(card, found):
        family = gpus_named(catalog, found[0].family, loosely=False)
        found = tuple(gpu for gpu in _same_memory(card, family) if gpu.form_factor == found[0].form_factor) or found
    return found


def _is_part(card: Card) -> bool:
    """Whether the device is a slice of a GPU, with part of its memory."""
    parted = card.partition is not None and not card.partition.startswith("SPX/NPS1")
    return parted or bool(_SLICE.search(card.name) or _VIRTUAL.match(card.name))


def _by_target(card: Card, catalog: Catalog) -> VariantMatch:
    """Match a GPU without a product name by instruction set and memory size."""
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
    """Message if the instruction set or memory size contradicts the name."""
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
