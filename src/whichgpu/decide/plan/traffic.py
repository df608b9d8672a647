"""Traffic of a model: buckets of requests by input and output tokens, and requests per second in each hour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.plan.question import RequestedModel
from whichgpu.decide.plan.solver.problem import Floats
from whichgpu.estimate.serving.load import Lengths, with_lengths
from whichgpu.estimate.serving.prefix_cache import PrefixCache
from whichgpu.workload.traces.reader import Trace, cached_trace

DEFAULT_RATE = 1.0  # Requests per second, if neither a rate nor a trace is given.
SAMPLES = 20_000  # Requests drawn from a distribution of lengths.
MIN_SAMPLES = 500  # Least requests drawn for each value of a histogram on the other side.
MAX_CLASSES = 8  # Most classes of input lengths, and of output lengths.
MAX_CLASSES_OF_SEVERAL = 4  # The same if several models are planned together, so that their program stays small.
RARE = 0.002  # Buckets with a smaller share of requests join a neighbour, unless their requests are longer.
LONG_TRACE = 2 * 3600.0  # A trace of at least this many seconds is planned hour by hour.
PARTS = 12  # A shorter trace is planned for its busiest twelfth.
FEW_REQUESTS = 10 * PARTS  # With fewer, a trace is planned for its mean: parts of less than ten are busiest by chance.
MIN_REQUESTS = 10  # A trace with fewer requests needs a stated rate.
# Tokens of prefix caches for which hits are counted; a replica has those of the largest no larger than its KV cache.
CACHE_SIZES = (1 << 17, 1 << 19, 1 << 21, 1 << 23)
MAX_HASHED = 20_000  # Hits are counted for at most this many requests of a trace, the first ones.
MAX_ENDS = 400  # At most this many boundaries between load levels are tried.


class Bucket(msgspec.Struct, frozen=True):
    """A class of requests: ranges and means of its input (prompt) and output tokens, and its share of all requests.

    `longest` is the most input and output tokens of one request; 0 if the requests themselves are not known.
    """

    prompt_from: int
    prompt_to: int
    output_from: int
    output_to: int
    prompt: float
    output: float
    share: float
    longest: int = 0
    place: str = ""  # city of the users; empty if they are not in several
    cached: tuple[float, ...] = ()  # mean input tokens in a prefix cache of each of `CACHE_SIZES`; empty if not known

    @property
    def most_tokens(self) -> int:
        """Return the tokens the KV cache must hold for the longest request of the bucket."""
        return self.longest or self.prompt_to + self.output_to

    @property
    def name(self) -> str:
        """Return the bucket's ranges of input and output tokens, and the city, as text: `257-512 in, 65-128 out, Seoul`."""
        lengths = f"{_span(self.prompt_from, self.prompt_to)} in, {_span(self.output_from, self.output_to)} out"
        return f"{lengths}, {self.place}" if self.place else lengths


class DrawnLengths(msgspec.Struct, frozen=True, eq=False):
    """Input and output tokens of requests drawn from a distribution, and the weight of each request."""

    prompts: np.ndarray
    outputs: np.ndarray
    weights: np.ndarray


