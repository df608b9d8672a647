"""Readings of `whichgpu watch` as a file of metrics, which Prometheus reads through node_exporter's textfile collector.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whichgpu.base.errors import UsageError
from whichgpu.base.files import write_atomically
from whichgpu.base.messages import msg
from whichgpu.measure.watcher import WatchReading

if TYPE_CHECKING:  # Reading an engine's metrics needs numpy, which a watch without them does not import.
    from whichgpu.measure.endpoint.token_meter import EngineTokens

ENDING = ".prom"  # The textfile collector reads no other files.
# Metrics of the machine and of each GPU: name, type, help text.
MACHINE_METRICS = (
    ("watched_seconds_total", "counter", "Seconds since the watch began."),
    ("idle_seconds_total", "counter", "Idle seconds, the mean over the GPUs."),
    ("all_idle_seconds", "gauge", "Seconds for which all GPUs have been idle."),
    ("energy_joules_total", "counter", "Energy of the GPUs."),
    ("cost_total", "counter", "Cost since the watch began."),
    ("idle_cost_total", "counter", "Cost of the idle seconds."),
)
# Metrics of an engine's tokens, with a label for the engine.
TOKEN_METRICS = (
    ("input_tokens_total", "counter", "Input tokens of the engine since the watch began."),
    ("output_tokens_total", "counter", "Output tokens of the engine since the watch began."),
    ("engine_up", "gauge", "Whether the engine answered the last time."),
)
GPU_METRICS = (
    ("gpu_utilisation_ratio", "gauge", "Share of time in which the GPU ran a kernel."),
    ("gpu_memory_used_bytes", "gauge", "Memory in use."),
    ("gpu_power_watts", "gauge", "Power draw."),
    ("gpu_temperature_celsius", "gauge", "Temperature."),
)


def check_metrics_file(path: str) -> None:
    """Raise an error if metrics cannot be written to a path: another ending, or no folder for it."""
    target = Path(path).expanduser()
    if target.suffix != ENDING or not target.parent.is_dir() or (target.exists() and not target.is_file()):
        raise UsageError("bad-metrics", msg("error.bad-metrics", name=path), msg("hint.bad-metrics"))


def write_metrics(reading: WatchReading, names: Sequence[str], path: str, tokens: EngineTokens | None = None) -> None:
    """Write the metrics of a reading; a collector never sees half a file."""
    try:
        write_atomically(Path(path).expanduser(), metrics_text(reading, names, tokens).encode())
    except OSError as problem:
        message = msg("error.cannot-write-file", name=path, why=problem.strerror or str(problem))
        raise UsageError("cannot-write-file", message, msg("hint.cannot-write-file")) from problem


def metrics_text(reading: WatchReading, names: Sequence[str], tokens: EngineTokens | None = None) -> str:
    """Return a reading in Prometheus' text format; what the driver, the price or the engine does not say is left out."""
    bill = reading.bill
    currency = {"currency": bill.money.currency} if bill.money else {}
    values = {
        "watched_seconds_total": bill.seconds,
        "idle_seconds_total": bill.idle_total_seconds,
        "all_idle_seconds": reading.idle_seconds,
        "energy_joules_total": None if bill.watt_hours is None else 3600 * bill.watt_hours,
        "cost_total": float(bill.money.amount) if bill.money else None,
        "idle_cost_total": float(bill.idle_money.amount) if bill.idle_money else None,
    }
    text = ""
    for name, kind, help in MACHINE_METRICS:
        text += _metric(name, kind, help, [(currency if "cost" in name else {}, values[name])])
    if tokens:
        counts = (tokens.input_tokens, tokens.output_tokens, float(tokens.is_answering))
        for (name, kind, help), count in zip(TOKEN_METRICS, counts, strict=True):
            text += _metric(name, kind, help, [({"engine": tokens.engine}, count)])
    alive = [sample for sample in reading.gpus if not sample.lost]
    labels = [{"index": str(one.index), "name": names[one.index] if one.index < len(names) else ""} for one in alive]
    for name, kind, help in GPU_METRICS:
        field = "utilisation_percent" if name == "gpu_utilisation_ratio" else name.removeprefix("gpu_")
        numbers = [getattr(sample, field) for sample in alive]
        if field == "utilisation_percent":
            numbers = [None if number is None else number / 100 for number in numbers]
        text += _metric(name, kind, help, list(zip(labels, numbers, strict=True)))
    return text


def _metric(name: str, kind: str, help: str, values: Sequence[tuple[dict[str, str], float | None]]) -> str:
    lines = [f"whichgpu_{name}{_labels(labels)} {value:.10g}\n" for labels, value in values if value is not None]
    return f"# HELP whichgpu_{name} {help}\n# TYPE whichgpu_{name} {kind}\n{''.join(lines)}" if lines else ""


def _labels(labels: dict[str, str]) -> str:
    texts = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    return f"{{{','.join(texts)}}}" if texts else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
