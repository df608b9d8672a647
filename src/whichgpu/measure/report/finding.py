"""Findings of `doctor`: an observation, its severity, and advice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from whichgpu.base.messages import Message, msg

Level = Literal["problem", "warning", "note"]
LEVELS: tuple[Level, ...] = ("problem", "warning", "note")
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


class DoctorFinding(msgspec.Struct, frozen=True):
    """A finding of `doctor`: a `problem` (does not work), `warning` (slower or less safe than it could be) or `note` (useful)."""

    id: str
    level: Level
    gpu: int | None
    what: Message
    advice: Message


def finding(id: str, level: Level, gpu: int | None = None, **values: object) -> DoctorFinding:
    """Return a finding of `doctor` with the texts of its id, filled with `values`; `gpu` is None if it concerns the host."""
    return DoctorFinding(id, level, gpu, msg(f"doctor.found.{id}", **values), msg(f"doctor.advice.{id}", **values))


def by_severity(findings: Iterable[DoctorFinding]) -> tuple[DoctorFinding, ...]:
    """Return findings of `doctor` sorted by severity, those about the host before those about single GPUs."""
    return tuple(sorted(findings, key=lambda one: (LEVELS.index(one.level), -1 if one.gpu is None else one.gpu)))


def version_numbers(text: str | None) -> tuple[int, ...] | None:
    """Return the numbers of a version for comparison; None if there are none.

    >>> version_numbers("12.8"), version_numbers("2.11.0+cu130"), version_numbers("current"), version_numbers(None)
    ((12, 8), (2, 11, 0), None, None)
    """
    numbers = _NUMBERS.match(text or "")
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else None
