"""`whichgpu measure`: benchmark this machine's GPU, save its calibration, verify estimates, share records."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from whichgpu.api.measure.endpoint import EndpointAnswer
from whichgpu.api.measure.measure import MeasureAnswer, VerifyAnswer, headline
from whichgpu.api.measure.stored_records import RecordsAnswer
from whichgpu.api.request.field import flag_of
from whichgpu.api.request.machine import MeasureRequest
from whichgpu.api.request.read import read, workload
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.files import user_path
from whichgpu.base.messages import Language, msg
from whichgpu.base.units import format_bandwidth, format_seconds, significant
from whichgpu.measure.bench.case import Conditions
from whichgpu.measure.record import MicroResult, Record, StepResult
from whichgpu.surface.commands.command import Request, command, command_named, read_flags
from whichgpu.surface.commands.render.endpoint import show_endpoint
from whichgpu.surface.commands.render.records import show_records
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document
from whichgpu.workload.spelling import ParsedWorkload

DEFAULT_MINUTES = 3.0  # Default duration of all benchmarks, in minutes.
COLUMNS = ("case", "measured", "spread", "predicted", "verdict", "state")


class TransferredRecord(msgspec.Struct, frozen=True):
    """A measurement record that was exported to a file or imported from one; `id` is the message that says so."""

    id: str
    record: Record
    path: str


Answer = MeasureAnswer | VerifyAnswer | TransferredRecord | EndpointAnswer | RecordsAnswer
ACTIONS = ("endpoint", "share", "imported", "records", "forget")  # Fields of which a request has at most one.


def measure(session: Session, request: Request) -> Answer:
    """Benchmark this machine's GPU or a server, verify an estimate, or export, import, list or forget records, as requested."""
    from whichgpu.api.measure.measure import import_record, share_record, verify

    values = read(MeasureRequest, request, session.spell)
    actions = [name for name in ACTIONS if name in values]
    if len(actions) > 1 or ("verify" in values and {"share", "records", "forget"} & set(actions)):
        raise UsageError("usage", msg("error.measure-one"), msg("hint.see-help", command="whichgpu measure"))
    if "endpoint" in values:
        return _measure_endpoint(session, values)
    if extra := next((name for name in ("concurrency", "yes") if name in values), None):
        raise UsageError("usage", msg("error.endpoint-only", flag=flag_of(extra)), msg("hint.bad-endpoint"))
    if "records" in values or "forget" in values:
        from whichgpu.api.measure.stored_records import forget_record, list_records

        return forget_record(values["forget"], session.catalog) if "forget" in values else list_records(session.catalog)
    if path := values.get("share"):
        return TransferredRecord("measure.shared", share_record(path), str(request["share"]))
    if path := values.get("imported"):
        from whichgpu.api.measure.load_tests import import_load_tests, is_load_test_file

        if is_load_test_file(path, "verify" in values):
            claim = read_claim(values["verify"]) if "verify" in values else None
            return import_load_tests(path, claim, session.catalog, session.today, not values.get("no_keep"))
        if "verify" in values:
            raise UsageError("usage", msg("error.measure-one"), msg("hint.see-help", command="whichgpu measure"))
        record = import_record(path, session.catalog, session.today)
        return TransferredRecord("measure.imported", record, str(request["imported"]))
    try:
        if (claim := values.get("verify")) is not None:
            return verify(read_claim(claim), session.catalog, not values.get("no_own_measurements"))
        return _measure(session, values.get("minutes", DEFAULT_MINUTES), keep=not values.get("no_keep"))
    except NoAnswer as none:  # Without a GPU, text output has only the message; JSON also has the hint.
        if session.format == "json" or none.kind not in ("no-gpu-here", "no-torch"):
            raise
        raise NoAnswer(none.kind, none.message) from none


def read_claim(text: str) -> ParsedWorkload:
    """Parse the request of an `estimate` command line, with or without a leading `whichgpu`."""
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise UsageError("bad-claim", msg("error.bad-claim", text=text), msg("hint.claim")) from problem
    if words[:1] == ["whichgpu"]:
        words = words[1:]
    if words[:1] != ["estimate"]:
        raise UsageError("bad-claim", msg("error.bad-claim", text=text), msg("hint.claim"))
    values = read_flags(command_named("estimate"), words[1:])
    if "requests" in values or "task" not in values or "model" not in values:
        raise UsageError("bad-claim", msg("error.bad-claim", text=text), msg("hint.claim"))
    return workload(values, flag_of)


def _measure_endpoint(session: Session, values: Mapping[str, Any]) -> EndpointAnswer:
    from whichgpu.api.measure import endpoint as verbs

    question = verbs.EndpointQuestion(
        values["endpoint"],
        verbs.parse_levels(values["concurrency"]) if "concurrency" in values else verbs.LEVELS,
        60.0 * values.get("minutes", DEFAULT_MINUTES),
        read_claim(values["verify"]) if "verify" in values else None,
        bool(values.get("yes")),
        not values.get("no_keep"),
        not values.get("no_own_measurements"),
    )
    return verbs.measure_endpoint(question, os.environ.get(verbs.KEY_VARIABLE) or None, session.catalog, session.say)


