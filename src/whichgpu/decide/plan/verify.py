"""The chosen plan simulated at each model's busiest level, iteration by iteration: its groups as one fleet behind one router.

The router keeps to the plan's shares of every bucket. Nobody knows an answer's length before it is written: where the shares
depend on it, the fleet is simulated again with one that goes by prompts alone, and whether the objectives still hold is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.plan.capacity import Goals
from whichgpu.decide.plan.routing import by_answers, by_buckets, by_prompts
from whichgpu.decide.plan.solver.build import Column, Formulation, ServedModel
from whichgpu.decide.plan.solver.problem import Floats, Solution
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.pools import Fleet, FleetRouting, ReplicaPool
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides
from whichgpu.estimate.serving.server import Server, server_of
from whichgpu.estimate.serving.simulator import SimulationOutcome
from whichgpu.workload.shapes import as_transformer
from whichgpu.workload.workload import Parallel

REQUESTS = 4000  # of a model; enough for p95
LEAST = 300
WARM_UP = 0.1
ENOUGH = 500_000  # requests of a trace to draw from
MOST_COPIES = 64  # simulated of a group: more of them, alike and each with its share of the load, wait no longer
ROUNDING = 1e-9  # of the share of requests, which is a sum over groups
Told = Callable[[float], None]
Parts = list[tuple[Floats, float]]  # seconds of each group's requests, and the share of all requests they stand for


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """A model's requests under the plan: seconds at the objective's percentile, and the share that met all of them.

    Every request offered counts in `met`, one that was refused as a miss. `holds` where `met` is no less than the percentile.
    """

    model: str
    percentile: float
    ttft: float
    tpot: float
    latency: float
    met: float | None
    holds: bool
    requests: int
    worst: str = ""  # objective nearest its limit
    margin: float = 0.0  # by which share of it
    foresight: bool = False  # they hold only where the router knows how long answers get


def simulate_plan(
    formulation: Formulation, solution: Solution, seed: int = 0, progress: Told | None = None
) -> tuple[SimulatedModel, ...]:
    """Every model at the level of load at which it gets the most requests."""
    told = []
    for model, one in enumerate(formulation.served):
        told.append(_model(formulation, solution, model, one, seed))
        if progress:
            progress((model + 1) / len(formulation.served))
    return tuple(told)


def _model(formulation: Formulation, solution: Solution, model: int, one: ServedModel, seed: int) -> SimulatedModel:
    level, start = formulation.busiest(model), formulation.starts[model]
    buckets = one.traffic.buckets
    demand = formulation.problem.demand[level, start : start + len(buckets)]
    groups = [
        (j, column)
        for j, column in enumerate(formulation.columns)
        if column.model == model and solution.copies[level, j] > 0 and solution.shares[level, j].any()
    ]
    total = float(demand.sum())
    every = [int(solution.copies[level, j]) * column.copies for j, column in groups]
    if len(groups) > 1 and max(every) <= MOST_COPIES:
        shares = np.array([solution.shares[level, j, start : start + len(buckets)] for j, _ in groups])
        return _together(formulation, one, [column for _, column in groups], every, demand, shares, seed)
    first: Parts = []
    between: Parts = []
    whole: Parts = []
    lost = 0
    for place, (j, column) in enumerate(groups):
        mine = demand * solution.shares[level, j, start : start + len(buckets)]
        rate = float(mine.sum())
        if rate <= 0:
            continue
        count = int(max(LEAST, REQUESTS * rate / total))
        copies = min(every[place], MOST_COPIES)
        count = max(count, min(4 * REQUESTS, 12 * copies * int(max(1.0, column.replica.batches.max()))))
        told = _group(formulation, one, column, mine / rate, rate * copies / every[place], copies, count, seed + place)
        weight = rate / total
        for kept, values in zip((first, between, whole), told[:3], strict=True):
            kept.append((values, weight))
        lost += told[3]
    return summarise(one, first, between, whole, lost)


def _together(
    formulation: Formulation,
    one: ServedModel,
    columns: list[Column],
    copies: list[int],
    demand: Floats,
    shares: Floats,
    seed: int,
) -> SimulatedModel:
    """A model's groups as one fleet. `shares` are [groups, buckets]."""
    rates = shares @ demand
    total, batches = float(rates.sum()), [max_batch(column) for column in columns]
    needed = [
        max(LEAST, 12 * n * batch) * total / rate for n, batch, rate in zip(copies, batches, rates, strict=True) if rate > 0
    ]
    count = int(min(4 * REQUESTS, max(REQUESTS, *needed)))
    chance = np.random.default_rng([seed, 3])
    at = chance.choice(len(demand), count, p=demand / demand.sum())
    prompts, outputs = _lengths(one, at, chance)
    times = np.cumsum(chance.exponential(1.0 / total, count))
    buckets = one.traffic.buckets
    stations = tuple(
        ReplicaPool(
            f"{place}",
            server(
                formulation,
                one,
                column,
                1,
                max(buckets[b].prompt_to + buckets[b].output_to for b in np.flatnonzero(shares[place])),
            ),
            copies[place],
            gpus=column.replica.tp,
            weight=max(float(rates[place]) / copies[place], 1e-9),
        )
        for place, column in enumerate(columns)
    )

    def told(routing: FleetRouting) -> SimulatedModel:
        arrivals = zip(times.tolist(), prompts.tolist(), outputs.tolist(), [()] * count, strict=True)
        outcome = simulate_fleet(Fleet(stations, routing), arrivals).served
        first, between, whole, lost = _seconds(outcome, count)
        return summarise(one, [(first, 1.0)], [(between, 1.0)], [(whole, 1.0)], lost)

    planned = told(by_buckets(buckets, shares))
    if not planned.holds or not one.goals.any or not by_answers(buckets, shares):
        return planned
    return replace(planned, foresight=not told(by_prompts(buckets, demand, shares)).holds)


