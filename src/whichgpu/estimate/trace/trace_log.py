"""Log of a trace: allocations and frees of storages, and operators; independent of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from whichgpu.estimate.allocation_sequence import replay_events
from whichgpu.estimate.allocator import Event, Replay

TracePhase = Literal["setup", "forward", "backward", "optimizer"]


class TracedOperator(msgspec.Struct, frozen=True):
    """One operator call: its name (aten.mm.default), input and output shapes, and attributes that decide its cost."""

    name: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    dtype: str  # data type of the first output: float32, bfloat16, …
    phase: TracePhase
    attributes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    step: int = 0
    event: int = 0  # number of allocations and frees logged before this operator's own


class ModuleTrace(msgspec.Struct, frozen=True):
    """A run without a GPU: allocations and frees of storages in order, their labels, and the operators of the last step."""

    events: tuple[Event, ...]
    labels: Mapping[int, str]
    makers: Mapping[int, str]  # the operator that allocated each storage
    operators: tuple[TracedOperator, ...]
    parameters: int
    trainable: int
    marks: Mapping[str, int] = msgspec.field(default_factory=dict)  # number of allocations and frees before each phase and step

    def replay(self) -> Replay:
        """Replay the trace through the caching allocator and return its peaks, with bytes by label at the peak."""
        return replay_events(self.events, self.labels)


class TraceLog:
    """Records a module's storage allocations and frees, and its operator calls, while torch runs it without a GPU."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.labels: dict[int, str] = {}
        self.makers: dict[int, str] = {}
        self.operators: list[TracedOperator] = []
        self.marks: dict[str, int] = {}
        self.phase: TracePhase = "setup"
        self.step = 0
        self._alive: dict[int, int] = {}

    def begin(self, phase: TracePhase, step: int) -> None:
        """Begin a phase of a step; when backward begins, temporaries that forward left allocated are relabelled activations."""
        if phase == "backward" and self.phase == "forward":
            self.relabel({id for id in self._alive if self.labels[id] == "temporary"}, "activations")
        self.phase, self.step = phase, step
        self.marks[f"{phase} {step}"] = len(self.events)

    def birth(self, size: int, maker: str, label: str = "temporary") -> int:
        """Log the allocation of a storage of `size` bytes by operator `maker`; return the storage's id."""
        id = len(self.makers)
        self.makers[id] = maker
        self.labels[id] = label
        self._alive[id] = size
        self.events.append((id, size))
        return id

    def death(self, id: int) -> None:
        """Log that the storage with this id is freed; a second free is ignored."""
        size = self._alive.pop(id, None)
        if size is not None:
            self.events.append((id, -size))

    def relabel(self, ids: set[int], label: str) -> None:
        """Count the storages with these ids to another part of memory, such as activations or gradients."""
        for id in ids:
            self.labels[id] = label
