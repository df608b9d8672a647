"""Traffic as a plan sees it: buckets of requests by prompt and answer length, and how many come in each hour."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.plan.problem import Floats
from whichgpu.estimate.serving.load import Lengths
from whichgpu.workload.traces import Trace

DRAWN = 20_000  # requests that stand for a distribution
SIDES = 8  # classes of prompts, and of answers, at most
RARE = 0.002  # classes with less than this share of the requests join their neighbours'
LONG = 2 * 3600.0  # seconds from which a trace tells hours apart
PARTS = 12  # a shorter one is planned for its busiest twelfth
FEW = 10 * PARTS  # with fewer requests its mean: a part of less than ten is busiest by chance
LEAST = 10  # requests from which a rate is drawn at all
MOST_HOURS = 400  # of a curve looked at one by one


@dataclass(frozen=True, slots=True)
class Bucket:
    """Requests that are alike: from–to tokens of prompt and answer, their means, and their share of all requests.

    `longest` is the most input and output tokens of one request; 0 where the requests themselves are not known.
    """

    prompt_from: int
    prompt_to: int
    output_from: int
    output_to: int
    prompt: float
    output: float
    share: float
    longest: int = 0

    @property
    def most_tokens(self) -> int:
        """Tokens the KV cache must hold for any one request of the bucket."""
        return self.longest or self.prompt_to + self.output_to

    @property
    def name(self) -> str:
        """In words of numbers: `257-512 in, 65-128 out`."""
        return f"{_span(self.prompt_from, self.prompt_to)} in, {_span(self.output_from, self.output_to)} out"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Buckets, requests a second in each hour (one for a steady rate), and what the busiest moments were taken from."""

    buckets: tuple[Bucket, ...]
    hourly: tuple[float, ...]
    mean: float  # requests a second over all
    peak_of: str = "rate"  # rate, hours, parts: what `hourly` is made of
    trace: Trace | None = None

    @property
    def few(self) -> int | None:
        """Requests of the trace its rate is drawn from, where they are too few to be sure of it."""
        return len(self.trace) if self.trace is not None and self.trace.timed and len(self.trace) < FEW else None

    @property
    def peak(self) -> float:
        """The most in any hour."""
        return max(self.hourly)

    @property
    def prompt(self) -> float:
        """Mean tokens of a prompt."""
        return sum(one.prompt * one.share for one in self.buckets)

    @property
    def output(self) -> float:
        """Mean tokens of an answer."""
        return sum(one.output * one.share for one in self.buckets)

    @property
    def longest(self) -> int:
        """Most tokens of a request."""
        return max(one.prompt_to + one.output_to for one in self.buckets)


def traffic_of(
    rate: float | None, prompts: Lengths, outputs: Lengths, hourly: tuple[float, ...] = (), seed: int = 0, sides: int = SIDES
) -> Traffic:
    """Of lengths and a rate, or rates by the hour; with both, the hours are scaled to that mean rate."""
    chance = np.random.default_rng([seed, 2])
    fixed = not (prompts.spread or prompts.values or outputs.spread or outputs.values)
    count = 1 if fixed else DRAWN
    buckets = bucketed(prompts.draw(chance, count), outputs.draw(chance, count), sides)
    curve, mean = _curve(rate, hourly)
    return Traffic(buckets, curve, mean, "hours" if hourly else "rate")


def traced(trace: Trace, rate: float | None, hourly: tuple[float, ...] = (), sides: int = SIDES) -> Traffic:
    """Of a trace: its lengths, and its own hours unless a rate or hours are given. `rate` is the mean the trace is scaled to."""
    buckets = bucketed(np.asarray(trace.prompts), np.asarray(trace.outputs), sides)
    if hourly:
        curve, mean = _curve(rate, hourly)
        return Traffic(buckets, curve, mean, "hours", trace)
    own = trace.rate
    if own is None:
        if rate is None:
            raise UsageError("no-rate", msg("error.trace-no-rate", name=trace.name), msg("hint.no-rate"))
        return Traffic(buckets, (rate,), rate, "rate", trace)
    if rate is None and len(trace) < LEAST:
        message = msg("error.trace-too-few", name=trace.name, n=len(trace))
        raise UsageError("trace-too-few", message, msg("hint.trace-too-few", least=LEAST))
    scale = 1.0 if rate is None else rate / own
    times, span = np.asarray(trace.times), trace.span
    if span >= LONG:
        count = int(np.ceil(span / 3600.0))
        counts = np.histogram(times, bins=count, range=(0.0, count * 3600.0))[0]
        whole = counts[:-1] if span < count * 3600.0 and count > 1 else counts  # an hour cut short says little
        return Traffic(buckets, tuple((scale * whole / 3600.0).tolist()), scale * own, "hours", trace)
    if len(trace) < FEW:
        return Traffic(buckets, (scale * own,), scale * own, "rate", trace)
    counts = np.histogram(times, bins=PARTS, range=(0.0, span))[0]
    return Traffic(buckets, (float(scale * counts.max() * PARTS / span),), scale * own, "parts", trace)


def _curve(rate: float | None, hourly: tuple[float, ...]) -> tuple[tuple[float, ...], float]:
    if not hourly:
        if rate is None:
            raise UsageError("no-rate", msg("error.no-rate"), msg("hint.no-rate"))
        return (rate,), rate
    mean = sum(hourly) / len(hourly)
    if mean <= 0:
        raise UsageError("no-rate", msg("error.no-traffic"), msg("hint.no-rate"))
    scale = rate / mean if rate is not None else 1.0
    return tuple(scale * one for one in hourly), scale * mean