def _seconds(outcome: SimulationOutcome, count: int) -> tuple[Floats, Floats, Floats, int]:
    """To the first token, between tokens and in all, of every request after the first ones, infinite for those refused; and
    how many were refused.
    """
    steady = np.arange(len(outcome.arrived)) >= WARM_UP * count
    first = outcome.first - outcome.arrived
    between = (outcome.finished - outcome.first) / np.maximum(1, outcome.outputs - 1)
    whole = outcome.finished - outcome.arrived
    told = [np.where(outcome.answered, seconds, np.inf)[steady] for seconds in (first, between, whole)]
    return told[0], told[1], told[2], int((steady & ~outcome.answered).sum())


def _group(
    formulation: Formulation, one: ServedModel, column: Column, mix: Floats, rate: float, copies: int, count: int, seed: int
) -> tuple[Floats, Floats, Floats, int]:
    """Seconds to the first token, between tokens and in all, of a group's requests; those refused are counted."""
    chance = np.random.default_rng([seed, 3])
    at = chance.choice(len(mix), count, p=mix / mix.sum())
    prompts, outputs = _lengths(one, at, chance)
    times = np.cumsum(chance.exponential(1.0 / rate, count))
    engine = server(formulation, one, column, copies, int((prompts + outputs).max()))
    arrivals = zip(times.tolist(), prompts.tolist(), outputs.tolist(), [()] * count, strict=True)
    return _seconds(engine.run(arrivals), count)


def _lengths(one: ServedModel, at: np.ndarray, chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Of requests in these buckets: a trace's own requests of that bucket, or its mean lengths."""
    buckets, trace = one.traffic.buckets, one.traffic.trace
    prompts = np.array([max(1, round(bucket.prompt)) for bucket in buckets])[at]
    outputs = np.array([max(1, round(bucket.output)) for bucket in buckets])[at]
    if trace is None:
        return prompts, outputs
    every = max(1, len(trace) // ENOUGH)
    own_in, own_out = np.asarray(trace.prompts)[::every], np.asarray(trace.outputs)[::every]
    for b, bucket in enumerate(buckets):
        mine = np.flatnonzero(
            (own_in >= bucket.prompt_from)
            & (own_in <= bucket.prompt_to)
            & (own_out >= bucket.output_from)
            & (own_out <= bucket.output_to)
        )
        places = np.flatnonzero(at == b)
        if len(mine) and len(places):
            drawn = chance.choice(mine, len(places))
            prompts[places], outputs[places] = own_in[drawn], own_out[drawn]
    return prompts, outputs


def server(formulation: Formulation, one: ServedModel, column: Column, copies: int, longest: int) -> Server:
    """Copies of a column as a server."""
    gpu_pool, shape = formulation.gpu_pools[column.pool_index], as_transformer(one.asked.shape)
    tp = column.replica.tp
    workload = replace(
        with_precision(one.asked.workload, column.replica.precision),
        gpus=tp * copies,
        nodes=1,
        parallel=Parallel(dp=copies, tp=tp),
        batch=1,
    )
    devices = Devices.of([gpu_pool.gpu], [gpu_pool.fabric], one.asked.calibration)
    return server_of(workload, shape, gpu_pool.gpu, None, LimitOverrides(max_sequences=max_batch(column)), longest, devices)


def max_batch(column: Column) -> int:
    """Sequences a copy is allowed at once: the most any of its buckets is served in."""
    return max(1, int(column.replica.batches.max()))


def summarise(
    one: ServedModel,
    first: Parts,
    between: Parts,
    whole: Parts,
    lost: int,
) -> SimulatedModel:
    """A model's requests summed up, of all its groups; `lost` of them were refused."""
    goals = one.goals
    values = {
        name: _percentile(rows, goals.percentile) for name, rows in (("ttft", first), ("tpot", between), ("latency", whole))
    }
    met = _met(goals, first, between, whole)
    limits = {name: getattr(goals, f"{name}_max") for name in values}
    margins = {name: 1.0 - values[name] / limit for name, limit in limits.items() if limit}
    worst = min(margins, key=lambda name: margins[name]) if margins else ""
    enough = met is None or met >= goals.percentile / 100.0 - ROUNDING
    holds = enough and all(margin >= 0 for margin in margins.values()) and lost == 0
    return SimulatedModel(
        one.name,
        goals.percentile,
        values["ttft"],
        values["tpot"],
        values["latency"],
        met,
        holds,
        sum(len(rows) for rows, _ in first),
        worst,
        margins.get(worst, 0.0),
    )


def _percentile(rows: Parts, percentile: float) -> float:
    """Over groups, each counting as much as its share of the requests."""
    if not rows:
        return 0.0
    values = np.concatenate([one for one, _ in rows])
    weights = np.concatenate([np.full(len(one), weight / max(1, len(one))) for one, weight in rows])
    if not len(values):
        return float("inf")
    order = np.argsort(values)
    at = np.searchsorted(np.cumsum(weights[order]), percentile / 100.0 * weights.sum())
    return float(values[order][min(at, len(values) - 1)])


def _met(goals: Goals, first: Parts, between: Parts, whole: Parts) -> float | None:
    if not goals.any:
        return None
    total = 0.0
    for (one, weight), (two, _), (three, _) in zip(first, between, whole, strict=True):
        good = np.ones(len(one), dtype=bool)
        for values, most in ((one, goals.ttft_max), (two, goals.tpot_max), (three, goals.latency_max)):
            if most is not None:
                good &= values <= most
        total += weight * float(good.mean()) if len(good) else 0.0
    return total