def _measure(session: Session, minutes: float, keep: bool) -> MeasureAnswer:
    from whichgpu.api.measure import measure as verbs

    live = sys.stderr.isatty() and session.format != "json"

    def progress(case: str) -> None:
        if live:
            session.err.write(f"\r\x1b[K{session.language.text('measure.running', case=case)}")
            session.err.flush()

    answer = verbs.measure(60.0 * minutes, session.catalog, keep, progress)
    if live:
        session.err.write("\r\x1b[K")
    return answer


@command("measure", MeasureRequest, ask=measure)
def show(session: Session, answer: Answer) -> int:
    """Print benchmark results, whether an estimate was confirmed, where a record was written, or the stored records."""
    if isinstance(answer, RecordsAnswer):
        return show_records(session, answer)
    if isinstance(answer, EndpointAnswer):
        return show_endpoint(session, answer)
    if isinstance(answer, VerifyAnswer):
        return _show_verified(session, answer)
    return _show_transferred(session, answer) if isinstance(answer, TransferredRecord) else _show_measured(session, answer)


def _show_measured(session: Session, answer: MeasureAnswer) -> int:
    if session.format == "json":
        session.emit(_document(answer, session.language))
        return 0 if answer.record.steps or answer.record.micro else 1
    session.say(headline(answer))
    text = session.language.text
    rows = [*_micro_rows(answer), *_step_rows(answer, session.language)]
    session.table([text(f"measure.column.{name}") for name in COLUMNS], rows)
    for one in answer.left_out:
        session.say(msg("measure.left-out", case=one.id, why=one.why))
    if answer.path:
        session.say(msg("measure.kept", path=answer.path))
    return 0 if answer.record.steps or answer.record.micro else 1


def _micro_rows(answer: MeasureAnswer) -> Iterator[tuple[str, ...]]:
    for one in answer.record.micro:
        share = "" if one.share is None else f"{one.share:.0%}"
        yield one.id, f"{format_seconds(one.seconds)}, {_rate(one)}", _spread(one), share, "", _state(one.conditions)


def _step_rows(answer: MeasureAnswer, language: Language) -> Iterator[tuple[str, ...]]:
    for one in answer.record.steps:
        claim = one.predicted
        text = f"{format_seconds(claim.value)} ({format_seconds(claim.low)} – {format_seconds(claim.high)})" if claim else ""
        verdict = "" if one.inside is None else language.text("measure.inside" if one.inside else "measure.outside")
        yield one.id, format_seconds(one.seconds), _spread(one), text, verdict, _state(one.conditions)


def _rate(one: MicroResult) -> str:
    if one.unit == "FLOP/s":
        return f"{significant(one.rate / 1e12)} TFLOP/s"
    return format_bandwidth(int(one.rate)) if one.unit == "B/s" else f"{significant(one.rate)}/s"


def _spread(one: MicroResult | StepResult) -> str:
    return f"±{(one.high - one.low) / 2 / one.seconds:.1%}"


def _state(conditions: Conditions) -> str:
    parts = [
        f"{conditions.sm_clock_hz / 10**6:,.0f} MHz" if conditions.sm_clock_hz else "",
        f"{conditions.temperature_celsius} °C" if conditions.temperature_celsius is not None else "",
        f"{conditions.power_watts:.0f} W" if conditions.power_watts is not None else "",
        *(conditions.throttle or ()),
    ]
    return ", ".join(part for part in parts if part)


def _document(answer: MeasureAnswer, language: Language) -> dict[str, Any]:
    reply: dict[str, Any] = document(answer, language)
    for row, step in zip(reply["record"]["steps"], answer.record.steps, strict=True):
        row["inside"] = step.inside
    return {"ok": True, **reply}


def _show_verified(session: Session, answer: VerifyAnswer) -> int:
    if session.format == "json":
        session.emit({"ok": True, **document(answer, session.language)})
        return 0
    claim, measured = answer.claim.time, answer.measured
    assert claim is not None
    session.say(
        msg(
            "verify.inside" if answer.inside else "verify.outside",
            measured=format_seconds(measured.seconds),
            predicted=format_seconds(claim.value),
            low=format_seconds(claim.low),
            high=format_seconds(claim.high),
            off=f"{answer.ratio - 1:+.1%}",
            state=_state(answer.conditions) or "?",
        )
    )
    text = session.language.text
    times = {"predicted": (claim.value, claim.low, claim.high), "measured": (measured.seconds, measured.low, measured.high)}
    rows = [(text(f"measure.{name}"), *map(format_seconds, seconds)) for name, seconds in times.items()]
    session.table([text(f"column.{name}") for name in ("part", "value", "low", "high")], rows)
    return 0


def _show_transferred(session: Session, transferred: TransferredRecord) -> int:
    record, path = transferred.record, str(user_path(transferred.path))
    if session.format == "json":
        session.emit({"ok": True, "record": record.source, "steps": len(record.steps), "file": path})
    else:
        session.say(msg(transferred.id, record=record.source, n=len(record.steps), path=path))
    return 0