def bucketed(prompts: np.ndarray, outputs: np.ndarray, sides: int = SIDES) -> tuple[Bucket, ...]:
    """Classes of prompt length times classes of answer length, with what each holds."""
    rows, columns = _edges(prompts, sides), _edges(outputs, sides)
    at = np.searchsorted(rows, prompts, side="left") - 1
    to = np.searchsorted(columns, outputs, side="left") - 1
    width = len(columns) - 1
    place = at * width + to
    counts, read, written = (
        np.bincount(place, weights, minlength=(len(rows) - 1) * width) for weights in (None, prompts, outputs)
    )
    longest = np.zeros(len(counts), dtype=np.int64)
    np.maximum.at(longest, place, np.ceil(prompts + outputs).astype(np.int64))
    found = [
        Bucket(
            int(rows[cell // width]) + 1,
            int(rows[cell // width + 1]),
            int(columns[cell % width]) + 1,
            int(columns[cell % width + 1]),
            float(read[cell] / counts[cell]),
            float(written[cell] / counts[cell]),
            float(counts[cell] / len(prompts)),
            int(longest[cell]),
        )
        for cell in np.flatnonzero(counts).tolist()
    ]
    return _without_rare(found)


def _edges(values: np.ndarray, sides: int) -> np.ndarray:
    """Ends of classes: powers of two within what there is, drawn wider where they would be too many."""
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.array([low - 1, low])
    first, last = np.floor(np.log2(max(1, low))), np.ceil(np.log2(high))
    count = int(min(sides, max(1, last - first)))
    inner = np.unique(np.round(2.0 ** np.linspace(first, last, count + 1))).astype(np.int64)
    return np.unique(np.concatenate([[low - 1], inner[(inner > low) & (inner < high)], [high]]))


def _without_rare(found: list[Bucket]) -> tuple[Bucket, ...]:
    """Rare classes join the next larger neighbour in work, so that nothing is forgotten and little is rounded."""
    kept = sorted((one for one in found if one.share >= RARE), key=lambda one: one.prompt + 4 * one.output)
    if not kept:
        return tuple(found)
    totals = {id(one): [one.share, one.prompt * one.share, one.output * one.share] for one in kept}
    ends = {id(one): [one.prompt_from, one.prompt_to, one.output_from, one.output_to, one.longest] for one in kept}
    for one in found:
        if one.share >= RARE:
            continue
        # The nearest in the logarithm of both lengths that is kept: its longest lengths grow with it.
        near = min(kept, key=lambda other: abs(np.log(other.prompt / one.prompt)) + abs(np.log(other.output / one.output)))
        share, end = totals[id(near)], ends[id(near)]
        totals[id(near)] = [share[0] + one.share, share[1] + one.prompt * one.share, share[2] + one.output * one.share]
        ends[id(near)] = [
            min(end[0], one.prompt_from),
            max(end[1], one.prompt_to),
            min(end[2], one.output_from),
            max(end[3], one.output_to),
            max(end[4], one.longest),
        ]
    return tuple(_joined(ends[id(one)], totals[id(one)]) for one in kept)


def _joined(ends: list[int], totals: list[float]) -> Bucket:
    share, prompts, outputs = totals
    return Bucket(ends[0], ends[1], ends[2], ends[3], prompts / share, outputs / share, share, ends[4])


def levels(curves: list[Floats], most: int) -> tuple[Floats, Floats, np.ndarray]:
    """Hours of like load as one level: rates [levels, curves], the share of the hours each holds, and the level of every hour.

    A level plans for the busiest of its hours; hours are parted so that least is planned for in vain. Busiest level first.
    """
    whole = np.stack(_even(curves), axis=1)
    busy = (whole / np.maximum(whole.max(axis=0), 1e-12)).mean(axis=1)
    order = np.argsort(-busy, kind="stable")
    parts = _parted(busy[order], most)
    rates, shares, of = [], [], np.zeros(len(busy), dtype=np.int64)
    for place, (low, high) in enumerate(pairwise(parts)):
        mine = order[low:high]
        rates.append(whole[mine].max(axis=0))
        shares.append(len(mine) / len(busy))
        of[mine] = place
    return np.array(rates), np.array(shares), of


def _even(curves: list[Floats]) -> list[Floats]:
    """All as long as the longest, come again from their beginning."""
    size = max(len(one) for one in curves)
    return [np.resize(one, size) for one in curves]


def _parted(busy: Floats, most: int) -> list[int]:
    """Ends of the parts of a falling row that waste least when each is counted at its first."""
    count = len(busy)
    ends = np.unique(np.linspace(0, count, min(count, MOST_HOURS) + 1).round().astype(int)).tolist()
    total = np.concatenate([[0.0], np.cumsum(busy)])
    cost = {0: (0.0, [0])}
    best = cost
    for _ in range(min(most, len(ends) - 1)):
        following: dict[int, tuple[float, list[int]]] = {}
        for end in ends[1:]:
            choices = [
                (spent + (end - start) * busy[start] - (total[end] - total[start]), [*path, end])
                for start, (spent, path) in best.items()
                if start < end
            ]
            if choices:
                following[end] = min(choices, key=lambda one: one[0])
        if count in following and (count not in cost or following[count][0] < cost[count][0] - 1e-9):
            cost = {**cost, count: following[count]}
        best = following
    return cost[count][1]


def _span(low: int, high: int) -> str:
    return f"{low}" if low >= high else f"{low}-{high}"
