"""Text of GPU readings: a status line, a block for a terminal, or cells of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whichgpu.base.codec import Cell
from whichgpu.base.messages import Language
from whichgpu.base.money import WHOLE_CURRENCIES, Money
from whichgpu.base.text_width import cell_width, pad, truncate, wrap
from whichgpu.base.units import GIB, significant
from whichgpu.measure.drivers.card import Sample
from whichgpu.measure.meter import Bill
from whichgpu.measure.watcher import WatchReading
from whichgpu.surface.machine_report import verdict_words


def duration_text(seconds: float) -> str:
    """Return a duration in seconds as text in its two largest units.

    >>> duration_text(45), duration_text(754), duration_text(3600 * 3 + 300), duration_text(200000)
    ('45 s', '12 min', '3 h 05 min', '2 d 7 h')
    """
    rounded = int(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min"
    if rounded < 86400:
        return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"
    return f"{rounded // 86400} d {rounded % 86400 // 3600} h"


def money_text(money: Money) -> str:
    """Return an amount of money as text with its currency's decimals, or four below one unit: `0.0123 USD`, `1250 KRW`."""
    places = (0 if money.currency in WHOLE_CURRENCIES else 2) if money.amount >= 1 else 4
    return f"{money.amount:.{places}f} {money.currency}"


def status_line(reading: WatchReading, language: Language) -> str:
    """Return one line with the state of all GPUs, the money spent and the main bottlenecks."""
    alive = [sample for sample in reading.gpus if not sample.lost]
    head = f"GPU {reading.gpus[0].index}" if len(reading.gpus) == 1 else language.text("watch.gpus", n=len(reading.gpus))
    parts = [head, *_summed(alive)]
    if len(alive) < len(reading.gpus):
        parts.append(language.text("watch.lost-count", n=len(reading.gpus) - len(alive)))
    if not reading.answering:
        parts.append(language.text("watch.no-answer"))
    first = {verdict.gpu: verdict for verdict in reversed(reading.verdicts)}
    why = language.listed(dict.fromkeys(verdict.what for verdict in first.values()))
    texts = [" ".join(parts), bill_words(reading.bill, language), idle_words(reading, language), why]
    return " | ".join(part for part in texts if part)


def bill_words(bill: Bill, language: Language) -> str:
    """Return the money spent on the machine so far, and the part spent while GPUs were idle, as text."""
    if bill.money is None or bill.idle_money is None:
        return ""
    return language.text("watch.bill", money=money_text(bill.money), idle=money_text(bill.idle_money))


def idle_words(reading: WatchReading, language: Language) -> str:
    """Return the idle time of all GPUs, or the remaining countdown, as text."""
    if reading.countdown_seconds is not None:
        return language.text("watch.counting", seconds=f"{reading.countdown_seconds:.0f}")
    return language.text("watch.idle-for", time=duration_text(reading.idle_seconds)) if reading.idle_seconds >= 1 else ""


def block_lines(reading: WatchReading, names: Sequence[str], language: Language, limit: float | None, width: int) -> list[str]:
    """Return the lines of a block about all GPUs, none wider than the terminal, so that they can be redrawn."""
    text = language.text
    header = [text(f"watch.column.{name}") for name in ("gpu", "load", "memory", "power", "temperature", "clock", "note")]
    rows = [header, *(_row(sample, names, language) for sample in reading.gpus)]
    widths = [max(cell_width(row[place]) for row in rows) for place in range(len(header))]
    lines = ["  ".join(pad(cell, size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]
    time = text("watch.time", time=duration_text(reading.bill.seconds))
    idle = idle_words(reading, language)
    if idle and limit and reading.countdown_seconds is None:
        idle = text("watch.idle-of", idle=idle, limit=duration_text(limit))
    lines.append(" | ".join(part for part in (time, bill_words(reading.bill, language), idle) if part))
    if not reading.answering:
        lines.append(text("watch.no-answer"))
    lines = [truncate(one, max(20, width - 1)) for one in lines]
    for verdict in reading.verdicts:
        words = text("watch.verdict", gpu=verdict.gpu, what=verdict_words(verdict, language), advice=verdict.advice)
        lines += wrap(words, max(20, width - 1), rest="  ")
    return lines


def reading_cells(reading: WatchReading, sample: Sample, name: str) -> dict[str, Cell]:
    """Return one GPU's reading as a table row: values by column name, in base units."""
    bill = reading.bill
    return {
        "time": reading.time,
        "index": sample.index,
        "name": name,
        "utilisation_percent": sample.utilisation_percent,
        "memory_utilisation_percent": sample.memory_utilisation_percent,
        "memory_used_bytes": sample.memory_used_bytes,
        "memory_bytes": sample.memory_bytes,
        "power_watts": sample.power_watts,
        "temperature_celsius": sample.temperature_celsius,
        "sm_clock_hz": sample.sm_clock_hz,
        "throttle": None if sample.throttle is None else ";".join(sample.throttle),
        "processes": sample.processes,
        "lost": sample.lost or not reading.answering,
        "seconds": round(bill.seconds, 3),
        "idle_seconds": round(reading.idle_seconds, 3),
        **_money("money", bill.money),
        **_money("idle_money", bill.idle_money),
    }


def _money(name: str, money: Money | None) -> Mapping[str, Cell]:
    return {f"{name}.amount": str(money.amount) if money else None, f"{name}.currency": money.currency if money else None}


def _row(sample: Sample, names: Sequence[str], language: Language) -> list[str]:
    notes = [word for word in sample.throttle or () if word != "idle"]
    if sample.lost:
        notes.insert(0, language.text("watch.lost"))
    return [
        f"{sample.index} {names[sample.index]}" if sample.index < len(names) else str(sample.index),
        "–" if sample.utilisation_percent is None else f"{sample.utilisation_percent}%",
        _memory([sample]),
        _of(sample.power_watts, sample.power_limit_watts, "W"),
        "–" if sample.temperature_celsius is None else f"{sample.temperature_celsius} °C",
        "–" if sample.sm_clock_hz is None else f"{sample.sm_clock_hz // 10**6} MHz",
        language.listed(notes),
    ]


def _summed(samples: Sequence[Sample]) -> list[str]:
    """Return the cells of the summary row of all GPUs: mean utilisation, total memory and total power."""
    loads = [sample.utilisation_percent for sample in samples if sample.utilisation_percent is not None]
    powers = [sample.power_watts for sample in samples if sample.power_watts is not None]
    parts = [f"{sum(loads) / len(loads):.0f}%" if loads else "–%", _memory(samples)]
    return [*parts, f"{sum(powers):.0f} W"] if powers else parts


def _memory(samples: Sequence[Sample]) -> str:
    used = [sample.memory_used_bytes for sample in samples if sample.memory_used_bytes is not None]
    size = [sample.memory_bytes for sample in samples if sample.memory_bytes is not None]
    return f"{_gib(sum(used)) if used else '–'}/{_gib(sum(size)) if size else '–'} GiB"


def _gib(size: int) -> str:
    return significant(size / GIB) if size >= GIB // 100 else "0"


def _of(value: float | None, limit: float | None, unit: str) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}/{limit:.0f} {unit}" if limit else f"{value:.0f} {unit}"
