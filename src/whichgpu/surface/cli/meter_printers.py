"""Printers of GPU readings: JSON lines, table rows, a status line, or a block redrawn on a terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from whichgpu.base.codec import to_json_line
from whichgpu.base.messages import Message, msg, printable
from whichgpu.base.units import format_memory, significant
from whichgpu.measure.meter import Bill
from whichgpu.measure.watcher import WatchEvent, WatchReading, WatchSettings
from whichgpu.surface import tables
from whichgpu.surface.cells import cell_text, chosen_columns, heading
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document
from whichgpu.surface.machine_report import verdict_words
from whichgpu.surface.meter_text import block_lines, duration_text, money_text, reading_cells, status_line

COLUMNS = "time index name utilisation_percent memory_used_bytes power_watts temperature_celsius throttle idle_seconds".split()
PRICE_COLUMNS = ["money.amount", "idle_money.amount", "money.currency"]
LAST_SECONDS, REPORT_SECONDS = 5, 10  # A countdown is printed every second in its last 5, and every 10 before.


class Printer:
    """Base of the printers of `whichgpu watch`: prints GPU readings as they come, and a summary at the end."""

    def __init__(self, session: Session, reporter: EventReporter) -> None:
        self._session, self._reporter = session, reporter

    def show(self, reading: WatchReading) -> None:
        """Print one reading of all GPUs."""
        raise NotImplementedError

    def end(self, last: WatchReading) -> None:
        """Print the summary after the last reading: time, load, energy and cost."""
        self._reporter.say_summary(last.bill)


def printer_of(
    session: Session, names: Sequence[str], ids: Sequence[str | None], one_line: bool, settings: WatchSettings, then: str | None
) -> Printer:
    """Return the printer of GPU readings for the session's format; `then` is the command to run after the idle limit."""
    reporter = EventReporter(session, then)
    if session.format == "json":
        return JsonPrinter(session, reporter, names, ids)
    terminal = session.out.isatty() and os.environ.get("TERM") != "dumb"
    if one_line:
        return StatusLinePrinter(session, reporter, overwriting=terminal and not settings.once)
    if session.format in (None, "table") and terminal:
        return BlockPrinter(session, reporter, names, settings)
    return RowPrinter(session, reporter, names, settings)


class JsonPrinter(Printer):
    """Prints one JSON object per reading of the GPUs, and one for the summary."""

    def __init__(self, session: Session, reporter: EventReporter, names: Sequence[str], ids: Sequence[str | None]) -> None:
        super().__init__(session, reporter)
        self._names, self._ids = names, ids

    def show(self, reading: WatchReading) -> None:
        reply: dict[str, Any] = document(reading, self._session.language)
        bill = reply.pop("bill")
        reply["gpus"] = [self._with_name(gpu) for gpu in reply["gpus"]]
        self._write({**reply, **{name: bill[name] for name in ("seconds", "money", "idle_money")}})

    def end(self, last: WatchReading) -> None:
        self._write({"summary": document(last.bill, self._session.language)})

    def _with_name(self, gpu: dict[str, Any]) -> dict[str, Any]:
        place = gpu["index"]
        is_listed = place < len(self._names)
        return {"gpu": self._ids[place] if is_listed else None, "name": self._names[place] if is_listed else None, **gpu}

    def _write(self, value: object) -> None:
        self._session.out.write(to_json_line(value))
        self._session.out.flush()


class EventReporter:
    """Prints events on stderr, each once: idle or lost GPUs, changed bottlenecks, the countdown."""

    def __init__(self, session: Session, then: str | None) -> None:
        self._session, self._then = session, then
        self._verdicts: dict[int, str] = {}
        self._reported_seconds: int | None = None

    def messages(self, reading: WatchReading) -> list[Message]:
        """Return messages for the events of a reading: GPUs idle, lost or back, a countdown begun or cancelled."""
        return [message for event in reading.events if (message := self._message(event, reading))]

    def report(self, reading: WatchReading) -> None:
        """Print the events of a reading, bottlenecks that changed since the last one, and the countdown."""
        for message in self.messages(reading):
            self._session.say(message)
        if reading.countdown_seconds is not None and not any(event.kind == "run" for event in reading.events):
            self._report_countdown(round(reading.countdown_seconds))
        for verdict in reading.verdicts[:1] if len(reading.gpus) == 1 else reading.verdicts:
            if self._verdicts.get(verdict.gpu) != verdict.id:
                self._verdicts[verdict.gpu] = verdict.id
                words = verdict_words(verdict, self._session.language)
                self._session.say(msg("watch.verdict", gpu=verdict.gpu, what=words, advice=verdict.advice))

    def say_summary(self, bill: Bill) -> None:
        """Print the summary of a watch: time, GPU load, energy, peak memory and cost."""
        load = "–" if bill.utilisation_percent is None else f"{bill.utilisation_percent:.0f}%"
        values = {"time": duration_text(bill.seconds), "load": load, "idle": duration_text(bill.idle_total_seconds)}
        values["energy"] = "–" if bill.watt_hours is None else f"{significant(bill.watt_hours)} Wh"
        values["peak"] = "–" if bill.peak_bytes is None else format_memory(bill.peak_bytes)
        if bill.money is not None and bill.idle_money is not None:
            values |= {"money": money_text(bill.money), "idle_money": money_text(bill.idle_money)}
        self._session.say(msg("watch.summary-money" if "money" in values else "watch.summary", **values))

    def _report_countdown(self, left: int) -> None:
        if left != self._reported_seconds and (left <= LAST_SECONDS or left % REPORT_SECONDS == 0):
            self._session.say(msg("watch.countdown", command=self._then or "", seconds=left))
        self._reported_seconds = left

    def _message(self, event: WatchEvent, reading: WatchReading) -> Message | None:
        if event.kind in ("lost", "back"):
            return msg(f"watch.event.{event.kind}", gpu=event.gpu)
        if event.kind == "idle":
            wasted = reading.bill.idle_money
            id = "watch.event.idle-money" if wasted else "watch.event.idle"
            return msg(id, time=duration_text(reading.idle_seconds), money=money_text(wasted) if wasted else "")
        return msg(f"watch.event.{event.kind}") if event.kind not in ("countdown", "run") else None


