"""How a meter is printed: JSON lines, rows of a table, one line for a status bar, or a block drawn over on a terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any, Protocol

from whichgpu.base.codec import to_json_line
from whichgpu.base.messages import Message, msg, printable
from whichgpu.base.units import format_memory, significant
from whichgpu.measure.meter import Bill
from whichgpu.measure.watcher import WatchEvent, WatchReading, WatchSettings
from whichgpu.surface import tables
from whichgpu.surface.cells import chosen, human, label
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document
from whichgpu.surface.machine_report import verdict_words
from whichgpu.surface.meter_text import block, cells, coins, line, span

USUAL = "time index name utilisation_percent memory_used_bytes power_watts temperature_celsius throttle idle_seconds".split()
PRICED = ["money.amount", "idle_money.amount", "money.currency"]
LAST_SECONDS, TELL_EVERY = 5, 10  # of a countdown, where each line stays on the screen


class Printer(Protocol):
    """Shows readings as they come, and a summary at the end."""

    def show(self, reading: WatchReading) -> None:
        """One reading."""
        ...

    def end(self, last: WatchReading) -> None:
        """The summary."""
        ...


def printer_of(
    session: Session, names: Sequence[str], ids: Sequence[str | None], one_line: bool, settings: WatchSettings, then: str | None
) -> Printer:
    """The printer for the format in force."""
    if session.format == "json":
        return JsonLines(session, names, ids)
    teller = Teller(session, settings, then)
    terminal = session.out.isatty() and os.environ.get("TERM") != "dumb"
    if one_line:
        return OneLine(session, teller, overwriting=terminal and not settings.once)
    if session.format in (None, "table") and terminal:
        return Block(session, teller, names, settings)
    return Rows(session, teller, names, settings)


class JsonLines:
    """One JSON object a reading, and one for the summary."""

    def __init__(self, session: Session, names: Sequence[str], ids: Sequence[str | None]) -> None:
        self._session, self._names, self._ids = session, names, ids

    def show(self, reading: WatchReading) -> None:
        """Every field."""
        told: dict[str, Any] = document(reading, self._session.language)
        bill = told.pop("bill")
        told["gpus"] = [self._named(gpu) for gpu in told["gpus"]]
        self._write({**told, **{name: bill[name] for name in ("seconds", "money", "idle_money")}})

    def end(self, last: WatchReading) -> None:
        """The bill."""
        self._write({"summary": document(last.bill, self._session.language)})

    def _named(self, gpu: dict[str, Any]) -> dict[str, Any]:
        place = gpu["index"]
        known = place < len(self._names)
        return {"gpu": self._ids[place] if known else None, "name": self._names[place] if known else None, **gpu}

    def _write(self, value: object) -> None:
        self._session.out.write(to_json_line(value))
        self._session.out.flush()


class Teller:
    """Says on stderr what happened: idle, lost, countdown; each once."""

    def __init__(self, session: Session, settings: WatchSettings, then: str | None) -> None:
        self._session, self._settings, self._then = session, settings, then
        self._verdicts: dict[int, str] = {}
        self._told_left: int | None = None

    def messages(self, reading: WatchReading) -> list[Message]:
        """What is worth a line in this reading."""
        return [message for event in reading.events if (message := self._message(event, reading))]

    def tell(self, reading: WatchReading) -> None:
        """Events, changed verdicts and the countdown, where lines stay."""
        for message in self.messages(reading):
            self.say(message)
        if reading.countdown_seconds is not None and not any(event.kind == "run" for event in reading.events):
            self._tell_countdown(round(reading.countdown_seconds))
        for verdict in reading.verdicts[:1] if len(reading.gpus) == 1 else reading.verdicts:
            if self._verdicts.get(verdict.gpu) != verdict.id:
                self._verdicts[verdict.gpu] = verdict.id
                words = verdict_words(verdict, self._session.language)
                self.say(msg("watch.verdict", gpu=verdict.gpu, what=words, advice=verdict.advice))

    def say(self, message: Message) -> None:
        """A line on stderr."""
        self._session.say(message)

    def summary(self, bill: Bill) -> Message:
        """What it came to."""
        load = "–" if bill.utilisation_percent is None else f"{bill.utilisation_percent:.0f}%"
        values: dict[str, object] = {"time": span(bill.seconds), "load": load, "idle": span(bill.idle_total_seconds)}
        values["energy"] = "–" if bill.watt_hours is None else f"{significant(bill.watt_hours)} Wh"
        values["peak"] = "–" if bill.peak_bytes is None else format_memory(bill.peak_bytes)
        if bill.money is None or bill.idle_money is None:
            return msg("watch.summary", **values)
        return msg("watch.summary-money", money=coins(bill.money), idle_money=coins(bill.idle_money), **values)

    def _tell_countdown(self, left: int) -> None:
        if left != self._told_left and (left <= LAST_SECONDS or left % TELL_EVERY == 0):
            self.say(msg("watch.countdown", command=self._then or "", seconds=left))
        self._told_left = left

    def _message(self, event: WatchEvent, reading: WatchReading) -> Message | None:
        if event.kind in ("lost", "back"):
            return msg(f"watch.event.{event.kind}", gpu=event.gpu)
        if event.kind == "idle":
            wasted = reading.bill.idle_money
            id = "watch.event.idle-money" if wasted else "watch.event.idle"
            return msg(id, time=span(reading.idle_seconds), money=coins(wasted) if wasted else "")
        return msg(f"watch.event.{event.kind}") if event.kind not in ("countdown", "run") else None


class Rows:
    """A table that grows: TSV, CSV or Markdown, one row a GPU and reading."""

    def __init__(self, session: Session, teller: Teller, names: Sequence[str], settings: WatchSettings) -> None:
        self._session, self._teller, self._names = session, teller, names
        self._usual = [*USUAL, *(PRICED if settings.price else ())]
        self._columns: list[str] | None = None

    def show(self, reading: WatchReading) -> None:
        """Its rows, after the header where they are the first."""
        session = self._session
        rows = [
            cells(reading, sample, self._names[sample.index] if sample.index < len(self._names) else "")
            for sample in reading.gpus
        ]
        raw = session.format == "csv"
        header: Sequence[str] | None = None
        if self._columns is None:
            self._columns = chosen(session.columns, rows, () if raw else self._usual, session.language)
            header = self._columns if raw else [label(name, session.language) for name in self._columns]
        shown = [
            [row[name] if raw else printable(human(name, row[name], session.language)) for name in self._columns] for row in rows
        ]
        self._write(header, shown)
        session.out.flush()
        self._teller.tell(reading)

    def end(self, last: WatchReading) -> None:
        """The summary."""
        self._teller.say(self._teller.summary(last.bill))

    def _write(self, header: Sequence[str] | None, rows: list[list[Any]]) -> None:
        out, form = self._session.out, self._session.format
        if form == "markdown":
            if header:
                tables.write_markdown(out, header, rows)
            else:
                out.writelines("| " + " | ".join(str(cell) for cell in row) + " |\n" for row in rows)
            return
        write = tables.write_csv if form == "csv" else tables.write_tsv
        lines = [header, *rows] if header else rows
        write(out, lines[0], lines[1:])


class OneLine:
    """One line a reading, for a status bar; on a terminal each over the last."""

    def __init__(self, session: Session, teller: Teller, overwriting: bool) -> None:
        self._session, self._teller, self._overwriting = session, teller, overwriting

    def show(self, reading: WatchReading) -> None:
        """The line."""
        out = self._session.out
        text = printable(line(reading, self._session.language))
        for message in self._teller.messages(reading):
            if self._overwriting:
                out.write("\r\x1b[K")
                out.flush()
            self._teller.say(message)
        if self._overwriting:
            width = shutil.get_terminal_size().columns
            out.write(f"\r{text[: max(20, width - 1)]}\x1b[K")
        else:
            out.write(text + "\n")
        out.flush()

    def end(self, last: WatchReading) -> None:
        """The summary, on a line of its own."""
        if self._overwriting:
            self._session.out.write("\n")
            self._session.out.flush()
        self._teller.say(self._teller.summary(last.bill))


class Block:
    """Some lines drawn over each time; what happened is said above them and stays."""

    def __init__(self, session: Session, teller: Teller, names: Sequence[str], settings: WatchSettings) -> None:
        self._session, self._teller, self._names, self._settings = session, teller, names, settings
        self._drawn = 0

    def show(self, reading: WatchReading) -> None:
        """Draw it over the last."""
        out = self._session.out
        width, height = shutil.get_terminal_size()
        if self._drawn:
            out.write(f"\x1b[{self._drawn}F\x1b[J")
            out.flush()
        for message in self._teller.messages(reading):
            self._teller.say(message)
        lines = [printable(one) for one in block(reading, self._names, self._session.language, self._settings.rule.limit, width)]
        lines = lines[: max(1, height - 1)]  # what has scrolled away cannot be drawn over
        out.write("\n".join(lines) + "\n")
        out.flush()
        self._drawn = len(lines)

    def end(self, last: WatchReading) -> None:
        """The summary below."""
        self._teller.say(self._teller.summary(last.bill))
