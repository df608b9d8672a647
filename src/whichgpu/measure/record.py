"""A record of measurements: cases, machine, software, date and results, without private data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.version import __version__
from whichgpu.estimate.own_records import RECORD_PREFIX
from whichgpu.measure.bench.case import Conditions, OperatorCase, StepCase
from whichgpu.measure.bench.runner import MeasuredCase

FORMAT = 1  # Version of the record's layout.


class MicroResult(msgspec.Struct, frozen=True):
    """Measured time of a single operator, and its rate as a share of the chip's peak or bandwidth."""

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
    share: float | None = None  # rate as a share of the chip's peak or bandwidth
    conditions: Conditions = msgspec.field(default_factory=Conditions)


class PredictedTime(msgspec.Struct, frozen=True):
    """Estimated seconds of a step by the shipped calibration, without corrections from the user's measurements."""

    value: float
    low: float
    high: float
    basis: str


class StepResult(msgspec.Struct, frozen=True):
    """Measured time of a training or inference step, and its predicted time."""

    id: str
    request: Mapping[str, Any]
    seconds: float
    low: float
    high: float
    runs: int
    predicted: PredictedTime | None = None
    conditions: Conditions = msgspec.field(default_factory=Conditions)

    @property
    def inside(self) -> bool | None:
        """Whether the measured time lies within the predicted range; None if there is no prediction."""
        return None if self.predicted is None else self.predicted.low <= self.seconds <= self.predicted.high


class MeasuredMachine(msgspec.Struct, frozen=True):
    """The GPU (and how many of it), driver, processor and software versions of a measurement."""

    gpu: str  # id of the variant in the catalog
    gpus: int = 1
    driver: str | None = None
    cpu: str | None = None
    software: Mapping[str, str] = msgspec.field(default_factory=dict)


class FittedCorrections(msgspec.Struct, frozen=True):
    """Multipliers of estimated times, by engine or task and by part of the time, fitted to a record's measured steps."""

    against: str
    kinds: tuple[str, ...]
    multipliers: Mapping[str, Mapping[str, float]]
    spreads: Mapping[str, float]


class Record(msgspec.Struct, frozen=True):
    """All measurements of one `measure` run, with machine and software; `digest` covers all but the fit, which may be redone."""

    made: str  # day of the measurement, with UTC time in the user's own records
    where: MeasuredMachine
    micro: tuple[MicroResult, ...] = ()
    steps: tuple[StepResult, ...] = ()
    fitted: FittedCorrections | None = None
    whichgpu: str = __version__
    format: int = FORMAT
    digest: str = ""

    @property
    def source(self) -> str:
        """Return the id that estimates corrected by this measurement record cite as their source."""
        return f"{RECORD_PREFIX}{self.where.gpu}-{self.made[:10]}-{self.digest[:8]}"


def with_digest(record: Record) -> Record:
    """Return a measurement record with its SHA-256 digest filled in."""
    return replace(record, digest=digest_of(_plain(replace(record, digest=""))))


def digest_of(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a measurement record as JSON, computed without its fields `digest` and `fitted`."""
    content = {name: value for name, value in document.items() if name not in ("digest", "fitted")}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def to_json(record: Record) -> str:
    """Return a measurement record as JSON text."""
    return json.dumps(_plain(record), indent=1, ensure_ascii=False) + "\n"


def from_json(text: bytes, name: str) -> Record:
    """Return the measurement record in a JSON text, its digest verified; `name` is the file's name for errors."""
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
    """Return a measurement record for sharing: its date without the time of day, and without fitted corrections."""
    return with_digest(replace(record, made=record.made[:10], fitted=None))


def micro_result(measured: MeasuredCase, case: OperatorCase, share: float | None) -> MicroResult:
    """Return a measured operator as an entry of a record; `share` is its rate over the chip's peak or bandwidth."""
    time = measured.timing
    rate = case.rate(time.seconds)
    return MicroResult(
        case.id, case.kind, case.dtype, dict(case.sizes), time.seconds, time.low, time.high, time.runs, rate, case.unit, share,
        measured.conditions,
    )  # fmt: skip


def step_result(measured: MeasuredCase, case: StepCase, predicted: PredictedTime | None) -> StepResult:
    """Return a measured training or inference step as an entry of a record, with its predicted time."""
    time = measured.timing
    return StepResult(
        case.id, dict(case.request), time.seconds, time.low, time.high, time.runs, predicted, measured.conditions
    )  # fmt: skip


def stamp(moment: datetime) -> str:
    """Return a UTC time as ISO 8601 text to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _plain(record: Record) -> dict[str, Any]:
    import msgspec

    return dict(msgspec.to_builtins(record))


def _bad(name: str, why: Any) -> UsageError:
    return UsageError("bad-record", msg("error.bad-record", name=name, why=why), msg("hint.bad-record"))
