"""All errors that are reported to users, with their exit codes.

    WhichGpuError
    ├── UsageError         exit 2   bad usage or input: a flag, a value, a unit, a date, a file the user named
    │   ├── UnknownName    exit 2   no such GPU, instance, field …; `choices` are the nearest that exist
    │   ├── AmbiguousName  exit 2   several things have that name; `choices` are all of them
    │   └── InvalidFields  exit 2   several fields of one request are invalid; `fields` are their errors by name
    ├── NoAnswer           exit 1   a valid question without an answer, and why
    └── DataError          exit 3   the catalog or another data file is unreadable or wrong

An error carries messages, not sentences: the surface renders them in the reader's language.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.base.messages import Message


class WhichGpuError(Exception):
    """Root of all errors: `kind` for programs, `message` and `hint` for people, `choices` of names that would work."""

    exit_code = 3

    def __init__(self, kind: str, message: Message, hint: Message | None = None, choices: tuple[str, ...] = ()) -> None:
        super().__init__(kind, message, hint, choices)
        self.kind, self.message, self.hint, self.choices = kind, message, hint, choices

    def __str__(self) -> str:
        return str(self.message)


class UsageError(WhichGpuError):
    """Error: an invalid flag, value, unit, date or file given by the user."""

    exit_code = 2


class UnknownName(UsageError):
    """Error: a name that no GPU, instance or other thing of the catalog has."""


class AmbiguousName(UsageError):
    """Error: a name that several GPUs, instances or other things have where exactly one is required."""


class InvalidFields(UsageError):
    """Error: several invalid fields of one request; `fields` has the error of each by the name of the field in JSON."""

    def __init__(
        self, kind: str, message: Message, hint: Message | None, choices: tuple[str, ...], fields: Mapping[str, WhichGpuError]
    ) -> None:
        super().__init__(kind, message, hint, choices)
        self.args = (kind, message, hint, choices, fields)  # Unpickling calls the class with these arguments.
        self.fields = fields


class NoAnswer(WhichGpuError):
    """Error: a valid question that has no answer, such as limits that no GPU meets.

    `rejected` counts candidates by the reason that removed them; `relaxation` is a changed request that has an answer. Both are
    None if neither was computed.
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
        self.args = (kind, message, hint, choices, rejected, relaxation)  # Unpickling calls the class with these arguments.
        self.rejected, self.relaxation = rejected, relaxation


class DataError(WhichGpuError):
    """Error: a catalog or other data file that is unreadable or wrong."""
