"""Match a detected GPU to its catalog variant: by name, then by instruction set and memory size."""

from __future__ import annotations

import re

import msgspec

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory
from whichgpu.catalog.find import gpus_named
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.measure.drivers.card import Card

# Ratio of driver-reported to marketed memory: ECC on GDDR takes 1/16, reserves more. Sizes within a family differ by more.
MIN_MEMORY_SHARE, MAX_MEMORY_SHARE = 0.87, 1.02
SHARED_MEMORY = "apple"  # Vendor whose GPUs share the host's memory, of which a machine may have less than the catalog says.
_SLICE = re.compile(r"\s+MIG\s+\d+g\.\d+gb.*$", re.IGNORECASE)
_VIRTUAL = re.compile(r"^(?:NVIDIA\s+)?(?:GRID\s+)?(\S+)-\d+(?:-\d+)?[QCAB]$")
_PACKAGE_MARK = re.compile(r"\b(?:VF|OAM)\b")


class VariantMatch(msgspec.Struct, frozen=True):
    """The catalog's variant of a detected GPU, or candidates if it is ambiguous; `why` explains a doubtful match."""

    gpu: str | None
    name: str | None
    candidates: tuple[str, ...]
    why: Message | None
    supports: tuple[str, ...] = ()
    quirks: tuple[str, ...] = ()


def match_card(card: Card, catalog: Catalog) -> VariantMatch:
    """Return the catalog's variant of a detected GPU, found by name, instruction set and memory size."""
    same_name = _by_name(card, catalog)
    if not same_name:
        return _by_target(card, catalog)
    same_target = _same_target(card, same_name) or same_name
    variants = _same_memory(card, same_target) or same_target
    if len(variants) > 1:
        return _ambiguous(card, variants)
    doubt = _doubt(card, variants[0])
    if doubt is not None and not _is_part(card):  # The driver's data contradict the variant of that name.
        return VariantMatch(None, None, (variants[0].id,), doubt)
    return _matched(variants[0], doubt)


def _matched(gpu: Gpu, why: Message | None) -> VariantMatch:
    return VariantMatch(gpu.id, gpu.name, (gpu.id,), why, gpu.supports, gpu.quirks)


def _ambiguous(card: Card, variants: tuple[Gpu, ...]) -> VariantMatch:
    ids = tuple(gpu.id for gpu in variants)
    return VariantMatch(None, None, ids, msg("match.several", name=card.name, choices=ids))


def matched_gpu(match: VariantMatch, catalog: Catalog) -> Gpu | None:
    """Return the GPU of the catalog that a detected GPU was matched to; None if it was matched to none."""
    return catalog.gpu_by_id.get(match.gpu) if match.gpu else None


def _by_name(card: Card, catalog: Catalog) -> tuple[Gpu, ...]:
    """Return variants with the name the driver reports; if the only one differs in memory size, its family's with that size."""
    name = _PACKAGE_MARK.sub("", _SLICE.sub("", card.name)).strip()
    virtual = _VIRTUAL.match(name)
    variants = gpus_named(catalog, virtual[1] if virtual else name, loosely=False)
    variants = tuple(gpu for gpu in variants if gpu.vendor == card.vendor)
    if len(variants) == 1 and not virtual and not _same_memory(card, variants):
        family = gpus_named(catalog, variants[0].family, loosely=False)
        variants = tuple(gpu for gpu in _same_memory(card, family) if gpu.form_factor == variants[0].form_factor) or variants
    return variants


def _is_part(card: Card) -> bool:
    """Whether the device is a slice of a GPU, with part of its memory."""
    parted = card.partition is not None and not card.partition.startswith("SPX/NPS1")
    return parted or bool(_SLICE.search(card.name) or _VIRTUAL.match(card.name))


def _by_target(card: Card, catalog: Catalog) -> VariantMatch:
    """Match a GPU without a product name by instruction set and memory size."""
    size = card.now.memory_bytes
    if card.target and size and card.name.startswith("AMD GPU"):
        same = [gpu for gpu in catalog.gpus if gpu.vendor == card.vendor and gpu.target == card.target]
        variants = _same_memory(card, tuple(same))
        if len(variants) == 1:
            return _matched(variants[0], msg("match.by-target", target=card.target, memory=format_memory(size)))
        if variants:
            return _ambiguous(card, variants)
    return VariantMatch(None, None, (), msg("match.none", name=card.name))


def _same_target(card: Card, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in gpus if card.target is None or gpu.target is None or gpu.target == card.target)


def _same_memory(card: Card, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in gpus if _has_memory(gpu, card.now.memory_bytes))


def _has_memory(gpu: Gpu, size: int | None) -> bool:
    min_share = 0.0 if gpu.vendor == SHARED_MEMORY else MIN_MEMORY_SHARE
    return size is None or min_share * gpu.memory_marketed_bytes <= size <= MAX_MEMORY_SHARE * gpu.memory_marketed_bytes


def _doubt(card: Card, gpu: Gpu) -> Message | None:
    """Return a message if the instruction set or memory size contradicts the name; None otherwise."""
    if _same_target(card, (gpu,)) and _same_memory(card, (gpu,)):
        return None
    id = "match.other-memory" if _same_target(card, (gpu,)) else "match.other-target"
    size = format_memory(card.now.memory_bytes or 0)
    return msg(id, name=gpu.name, shown=size, listed=gpu.memory_label, target=card.target or "?")