class RowPrinter(Printer):
    """Prints a table as TSV, CSV or Markdown that grows by one row per GPU and reading."""

    def __init__(self, session: Session, reporter: EventReporter, names: Sequence[str], settings: WatchSettings) -> None:
        super().__init__(session, reporter)
        self._names = names
        self._default_columns = [*COLUMNS, *(PRICE_COLUMNS if settings.price else ())]
        self._columns: list[str] | None = None

    def show(self, reading: WatchReading) -> None:
        session = self._session
        rows = [
            reading_cells(reading, sample, self._names[sample.index] if sample.index < len(self._names) else "")
            for sample in reading.gpus
        ]
        raw = session.format == "csv"
        header: Sequence[str] | None = None
        if self._columns is None:
            self._columns = chosen_columns(session.columns, rows, () if raw else self._default_columns, session.language)
            header = self._columns if raw else [heading(name, session.language) for name in self._columns]
        lines = [
            [row[name] if raw else printable(cell_text(name, row[name], session.language)) for name in self._columns]
            for row in rows
        ]
        self._write(header, lines)
        session.out.flush()
        self._reporter.report(reading)

    def _write(self, header: Sequence[str] | None, rows: list[list[Any]]) -> None:
        out, form = self._session.out, self._session.format
        if form == "markdown" and not header:
            out.writelines("| " + " | ".join(str(cell) for cell in row) + " |\n" for row in rows)
            return
        first, *rest = [header, *rows] if header else rows
        tables.WRITERS[form if form in ("csv", "markdown") else "tsv"](out, first, rest)


class StatusLinePrinter(Printer):
    """Prints one line per reading; on a terminal it overwrites the line before."""

    def __init__(self, session: Session, reporter: EventReporter, overwriting: bool) -> None:
        super().__init__(session, reporter)
        self._overwriting = overwriting

    def show(self, reading: WatchReading) -> None:
        out = self._session.out
        text = printable(status_line(reading, self._session.language))
        for message in self._reporter.messages(reading):
            if self._overwriting:
                out.write("\r\x1b[K")
                out.flush()
            self._session.say(message)
        if self._overwriting:
            width = shutil.get_terminal_size().columns
            out.write(f"\r{text[: max(20, width - 1)]}\x1b[K")
        else:
            out.write(text + "\n")
        out.flush()

    def end(self, last: WatchReading) -> None:
        if self._overwriting:
            self._session.out.write("\n")
            self._session.out.flush()
        super().end(last)


class BlockPrinter(Printer):
    """Redraws a block of lines at each reading; events are printed above the block and are not overwritten."""

    def __init__(self, session: Session, reporter: EventReporter, names: Sequence[str], settings: WatchSettings) -> None:
        super().__init__(session, reporter)
        self._names, self._settings = names, settings
        self._line_count = 0

    def show(self, reading: WatchReading) -> None:
        out = self._session.out
        width, height = shutil.get_terminal_size()
        if self._line_count:
            out.write(f"\x1b[{self._line_count}F\x1b[J")
            out.flush()
        for message in self._reporter.messages(reading):
            self._session.say(message)
        lines = [
            printable(one) for one in block_lines(reading, self._names, self._session.language, self._settings.rule.limit, width)
        ]
        lines = lines[: max(1, height - 1)]  # Lines that have scrolled away cannot be redrawn.
        out.write("\n".join(lines) + "\n")
        out.flush()
        self._line_count = len(lines)
