"""Speculative decoding: a draft proposes tokens, and one pass of the model accepts a part of them (arXiv 2211.17192)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from whichgpu.base.kinds import InvalidValue, Number, SingleValue, Text, Whole
from whichgpu.base.messages import msg

# Tokens drafted per step and the share of them accepted, by method, if the user gives none. MTP: one token, of which 85 to 90%
# are accepted (DeepSeek-V3, arXiv 2412.19437, section 5.4.3). The others are assumed.
METHODS: Mapping[str, tuple[int, float]] = {"draft": (4, 0.7), "mtp": (1, 0.85), "eagle": (3, 0.7), "ngram": (4, 0.3)}
MAX_TOKENS = 64  # tokens drafted per step at most (assumed)


class Speculative(msgspec.Struct, frozen=True):
    """Method of drafting, the draft model (method `draft` only), tokens drafted per step, and the share of them accepted."""

    method: str  # draft, mtp, eagle or ngram
    draft: str = ""  # the draft model
    tokens: int = 4  # tokens drafted per step
    acceptance: float = 0.7  # share of the drafted tokens that are accepted

    @property
    def accepted(self) -> float:
        """Return the mean tokens of one step: those accepted up to the first rejection, and one that the model adds itself.

        >>> Speculative("draft", "x", 4, 0.7).accepted
        2.7731
        """
        rate = self.acceptance
        return self.tokens + 1.0 if rate >= 1 else round((1 - rate ** (self.tokens + 1)) / (1 - rate), 6)


class SpeculativeValue(SingleValue):
    """Kind of the request field for speculative decoding: an object, or text such as `draft=llama-3.2-1b,tokens=4`."""

    takes_mapping: ClassVar[bool] = True

    def read(self, value: Any) -> Speculative:
        if isinstance(value, str):
            return self.read_text(value)
        if not isinstance(value, Mapping):
            raise InvalidValue(msg("wants.speculative"))
        return self._built({str(name): item for name, item in value.items()})

    def read_text(self, text: str) -> Speculative:
        fields: dict[str, Any] = {}
        for part in (part.strip() for part in text.split(",") if part.strip()):
            name, equals, item = part.partition("=")
            if not equals:
                name, item = "method", part
            elif name == "tokens" and item.isdigit():
                fields[name] = int(item)
                continue
            elif name == "acceptance":
                fields[name] = Number(high=1.0).read_text(item)
                continue
            fields[name] = item
        return self._built(fields)

    def _built(self, fields: Mapping[str, Any]) -> Speculative:
        method = fields.get("method", "draft" if "draft" in fields else None)
        if (
            method not in METHODS
            or not set(fields) <= set(Speculative.__struct_fields__)
            or (method == "draft") != ("draft" in fields)
        ):
            raise InvalidValue(msg("wants.speculative"), tuple(METHODS))
        tokens, acceptance = METHODS[method]
        return Speculative(
            method,
            Text(400).read(fields["draft"]) if method == "draft" else "",
            Whole(1, MAX_TOKENS).read(fields.get("tokens", tokens)),
            Number(high=1.0).read(fields.get("acceptance", acceptance)),
        )

    def write(self, value: Speculative) -> dict[str, Any]:
        return {name: getattr(value, name) for name in Speculative.__struct_fields__ if name != "draft" or value.draft}

    def write_text(self, value: Speculative) -> str:
        first = f"draft={value.draft}" if value.draft else value.method
        return f"{first},tokens={value.tokens},acceptance={value.acceptance!r}"
