"""Tokens from the `/metrics` of vLLM and SGLang (Prometheus text): lengths of requests, and counters of all tokens.

Metrics have no times, so a rate must be given with lengths. `data/server_metrics.csv` names the histograms and counters of input
and output tokens by engine, and the release they were read in.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from whichgpu.base.bundled_data import data_rows
from whichgpu.base.messages import msg
from whichgpu.workload.traces.lines import wrong

TABLE = Path(__file__).parent.parent / "data" / "server_metrics.csv"
MAX_DRAWN = 20_000  # Most requests whose lengths are drawn from the histograms.
LAST_WIDTH = 2.0  # Lengths above the last edge are taken to reach this many times it.
STEPS = 40  # Halvings in the search for the lengths' position in their classes.
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+([^\s]+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Histogram(msgspec.Struct):
    """Cumulative counts of requests by length in tokens, with the sum and number of all lengths."""

    counts: dict[float, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    total: float = 0.0
    requests: float = 0.0


class TokenTotals(msgspec.Struct, frozen=True):
    """Input and output tokens that an engine has counted since it started."""

    engine: str
    input_tokens: float
    output_tokens: float


class MetricSample(msgspec.Struct, frozen=True):
    """One line of a server's metrics."""

    name: str
    labels: dict[str, str]
    value: float


def is_metrics(line: str) -> bool:
    """Return whether a file that begins with this line is Prometheus text."""
    return line.startswith(("# HELP ", "# TYPE ", "vllm:", "sglang:"))


def metric_lengths(name: str, first: int, lines: Iterable[str]) -> tuple[array[int], array[int]]:
    """Return input and output lengths with the distributions in a server's metrics; both are drawn independently.

    An error names the histograms that are missing, and those that the file has.
    """
    samples, models = read_samples(name, first, lines), set[str]()
    series = _series(name, first, samples, ("input", "output"), "_bucket")
    histograms = {side: Histogram() for side in series}
    for sample in samples:
        for side, metric in series.items():
            if sample.name.startswith(metric):
                _add(histograms[side], sample.name.removeprefix(metric), sample.labels, sample.value)
                models.add(sample.labels.get("model_name", ""))
    if len(models) > 1:
        raise wrong(name, first, msg("trace.metrics-models", models=tuple(sorted(models))))
    if not all(one.requests >= 1 for one in histograms.values()):
        raise wrong(name, first, msg("trace.no-requests"))
    count = int(min(MAX_DRAWN, *(one.requests for one in histograms.values())))
    prompts, outputs = (_lengths(histograms[side], count) for side in ("input", "output"))
    order = np.random.default_rng(0).permutation(count)  # The metrics do not say which input has which output.
    return array("q", prompts.tolist()), array("q", outputs[order].tolist())


def token_totals(name: str, lines: Iterable[str]) -> TokenTotals:
    """Return the tokens that a server's metrics count over all models and ranks; an error names counters that are missing."""
    samples = read_samples(name, 1, lines)
    series = _series(name, 1, samples, ("input_total", "output_total"))
    tokens = [sum(one.value for one in samples if one.name == series[side]) for side in ("input_total", "output_total")]
    return TokenTotals(series["input_total"].partition(":")[0], *tokens)


def read_samples(name: str, first: int, lines: Iterable[str]) -> list[MetricSample]:
    """Return the samples of a file of metrics whose first line has this number."""
    samples = list[MetricSample]()
    for number, line in enumerate(lines, first):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line.strip())
        if match is None:
            raise wrong(name, number, msg("trace.not-metric"))
        samples.append(MetricSample(match[1], dict(_LABEL.findall(match[2] or "")), _value(name, number, match[3])))
    return samples


def _series(name: str, first: int, samples: Sequence[MetricSample], sides: tuple[str, str], ending: str = "") -> dict[str, str]:
    """Return the engine's metric of each side; an error names the metrics that are missing, and those that the file has."""
    names = {one.name for one in samples}
    rows = [row for row in data_rows(TABLE) if row["side"] in sides]
    own = [row for row in rows if any(one.startswith(f"{row['engine']}:") for one in names)]
    series = {row["side"]: row["name"] for row in own if row["name"] + ending in names}
    if set(series) != set(sides):
        expected = tuple(f"{row['name']} ({row['engine']} {row['release']})" for row in own or rows)
        present = tuple(sorted(one for one in names if "tokens" in one and ":" in one))[:8] or ("-",)
        raise wrong(name, first, msg("trace.metrics-unknown", known=expected, seen=present))
    return series


def _value(name: str, number: int, text: str) -> float:
    try:
        return float(text)
    except ValueError as problem:
        raise wrong(name, number, msg("trace.not-metric")) from problem


def _add(histogram: Histogram, part: str, labels: dict[str, str], value: float) -> None:
    """Add one series of one engine rank to a histogram."""
    if part == "_bucket":
        histogram.counts[float(labels.get("le", "inf").replace("Inf", "inf"))] += value
    elif part == "_sum":
        histogram.total += value
    elif part == "_count":
        histogram.requests += value


def _lengths(histogram: Histogram, count: int) -> np.ndarray:
    """Return lengths at even quantiles whose mean is that of the histogram, as far as its classes allow."""
    edges = sorted(histogram.counts)
    cumulative = np.array([histogram.counts[edge] for edge in edges])
    quantiles = (np.arange(count) + 0.5) / count * cumulative[-1]
    place = np.searchsorted(cumulative, quantiles, side="left")
    lower = np.concatenate([[0.0], cumulative])
    share = (quantiles - lower[place]) / np.maximum(lower[place + 1] - lower[place], 1e-9)
    highs = _finite(edges)
    lows = np.concatenate([[0.0], highs[:-1]])[place]
    mean = histogram.total / histogram.requests
    few, many = -6.0, 6.0  # Powers of two: a large one draws the lengths of a class to its lower edge.
    for _ in range(STEPS):
        middle = (few + many) / 2
        lengths = lows + (highs[place] - lows) * share**2.0**middle
        few, many = (middle, many) if lengths.mean() > mean else (few, middle)
    # A class begins above its lower edge.
    whole: np.ndarray = np.maximum(np.floor(lows) + 1, np.round(lengths)).astype(np.int64)
    return whole


def _finite(edges: Sequence[float]) -> np.ndarray:
    """Return the upper edges of all classes; the last, open one ends at a multiple of its lower edge."""
    below = [edge for edge in edges if np.isfinite(edge)]
    return np.array([*below, *([LAST_WIDTH * (below[-1] if below else 1.0)] if len(below) < len(edges) else [])])