class Traffic(msgspec.Struct, frozen=True):
    """A model's requests: buckets by length, and requests per second in each hour (one value for a steady rate)."""

    buckets: tuple[Bucket, ...]
    hourly: tuple[float, ...]
    mean: float  # mean requests per second
    peak_of: str = "rate"  # source of `hourly`: rate, hours, or parts of a trace
    trace: Trace | None = None
    drawn: DrawnLengths | None = None  # requests that the buckets were made from, if they are not those of a trace

    @property
    def hash_tokens(self) -> int:
        """Return the tokens of one hashed block of a prompt; 0 if the requests have no hashes."""
        return self.trace.hash_tokens if self.trace is not None and self.trace.hashes else 0

    @property
    def few(self) -> int | None:
        """Return the number of requests in the trace if that is too few for a reliable request rate; else None."""
        return len(self.trace) if self.trace is not None and self.trace.timed and len(self.trace) < FEW_REQUESTS else None

    @property
    def peak(self) -> float:
        """Return requests per second in the busiest hour."""
        return max(self.hourly)

    @property
    def prompt(self) -> float:
        """Return the mean input tokens of a request."""
        return sum(one.prompt * one.share for one in self.buckets)

    @property
    def output(self) -> float:
        """Return the mean output tokens of a request."""
        return sum(one.output * one.share for one in self.buckets)

    @property
    def longest(self) -> int:
        """Return the most tokens of any one request, input and output together."""
        return max(one.prompt_to + one.output_to for one in self.buckets)

    def by_place(self, shares: Mapping[str, float]) -> Traffic:
        """Return the traffic with every bucket divided among cities by their share of the requests; one city after the other."""
        buckets = (replace(one, share=one.share * part, place=name) for name, part in shares.items() for one in self.buckets)
        return replace(self, buckets=tuple(buckets)) if shares else self

    @property
    def places(self) -> int:
        """Return the number of cities that requests come from; 1 if they are not distinguished."""
        return len({one.place for one in self.buckets})

    def named_shares(self, buckets: Sequence[int]) -> list[tuple[str, float]]:
        """Return the names of some buckets of requests, by index, with their shares of all requests."""
        return [(self.buckets[b].name, self.buckets[b].share) for b in buckets]


def model_traffic(
    model: RequestedModel, rate: float | None, seq_in: int, seq_out: int, seed: int, max_classes: int = MAX_CLASSES
) -> Traffic:
    """Return the traffic of a model from its trace, histograms or mean lengths, at its rate or the default one."""
    sides = ((seq_in, model.in_spread, model.in_histogram), (seq_out, model.out_spread, model.out_histogram))
    prompts, outputs = (
        Lengths.histogram(tuple(histogram), tuple(histogram.values())) if histogram else Lengths(float(mean), spread)
        for mean, spread, histogram in sides
    )
    if model.trace is not None:
        trace = with_lengths(cached_trace(model.trace), prompts, outputs, seed)
        return trace_traffic(trace, rate, model.hourly, max_classes)
    rate = rate if rate is not None or model.hourly else DEFAULT_RATE
    return traffic_of(rate, prompts, outputs, model.hourly, seed, max_classes)


