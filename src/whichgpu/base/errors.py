"""Every error a user can meet.

    WhichGpuError
    ├── UsageError         exit 2   bad usage or input: a flag, a value, a unit, a date, a file the user named
    │   ├── UnknownName    exit 2   no such GPU, instance, field …; `choices` are the nearest that exist
    │   └── AmbiguousName  exit 2   several things bear that name; `choices` are all of them
    ├── NoAnswer           exit 1   a valid question with no answer, and why
    └── DataError          exit 3   the catalog or another data file cannot be read or is wrong

An error carries messages, not sentences: the surface renders them in the reader's language.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.base.messages import Message


class WhichGpuError(Exception):
    """The root: `kind` for programs, `message` and `hint` for people, `choices` of names that would work."""

    exit_code = 3

    def __init__(self, kind: str, message: Message, hint: Message | None = None, choices: tuple[str, ...] = ()) -> None:
        super().__init__(kind, message, hint, choices)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.choices = choices

    def __str__(self) -> str:
        return str(self.message)


class UsageError(WhichGpuError):
    """Bad usage or input."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that nothing bears."""


class AmbiguousName(UsageError):
    """A name that several things bear where one is meant."""


class NoAnswer(WhichGpuError):
    """A valid question that nothing answers.

    `rejected` counts candidates by the reason that removed them; `relaxation` is a changed request that is answered. Both are
    None where the question was not looked into so far.
    """

    exit_code = 1

    def __init__(
        self,
        kind: str,
        message: Message,
        hint: Message | None = None,
        choices: tuple[str, ...] = (),
        rejected: Mapping[str, int] | None = None,
        relaxation: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(kind, message, hint, choices)
        self.args = (kind, message, hint, choices, rejected, relaxation)  # what pickling calls the class with
        self.rejected = rejected
        self.relaxation = relaxation


class DataError(WhichGpuError):
    """Data that cannot be read or is wrong."""

    exit_code = 3
