"""`whichgpu doctor`: a report on this machine, ready to paste."""

from __future__ import annotations

from typing import Any

from whichgpu.api.request.machine import DoctorRequest
from whichgpu.api.request.read import read
from whichgpu.base.messages import Language, Message, msg, printable
from whichgpu.measure.report.doctor import Report
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document
from whichgpu.surface.machine_report import card_facts, finding_rows, gpu_label, host_facts, verdict_words
from whichgpu.surface.tables import write_markdown

Row = tuple[str, str, str]
DEFAULT_SECONDS, MAX_SECONDS = 10.0, 600.0  # Seconds for which a running job is watched.


def doctor(session: Session, request: Request) -> Report:
    """Return a report on this machine; if a running job is to be diagnosed, its GPUs are watched for a while."""
    from whichgpu.api.measure import machine as verbs

    lasting = read(DoctorRequest, request, session.spell).get("lasting")
    seconds = min(lasting or DEFAULT_SECONDS, MAX_SECONDS) if request.get("running") or lasting else None
    if seconds is not None:
        session.say(msg("doctor.watching", seconds=f"{seconds:g}"))
    return verbs.doctor(session.catalog, seconds)


@command("doctor", DoctorRequest, ask=doctor)
def show(session: Session, report: Report) -> None:
    """Print the report on this machine: facts of host and GPUs, then the problems found."""
    if session.format == "json":
        session.emit(_document(report, session.language))
        return
    session.say(headline(report))
    if session.format == "markdown":
        _write_markdown(session, report)
        return
    text = session.language.text
    rows = [(text("doctor.machine"), *fact) for fact in host_facts(report, session.language)]
    for detected in report.gpus:
        name = gpu_label([detected.card.index], session.language)
        rows += [(name, *fact) for fact in card_facts(detected, session.language)]
    rows += _closing_rows(report, session.language)
    session.table([text(f"doctor.column.{name}") for name in ("part", "fact", "value")], [_printable(row) for row in rows])


def headline(report: Report) -> Message:
    """Return a message that counts the GPUs by name and the findings that need attention."""
    if not report.gpus:
        return msg("doctor.none")
    names = [detected.match.name or detected.card.name for detected in report.gpus]
    counts = tuple(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return msg("doctor.headline", gpus=counts, n=sum(finding.level != "note" for finding in report.findings))


def _closing_rows(report: Report, language: Language) -> list[Row]:
    """Return problems found and bottlenecks of running jobs as rows of the report's table."""
    rows = finding_rows(report.findings, language)
    for verdict in report.running or ():
        words = language.text("diagnose.told", what=verdict_words(verdict, language), advice=verdict.advice)
        rows.append((gpu_label([verdict.gpu], language), language.text("doctor.running"), words))
    return rows


def _write_markdown(session: Session, report: Report) -> None:
    """Print the report on this machine as Markdown sections and tables, ready to paste into an issue."""
    out, language, text = session.out, session.language, session.language.text
    header = [text("column.fact"), text("column.value")]
    out.write(f"### whichgpu {report.whichgpu} doctor\n\n")
    write_markdown(out, header, [_printable(row) for row in host_facts(report, language)])
    for detected in report.gpus:
        out.write(f"\n#### {gpu_label([detected.card.index], language)}\n\n")
        write_markdown(out, header, [_printable(row) for row in card_facts(detected, language)])
    if closing := _closing_rows(report, language):
        out.write(f"\n#### {text('doctor.findings')}\n\n")
        for where, level, words in closing:
            out.write(f"- **{level}** ({where}): {printable(words)}\n")


def _printable(row: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(printable(cell) for cell in row)


def _document(report: Report, language: Language) -> dict[str, Any]:
    reply: dict[str, Any] = document(report, language)
    reply["gpus"] = [{**detected["card"], "match": detected["match"]} for detected in reply["gpus"]]
    if report.running is None:
        del reply["running"]
    return reply
