"""Weights kept in host memory: the routed experts of an MoE model, some of the layers, or the idle parts of a diffusion model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from whichgpu.base.kinds import InvalidValue, SingleValue, Whole
from whichgpu.base.messages import msg

# Bytes/s that a CPU reads while it computes: 75% of two channels of DDR5-5600 (assumed: a desktop; servers have more channels).
HOST_BANDWIDTH = 0.75 * 2 * 8 * 5.6e9


class Offload(msgspec.Struct, frozen=True):
    """What lies in host memory: the experts, `layers` layers or idle `parts`; `automatic` if as little as makes it fit."""

    experts: bool = False
    layers: int = 0
    automatic: bool = False  # only as much as makes it fit
    parts: bool = False  # of text encoders, denoiser and VAE only the one that runs is on the GPU


class OffloadValue(SingleValue):
    """Kind of the request field for weights in host memory: `auto`, `parts`, {"experts": "host"} or {"layers": n}."""

    takes_mapping: ClassVar[bool] = True

    def read(self, value: Any) -> Offload:
        if isinstance(value, str):
            return self.read_text(value)
        if value == {"experts": "host"}:
            return Offload(experts=True)
        if isinstance(value, Mapping) and set(value) == {"layers"}:
            return Offload(layers=Whole(1, 10_000).read(value["layers"]))
        raise InvalidValue(msg("wants.offload"))

    def read_text(self, text: str) -> Offload:
        word = text.strip().lower()
        if word in ("experts", "experts=host"):
            return Offload(experts=True)
        if word in ("auto", "parts"):
            return Offload(automatic=word == "auto", parts=word == "parts")
        name, _, count = word.partition("=")
        if name == "layers":
            return Offload(layers=Whole(1, 10_000).read_text(count))
        raise InvalidValue(msg("wants.offload"), ("auto", "experts", "layers=N", "parts"))

    def write(self, value: Offload) -> Any:
        if value.automatic or value.parts:
            return self.write_text(value)
        return {"experts": "host"} if value.experts else {"layers": value.layers}

    def write_text(self, value: Offload) -> str:
        words = {"auto": value.automatic, "parts": value.parts, "experts": value.experts}
        return next((word for word, is_set in words.items() if is_set), f"layers={value.layers}")
