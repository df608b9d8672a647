"""Traffic as a plan sees it: buckets of requests by prompt and answer length, and how many come in each hour."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.plan.solver.problem import Floats
from whichgpu.estimate.serving.load import Lengths
from whichgpu.workload.traces.reader import Trace

DRAWN = 20_000  # requests that stand for a distribution
LEAST_DRAWN = 500  # of a distribution, for every value of a histogram
SIDES = 8  # classes of prompts, and of answers, at most
RARE = 0.002  # buckets with less than this share of the requests join their neighbours, unless they are longer
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
    if prompts.spread and outputs.spread:
        buckets = bucket_requests(prompts.draw(chance, DRAWN), outputs.draw(chance, DRAWN), sides)
    else:  # A histogram's own lengths and shares, each with all lengths of the other side.
        count = max(LEAST_DRAWN, DRAWN // max(1, len(prompts.values), len(outputs.values)))
        (read, read_shares), (written, written_shares) = (one.weighted(chance, count) for one in (prompts, outputs))
        pairs = (np.repeat(read, len(written)), np.tile(written, len(read)))
        buckets = bucket_requests(*pairs, sides, np.outer(read_shares, written_shares).ravel())
    curve, mean = _curve(rate, hourly)
    return Traffic(buckets, curve, mean, "hours" if hourly else "rate")


def trace_traffic(trace: Trace, rate: float | None, hourly: tuple[float, ...] = (), sides: int = SIDES) -> Traffic:
    """Of a trace: its lengths, and its own hours unless a rate or hours are given. `rate` is the mean the trace is scaled to."""
    buckets = bucket_requests(np.asarray(trace.prompts), np.asarray(trace.outputs), sides)
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


def bucket_requests(
    prompts: np.ndarray, outputs: np.ndarray, sides: int = SIDES, shares: np.ndarray | None = None
) -> tuple[Bucket, ...]:
    """Classes of prompt length times classes of answer length, with what each holds; `shares` are those of the requests."""
    weights = np.full(len(prompts), 1.0 / len(prompts)) if shares is None else shares
    rows, columns = _edges(prompts, sides), _edges(outputs, sides)
    at = np.searchsorted(rows, prompts, side="left") - 1
    to = np.searchsorted(columns, outputs, side="left") - 1
    reads, writes = _ends(rows, at, prompts, shares is not None), _ends(columns, to, outputs, shares is not None)
    width = len(columns) - 1
    place = at * width + to
    share, read, written = (
        np.bincount(place, values, minlength=(len(rows) - 1) * width)
        for values in (weights, weights * prompts, weights * outputs)
    )
    longest = np.zeros(len(share), dtype=np.int64)
    np.maximum.at(longest, place, np.ceil(prompts + outputs).astype(np.int64))
    found = [
        Bucket(
            *reads[cell // width],
            *writes[cell % width],
            float(read[cell] / share[cell]),
            float(written[cell] / share[cell]),
            float(share[cell]),
            int(longest[cell]),
        )
        for cell in np.flatnonzero(longest).tolist()
    ]
    return _without_rare(found)


def _ends(edges: np.ndarray, at: np.ndarray, values: np.ndarray, exact: bool) -> list[tuple[int, int]]:
    """First and last length of each class: of the values in it where these are all there are, else of the class itself."""
    if not exact:
        return [(int(low) + 1, int(high)) for low, high in pairwise(edges)]
    mine = [values[at == place] for place in range(len(edges) - 1)]
    return [(int(one.min()), int(one.max())) if len(one) else (0, 0) for one in mine]


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
    """Rare buckets joined to their nearest neighbours, so that nothing is forgotten and little is rounded.

    A rare bucket with longer requests than its neighbour stays apart: a GPU has to hold the longest request of a bucket.
    """
    common = [one for one in found if one.share >= RARE]
    if not common:
        return tuple(found)
    joined = {id(one): [one] for one in common}
    kept = list(common)
    for one in found:
        if one.share >= RARE:
            continue
        near = min(common, key=lambda other: abs(np.log(other.prompt / one.prompt)) + abs(np.log(other.output / one.output)))
        if one.longest <= near.longest:
            joined[id(near)].append(one)
        else:
            kept.append(one)
    ordered = sorted(kept, key=lambda one: one.prompt + 4 * one.output)
    return tuple(_joined(joined.get(id(one), [one])) for one in ordered)


def _joined(buckets: list[Bucket]) -> Bucket:
    if len(buckets) == 1:
        return buckets[0]
    share = sum(one.share for one in buckets)
    return Bucket(
        min(one.prompt_from for one in buckets),
        max(one.prompt_to for one in buckets),
        min(one.output_from for one in buckets),
        max(one.output_to for one in buckets),
        sum(one.prompt * one.share for one in buckets) / share,
        sum(one.output * one.share for one in buckets) / share,
        share,
        max(one.longest for one in buckets),
    )


def load_levels(curves: list[Floats], most: int) -> tuple[Floats, Floats, np.ndarray]:
    """Hours of like load as one level: rates [levels, curves], the share of the hours each holds, and the level of every hour.

    A level plans for the busiest of its hours; hours are parted so that least is planned for in vain. Busiest level first.
    """
    whole = np.stack(_even(curves), axis=1)
    utilisation = (whole / np.maximum(whole.max(axis=0), 1e-12)).mean(axis=1)
    order = np.argsort(-utilisation, kind="stable")
    parts = _parted(utilisation[order], most)
    rates, shares, of = [], [], np.zeros(len(utilisation), dtype=np.int64)
    for place, (low, high) in enumerate(pairwise(parts)):
        mine = order[low:high]
        rates.append(whole[mine].max(axis=0))
        shares.append(len(mine) / len(utilisation))
        of[mine] = place
    return np.array(rates), np.array(shares), of


def _even(curves: list[Floats]) -> list[Floats]:
    """All as long as the longest, come again from their beginning."""
    size = max(len(one) for one in curves)
    return [np.resize(one, size) for one in curves]


def _parted(utilisation: Floats, most: int) -> list[int]:
    """Ends of the parts of a falling row that waste least when each is counted at its first."""
    count = len(utilisation)
    ends = np.unique(np.linspace(0, count, min(count, MOST_HOURS) + 1).round().astype(int)).tolist()
    total = np.concatenate([[0.0], np.cumsum(utilisation)])
    cost = {0: (0.0, [0])}
    best = cost
    for _ in range(min(most, len(ends) - 1)):
        following: dict[int, tuple[float, list[int]]] = {}
        for end in ends[1:]:
            choices = [
                (spent + (end - start) * utilisation[start] - (total[end] - total[start]), [*path, end])
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
