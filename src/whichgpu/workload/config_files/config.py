"""A workload as a config file describes it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

MAX_COUNT = 10**9 - 1  # Largest count in a config (assumed).


class ImpossibleNumber(msgspec.Struct, frozen=True):
    """A number in a config that its tool refuses: the option or key, the number, and the numbers that are allowed."""

    name: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.name} {self.value[:40]} ({self.allowed})"


COUNTS_ALLOWED = f"1 ... {MAX_COUNT}"
SHARES_ALLOWED = "0 < x <= 1"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


def is_number(text: str) -> bool:
    """Whether a text is a number of any sign and size, and not a word or a variable of a shell."""
    return _NUMBER.fullmatch(text.strip()) is not None


class ConfigWorkload(msgspec.Struct, frozen=True):
    """A workload read from a config file: the tool it is written for, request fields, scheduler limits, and what was not read.

    `context` is the longest sequence of a server in tokens, `gpu_layers` are the layers on GPUs, the head as one of them.
    `unread` are options and keys that no field has; most of them change neither memory nor speed. `invalid` are numbers with
    which the tool would not start, `others` the further workloads of the file that differ from this one.
    """

    tool: str
    fields: dict[str, Any]
    context: int | None = None
    max_sequences: int | None = None
    max_batched_tokens: int | None = None
    memory_share: float | None = None
    gpu_layers: int | None = None
    unread: tuple[str, ...] = ()
    invalid: tuple[ImpossibleNumber, ...] = ()
    others: tuple[ConfigWorkload, ...] = ()

    @property
    def title(self) -> str:
        """Return the tool and the model, which distinguish one workload of a file from the others."""
        return f"{self.tool} {self.fields.get('model', '')}".strip()[:80]


def impossible(name: str, config: ConfigWorkload) -> UsageError:
    """Return the error for a file with numbers that its tool refuses."""
    values = tuple(map(str, config.invalid[:8]))
    return UsageError(
        "bad-workload-value", msg("error.bad-workload-value", name=name[:80], values=values), msg("hint.bad-workload-value")
    )


def unreadable(name: str, why: str) -> UsageError:
    """Return the error for a file that describes no workload."""
    return UsageError(
        "bad-workload-file", msg("error.bad-workload-file", name=name[:80], why=why[:200]), msg("hint.bad-workload-file")
    )