def traffic_of(
    rate: float | None,
    prompts: Lengths,
    outputs: Lengths,
    hourly: tuple[float, ...] = (),
    seed: int = 0,
    max_classes: int = MAX_CLASSES,
) -> Traffic:
    """Return traffic from length distributions and a mean rate, or hourly rates; with both, the hours are scaled to the mean."""
    chance = np.random.default_rng([seed, 2])
    if prompts.spread and outputs.spread:
        inputs, outs = prompts.draw(chance, SAMPLES), outputs.draw(chance, SAMPLES)
        drawn = DrawnLengths(inputs, outs, np.full(SAMPLES, 1.0 / SAMPLES))
        buckets = bucket_requests(inputs, outs, max_classes)
    else:  # A histogram keeps its own lengths and shares, each combined with all lengths of the other side.
        count = max(MIN_SAMPLES, SAMPLES // max(1, len(prompts.values), len(outputs.values)))
        (inputs, in_shares), (outs, out_shares) = (one.weighted(chance, count) for one in (prompts, outputs))
        shares = np.outer(in_shares, out_shares).ravel()
        drawn = DrawnLengths(np.repeat(inputs, len(outs)), np.tile(outs, len(inputs)), shares)
        buckets = bucket_requests(drawn.prompts, drawn.outputs, max_classes, shares)
    curve, mean = _curve(rate, hourly)
    return Traffic(buckets, curve, mean, "hours" if hourly else "rate", drawn=drawn)


def trace_traffic(trace: Trace, rate: float | None, hourly: tuple[float, ...] = (), max_classes: int = MAX_CLASSES) -> Traffic:
    """Return the traffic of a trace: its lengths, and its hourly rates unless `hourly` is given, scaled to `rate` if given."""
    buckets = bucket_requests(np.asarray(trace.prompts), np.asarray(trace.outputs), max_classes)
    buckets = _with_shared_prefixes(buckets, trace) if trace.hashes else buckets
    if hourly:
        curve, mean = _curve(rate, hourly)
        return Traffic(buckets, curve, mean, "hours", trace)
    own = trace.rate
    if own is None:
        if rate is None:
            raise UsageError("no-rate", msg("error.trace-no-rate", name=trace.name), msg("hint.no-rate"))
        return Traffic(buckets, (rate,), rate, "rate", trace)
    if rate is None and len(trace) < MIN_REQUESTS:
        message = msg("error.trace-too-few", name=trace.name, n=len(trace))
        raise UsageError("trace-too-few", message, msg("hint.trace-too-few", least=MIN_REQUESTS))
    scale = 1.0 if rate is None else rate / own
    times, span = np.asarray(trace.times), trace.span
    if span >= LONG_TRACE:
        count = int(np.ceil(span / 3600.0))
        counts = np.histogram(times, bins=count, range=(0.0, count * 3600.0))[0]
        whole = counts[:-1] if span < count * 3600.0 and count > 1 else counts  # An incomplete last hour is left out.
        return Traffic(buckets, tuple((scale * whole / 3600.0).tolist()), scale * own, "hours", trace)
    if len(trace) < FEW_REQUESTS:
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


def _with_shared_prefixes(buckets: tuple[Bucket, ...], trace: Trace) -> tuple[Bucket, ...]:
    """Return the buckets with the input tokens that one replica finds in its prefix cache, by the trace's block hashes."""
    count = min(len(trace), MAX_HASHED)
    prompts, outputs = np.asarray(trace.prompts)[:count], np.asarray(trace.outputs)[:count]
    hits = np.zeros((len(CACHE_SIZES), count))
    for row, size in zip(hits, CACHE_SIZES, strict=True):
        cache = PrefixCache(size, trace.hash_tokens)
        for place in range(count):
            row[place] = cache.cached_tokens(trace.hashes[place], trace.prompts[place] - 1)
            cache.insert(trace.hashes[place])
    return tuple(
        replace(one, cached=tuple(hits[:, mine].mean(axis=1).tolist()) if len(mine) else (0.0,) * len(CACHE_SIZES))
        for one, mine in zip(buckets, members(buckets, prompts, outputs), strict=True)
    )


def members(buckets: Sequence[Bucket], prompts: np.ndarray, outputs: np.ndarray) -> Iterator[np.ndarray]:
    """Yield, for each bucket, the indices of the requests whose lengths are within its ranges."""
    for one in buckets:
        within = (prompts >= one.prompt_from) & (prompts <= one.prompt_to)
        yield np.flatnonzero(within & (outputs >= one.output_from) & (outputs <= one.output_to))


def bucket_requests(
    prompts: np.ndarray, outputs: np.ndarray, max_classes: int = MAX_CLASSES, shares: np.ndarray | None = None
) -> tuple[Bucket, ...]:
    """Return buckets of requests: every combination of input and output length classes; `shares` weight the requests."""
    weights = np.full(len(prompts), 1.0 / len(prompts)) if shares is None else shares
    rows, columns = _edges(prompts, max_classes), _edges(outputs, max_classes)
    row, column = np.searchsorted(rows, prompts, side="left") - 1, np.searchsorted(columns, outputs, side="left") - 1
    in_ranges = _ranges(rows, row, prompts, shares is not None)
    out_ranges = _ranges(columns, column, outputs, shares is not None)
    width = len(columns) - 1
    place = row * width + column
    share, inputs, outs = (
        np.bincount(place, values, minlength=(len(rows) - 1) * width)
        for values in (weights, weights * prompts, weights * outputs)
    )
    longest = np.zeros(len(share), dtype=np.int64)
    np.maximum.at(longest, place, np.ceil(prompts + outputs).astype(np.int64))
    buckets = [
        Bucket(
            *in_ranges[cell // width],
            *out_ranges[cell % width],
            float(inputs[cell] / share[cell]),
            float(outs[cell] / share[cell]),
            float(share[cell]),
            int(longest[cell]),
        )
        for cell in np.flatnonzero(longest).tolist()
    ]
    return _without_rare(buckets)


def _ranges(edges: np.ndarray, at: np.ndarray, values: np.ndarray, exact: bool) -> list[tuple[int, int]]:
    """Return the first and last length of each length class, in tokens: of the values in it if `exact`, else of its edges."""
    if not exact:
        return [(int(low) + 1, int(high)) for low, high in pairwise(edges)]
    mine = [values[at == place] for place in range(len(edges) - 1)]
    return [(int(one.min()), int(one.max())) if len(one) else (0, 0) for one in mine]


def _edges(values: np.ndarray, max_classes: int) -> np.ndarray:
    """Return the edges of length classes: powers of two within the values' range, wider steps if there would be too many."""
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.array([low - 1, low])
    first, last = np.floor(np.log2(max(1, low))), np.ceil(np.log2(high))
    count = int(min(max_classes, max(1, last - first)))
    inner = np.unique(np.round(2.0 ** np.linspace(first, last, count + 1))).astype(np.int64)
    return np.unique(np.concatenate([[low - 1], inner[(inner > low) & (inner < high)], [high]]))


def _without_rare(buckets: list[Bucket]) -> tuple[Bucket, ...]:
    """Return the buckets of requests with rare ones merged into their nearest neighbours.

    A rare bucket with longer requests than its neighbour stays separate: a GPU must hold a bucket's longest request.
    """
    common = [one for one in buckets if one.share >= RARE]
    if not common:
        return tuple(buckets)
    joined = {id(one): [one] for one in common}
    result = list(common)
    for one in buckets:
        if one.share >= RARE:
            continue
        near = min(common, key=lambda other: abs(np.log(other.prompt / one.prompt)) + abs(np.log(other.output / one.output)))
        if one.longest <= near.longest:
            joined[id(near)].append(one)
        else:
            result.append(one)
    ordered = sorted(result, key=lambda one: one.prompt + 4 * one.output)
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


def load_levels(curves: list[Floats], max_levels: int) -> tuple[Floats, Floats, np.ndarray]:
    """Group hours of similar load into levels: return rates [levels, curves], share of hours, and every hour's level.

    A level is planned for its busiest hour; levels are chosen to minimise unused capacity. The busiest level comes first.
    """
    size = max(len(one) for one in curves)
    whole = np.stack([np.resize(one, size) for one in curves], axis=1)  # Shorter curves repeat.
    utilisation = (whole / np.maximum(whole.max(axis=0), 1e-12)).mean(axis=1)
    order = np.argsort(-utilisation, kind="stable")
    parts = _level_ends(utilisation[order], max_levels)
    rates, shares, of = [], [], np.zeros(len(utilisation), dtype=np.int64)
    for place, (low, high) in enumerate(pairwise(parts)):
        mine = order[low:high]
        rates.append(whole[mine].max(axis=0))
        shares.append(len(mine) / len(utilisation))
        of[mine] = place
    return np.array(rates), np.array(shares), of


def _level_ends(utilisation: Floats, max_parts: int) -> list[int]:
    """Split descending loads into at most `max_parts` runs with least unused capacity at their peaks; return split indices."""
    count = len(utilisation)
    ends = np.unique(np.linspace(0, count, min(count, MAX_ENDS) + 1).round().astype(int)).tolist()
    total = np.concatenate([[0.0], np.cumsum(utilisation)])
    cost = {0: (0.0, [0])}
    best = cost
    for _ in range(min(max_parts, len(ends) - 1)):
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
