"""A record of measurements: what, where, with which software, when, and the numbers. Holds nothing private."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.version import __version__
from whichgpu.measure.bench.case import Conditions, OperatorCase, StepCase
from whichgpu.measure.bench.runner import Taken

FORMAT = 1


@dataclass(frozen=True, slots=True)
class MicroResult:
    """An operator's time, and its rate against what the chip is said to do."""

    id: str
    kind: str
    dtype: str
    sizes: Mapping[str, int]
    seconds: float
    low: float
    high: float
    runs: int
    rate: float
    unit: str
    share: float | None = None  # of the peak or the bandwidth
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class PredictedTime:
    """What was said before it was measured, without own measurements."""

    value: float
    low: float
    high: float
    basis: str


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step's time beside what was predicted."""

    id: str
    request: Mapping[str, Any]
    seconds: float
    low: float
    high: float
    runs: int
    predicted: PredictedTime | None = None
    conditions: Conditions = field(default_factory=Conditions)

    @property
    def inside(self) -> bool | None:
        """Whether the measured time lies in the predicted range."""
        return None if self.predicted is None else self.predicted.low <= self.seconds <= self.predicted.high


@dataclass(frozen=True, slots=True)
class MeasuredMachine:
    """The GPU and what ran on it."""

    gpu: str  # id in the catalog
    gpus: int = 1
    driver: str | None = None
    cpu: str | None = None
    software: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FittedCorrections:
    """Multipliers fitted from the steps: see `estimate.time.own_corrections.Own`."""

    against: str
    kinds: tuple[str, ...]
    multipliers: Mapping[str, Mapping[str, float]]
    spreads: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Record:
    """All of it. `digest` is over what was measured: the fit may be made anew."""

    made: str  # a date, with the time of day in UTC where it is the user's own
    where: MeasuredMachine
    micro: tuple[MicroResult, ...] = ()
    steps: tuple[StepResult, ...] = ()
    fitted: FittedCorrections | None = None
    whichgpu: str = __version__
    format: int = FORMAT
    digest: str = ""

    @property
    def source(self) -> str:
        """How figures cite it."""
        return f"measured-{self.where.gpu}-{self.made[:10]}-{self.digest[:8]}"


def with_digest(record: Record) -> Record:
    """With the digest of what it says."""
    return replace(record, digest=digest_of(_plain(replace(record, digest=""))))


def digest_of(document: Mapping[str, Any]) -> str:
    """The sum over a document without its own sum and its fit."""
    told = {name: value for name, value in document.items() if name not in ("digest", "fitted")}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def to_json(record: Record) -> str:
    """The document as it is kept."""
    return json.dumps(_plain(record), indent=1, ensure_ascii=False) + "\n"


def from_json(text: bytes, name: str) -> Record:
    """A record of the right form whose digest agrees; whether its numbers can be true is `physics`'s question."""
    import msgspec

    try:
        document = msgspec.json.decode(text)
        record = msgspec.convert(document, Record)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise _bad(name, msg("record.malformed", why=str(problem))) from problem
    if record.format != FORMAT:
        raise _bad(name, msg("record.format", format=record.format))
    if digest_of(document) != record.digest:
        raise _bad(name, msg("record.digest"))
    return record


def redacted(record: Record) -> Record:
    """For others: the day alone, no fit (they make their own), the CPU's model without the rest."""
    return with_digest(replace(record, made=record.made[:10], fitted=None))


def micro_result(taken: Taken, case: OperatorCase, share: float | None) -> MicroResult:
    """An operator that was run."""
    time = taken.timing
    rate = case.rate(time.seconds)
    return MicroResult(
        case.id, case.kind, case.dtype, dict(case.sizes), time.seconds, time.low, time.high, time.runs, rate, case.unit, share,
        taken.conditions,
    )  # fmt: skip


def step_result(taken: Taken, case: StepCase, predicted: PredictedTime | None) -> StepResult:
    """A step that was run."""
    time = taken.timing
    return StepResult(
        case.id, dict(case.request), time.seconds, time.low, time.high, time.runs, predicted, taken.conditions
    )  # fmt: skip


def stamp(moment: datetime) -> str:
    """To the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _plain(record: Record) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(record)
    return found


def _bad(name: str, why: Any) -> UsageError:
    return UsageError("bad-record", msg("error.bad-record", name=name, why=why), msg("hint.bad-record"))
