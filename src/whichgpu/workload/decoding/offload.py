"""Weights kept in host memory: the routed experts of an MoE model, some of the layers, or the idle parts of a diffusion model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from whichgpu.base.kinds import InvalidValue, SingleValue, Whole
from whichgpu.base.messages import msg
from whichgpu.workload.layer_pattern import layer_parts
from whichgpu.workload.shapes import Transformer

# Bytes/s that a CPU reads while it computes: 75% of two channels of DDR5-5600 (assumed: a desktop; servers have more channels).
HOST_BANDWIDTH = 0.75 * 2 * 8 * 5.6e9


class Offload(msgspec.Struct, frozen=True):
    """What lies in host memory: the experts, `layers` layers or idle `parts`; `automatic` if as little as makes it fit."""

    experts: bool = False  # all experts, or those of the first `layers` layers
    layers: int = 0
    automatic: bool = False  # only as much as makes it fit
    parts: bool = False  # of text encoders, denoiser and VAE only the one that runs is on the GPU

    @property
    def whole_layers(self) -> int:
        """Return the layers of which all weights lie in host memory."""
        return 0 if self.experts else self.layers

    def expert_share(self, shape: Transformer) -> float:
        """Return the share of a model's experts that lies in host memory."""
        mixtures = [layer for layer in range(shape.layers) if layer_parts(shape, layer).experts] if self.experts else []
        if not self.layers or not mixtures:
            return float(self.experts)
        return sum(layer < self.layers for layer in mixtures) / len(mixtures)


class OffloadValue(SingleValue):
    """Kind of the request field for weights in host memory: `auto`, `parts`, {"experts": "host" or n} or {"layers": n}."""

    takes_mapping: ClassVar[bool] = True

    def read(self, value: Any) -> Offload:
        if isinstance(value, str):
            return self.read_text(value)
        if value == {"experts": "host"}:
            return Offload(experts=True)
        if isinstance(value, Mapping) and set(value) in ({"layers"}, {"experts"}) and value.get("experts") != "host":
            [(name, count)] = value.items()
            return Offload(experts=name == "experts", layers=Whole(1, 10_000).read(count))
        raise InvalidValue(msg("wants.offload"))

    def read_text(self, text: str) -> Offload:
        word = text.strip().lower()
        if word in ("experts", "experts=host"):
            return Offload(experts=True)
        if word in ("auto", "parts"):
            return Offload(automatic=word == "auto", parts=word == "parts")
        name, _, count = word.partition("=")
        if name in ("layers", "experts"):
            return Offload(experts=name == "experts", layers=Whole(1, 10_000).read_text(count))
        raise InvalidValue(msg("wants.offload"), ("auto", "experts", "experts=N", "layers=N", "parts"))

    def write(self, value: Offload) -> Any:
        if value.automatic or value.parts:
            return self.write_text(value)
        return {"experts": value.layers or "host"} if value.experts else {"layers": value.layers}

    def write_text(self, value: Offload) -> str:
        if value.automatic or value.parts:
            return "auto" if value.automatic else "parts"
        if value.experts:
            return f"experts={value.layers}" if value.layers else "experts"
        return f"layers={value.layers}"
