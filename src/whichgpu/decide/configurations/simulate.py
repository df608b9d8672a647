"""Simulation of one replica's server for the few groups that may be the answer: its highest sustainable rate and its latencies.

Queueing formulas bound the number of replicas that a rate needs; simulation decides within these bounds. Inference requests
are drawn with a fixed seed, so the same question always gets the same answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from math import ceil, inf

from msgspec.structs import replace

from whichgpu.decide.configurations.bisection import highest_rate, least_count
from whichgpu.decide.configurations.configuration import (
    MAX_REPLICAS,
    Configuration,
    GroupResult,
    Infeasibility,
    ReplicaSimulation,
    WorkloadRequest,
)
from whichgpu.decide.configurations.generating import STEP_TOKENS
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.configurations.ranges import time_range
from whichgpu.decide.configurations.replica_servers import UntimedReplica, replica_key, timed_servers, untimed_replica
from whichgpu.decide.configurations.replica_simulation import (
    BUSIEST,
    fastest_times,
    may_hold_by_formula,
    mean_lengths,
    simulate_replica,
)
from whichgpu.decide.configurations.slow_steps import (
    MIN_HEADROOM,
    SAFE_PROBABILITY,
    Waits,
    holds_with,
    may_hold_with,
    waits_with,
    with_probability,
)
from whichgpu.decide.constraints import Risk
from whichgpu.estimate.serving.curve import OBJECTIVE_MARGIN
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides, SchedulerLimits
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import ServiceTimes

BOUND_LEEWAY = 1.06  # Factor on rate and objective in upper bounds, since their step times are interpolated.
FORMULA_LEEWAY = 0.95  # Factor on rate and objective if nothing is simulated; without it, reported rates failed in simulation.
MIN_GAIN = 1.1  # Fewer tokens per step must raise the saturation rate by this factor to be chosen (assumed).
SIMULATED_BISECTIONS = 4  # Simulations that find the largest slowdown of a replica with scheduler limits.
RATE_BISECTIONS = 3  # Simulations that find the rate of a replica between those of two numbers of replicas.
MAX_REPLICAS_FACTOR = 2.0  # Up to this multiple of the replicas that formulas give is tried.


class Simulator:
    """Simulates the servers of one question's candidates; groups of GPUs with equal replicas share one simulation."""

    def __init__(self, request: WorkloadRequest, risk: Risk = "even") -> None:
        assert request.workload.rate is not None
        self._request, self._workload, self._rate, self._risk = request, request.workload, request.workload.rate, risk
        self._replicas: dict[Hashable, UntimedReplica | None] = {}  # None if no KV cache fits
        self._servers: dict[Hashable, tuple[Server, ServiceTimes]] = {}
        self._limited: dict[Hashable, tuple[Server, ServiceTimes]] = {}  # with scheduler limits other than the defaults
        self._simulations: dict[Hashable, ReplicaSimulation | None] = {}

    def bounded(self, group: Group, one: Configuration) -> GroupResult:
        """Return the layout with the fewest replicas that queueing formulas allow; simulation never needs fewer."""
        return self._fewest_replicas([self._bounded_layout(group, each) for each in one.layouts])

    def _fewest_replicas(self, results: Sequence[GroupResult]) -> GroupResult:
        """Return the first result with the fewest replicas; the first one if none is feasible."""
        able = [one for one in results if isinstance(one, Configuration)]
        return min(able, key=self.replicas_of) if able else results[0]

    def _bounded_layout(self, group: Group, one: Configuration) -> GroupResult:
        if (replica := self._replica(group, one)) is None:
            return Infeasibility("memory", 0.0)
        if one.parallel.pp > 1:
            return replace(one, capacity=one.rate_bound)
        times = fastest_times(replica, one)
        replicas = self._fewest_by_formula(one, times, BOUND_LEEWAY)
        factor = 1.0
        if replicas is not None and self._risk == "low":
            factor = time_range(self._request, group, one).factor.quantile(SAFE_PROBABILITY)
            replicas = self._fewest_with_slow_steps(one, times, factor, replicas, BOUND_LEEWAY) or replicas
        limited = self._fewest_with_limits(one, times, factor)
        fewest = min((count for count in (replicas, limited) if count is not None), default=None)
        return Infeasibility("latency", 0.0) if fewest is None else self._with_replicas(one, fewest)

    def _fewest_with_limits(self, one: Configuration, fastest: ServiceTimes, factor: float) -> int | None:
        """Return the fewest replicas that any limits on sequences and tokens per step allow by formulas; None if none do."""
        if self._workload.tpot_max is None:
            return None
        limit = BOUND_LEEWAY * self._workload.tpot_max
        shortest = fastest.limited_to(None, STEP_TOKENS[-1])
        for slow in dict.fromkeys((factor, 1.0)):
            if sequences := shortest.most_within(limit / slow):
                saturation = fastest.limited_to(sequences).saturation * one.parallel.dp
                return max(self._replica_range(one)[0], ceil(self._rate * slow / (BOUND_LEEWAY * BUSIEST * saturation) - 1e-9))
        return None

    def upper_bound(self, group: Group, one: Configuration) -> float:
        """Return requests per second that a configuration's GPUs do not exceed in simulation, at most the question's rate."""
        bounded = self.bounded(group, one)
        if not isinstance(bounded, Configuration):
            return 0.0
        fewest, replica = self.replicas_of(bounded), self._replica(group, one)
        assert replica is not None
        of_fewer = self._rate / max(1, fewest - 1) * (1.0 - 1e-9 * (fewest > 1))
        busiest = BOUND_LEEWAY * BUSIEST * fastest_times(replica, one).saturation * one.parallel.dp
        return max(self._rate / fewest, min(of_fewer, busiest))

    def highest(self, group: Group, one: Configuration) -> float:
        """Return the highest requests per second known of a simulated configuration at the question's risk, by bisection.

        It lies between the rates of as many replicas as it needs and of one fewer.
        """
        replicas = self.replicas_of(one)
        times, dp = self._server(group, one)[1], one.parallel.dp
        factor, headroom = 1.0, 1.0
        if self._risk == "low":
            slow = time_range(self._request, group, one).factor.quantile(SAFE_PROBABILITY)
            if self._holds(group, one, replicas, slow, MIN_HEADROOM):
                factor, headroom = slow, MIN_HEADROOM
        busiest = BUSIEST * times.saturation * dp / max(factor, headroom)
        low, high = self._rate / replicas, min(busiest, self._rate / max(0.5, replicas - 1))
        for _ in range(RATE_BISECTIONS if high > low else 0):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if self._holds(group, one, self._rate / middle, factor, headroom) else (low, middle)
        return low

    def simulated(self, group: Group, one: Configuration) -> GroupResult:
        """Return the layout with the fewest replicas that keep the objectives in simulation, first of those with as few.

        At low risk these are as many as keep them with slow steps, too, if any number does.
        """
        layouts, results = one.layouts, list[GroupResult]()
        for each in layouts:
            bound = self._bounded_layout(group, each) if results else each
            best = self._fewest_replicas(results) if results else None
            if not isinstance(bound, Configuration):
                continue
            if not isinstance(best, Configuration) or self.replicas_of(bound) < self.replicas_of(best):
                results.append(self._simulated_layout(group, each))
        best = self._fewest_replicas(results)
        if not isinstance(best, Configuration):
            return best
        return replace(best, other_layouts=tuple(each for each in layouts if each.parallel != best.parallel))

    def _simulated_layout(self, group: Group, one: Configuration) -> GroupResult:
        self.prepare([(group, one)])
        if replica_key(group, one) not in self._servers:
            return Infeasibility("memory", 0.0)
        evidence, fewest, factor = time_range(self._request, group, one), None, 1.0
        if self._risk == "low":
            factor = evidence.factor.quantile(SAFE_PROBABILITY)
            fewest = self._fewest_simulated(group, one, factor, MIN_HEADROOM)
        if fewest is None:
            fewest, factor = self._fewest_simulated(group, one), 1.0
        if fewest is None:
            return Infeasibility("latency", 0.0)
        replicas, one = fewest
        if replicas > MAX_REPLICAS:
            return self._with_replicas(one, replicas)
        typical = self._simulation(group, one, replicas)
        assert typical is not None
        latencies = replace(typical, max_slowdown=factor)
        if one.overrides == LimitOverrides():
            usual = self._workload, self._server(group, one)[1], latencies
            latencies = with_probability(latencies, evidence, partial(holds_with, *usual), partial(waits_with, *usual))
        else:  # More is simulated if it is displayed.
            latencies = replace(latencies, keeps=evidence.factor.probability_below(factor))
        latencies = replace(latencies, keeps=max(latencies.keeps, SAFE_PROBABILITY * (factor > 1.0)))
        return replace(self._with_replicas(one, replicas), simulation=latencies)

    def limits_of(self, group: Group, one: Configuration) -> SchedulerLimits:
        """Return the scheduler limits of one replica of a configuration that was simulated."""
        self.prepare([(group, one)])
        return self._server(group, one)[0].limits

    def with_one_more(self, group: Group, one: Configuration) -> GroupResult:
        """Return a simulated configuration simulated again with at least one replica more."""
        fewest = self.replicas_of(one) + 1
        return self.simulated(group, replace(one, overrides=LimitOverrides(), min_replicas=fewest, capacity=None))

    def completed(self, group: Group, one: Configuration) -> Configuration:
        """Return a simulated configuration with its highest request rate, and with the range of its latencies.

        If scheduler limits are set, requests wait outside of the batch, so slow steps are simulated; else formulas scale waits.
        One with more replicas than a candidate may have was not simulated and is unchanged.
        """
        replicas = self.replicas_of(one)
        if replicas > MAX_REPLICAS:
            return one
        latencies = one.simulation
        assert latencies is not None
        if one.overrides != LimitOverrides():
            times, unlimited = self._server(group, one)[1], replace(self._workload, ttft_max=None, tpot_max=None)

            def holds(factor: float) -> bool:
                return factor <= latencies.max_slowdown or self._simulation(group, one, replicas, factor) is not None

            def waits(factor: float) -> Waits:
                at = latencies.rate * factor, latencies.replicas
                slow = simulate_replica(unlimited, *self._server(group, one), *at) if factor > 1.0 else None
                usual = waits_with(self._workload, times, latencies, factor)
                return (slow.ttft * factor, slow.tpot * factor) if slow else usual

            evidence = time_range(self._request, group, one)
            one = replace(one, simulation=with_probability(latencies, evidence, holds, waits, SIMULATED_BISECTIONS))
        return self._with_max_rate(group, one, replicas)

    def _simulation(self, group: Group, one: Configuration, replicas: float, factor: float = 1.0) -> ReplicaSimulation | None:
        """Return the latencies of one of `replicas` replicas whose steps take `factor` times as long; None if one fails.

        Such steps are simulated as `factor` times the request rate in a time that runs `factor` times as slowly.
        """
        key, rate = (replica_key(group, one), one.overrides), self._rate / replicas / one.parallel.dp
        sharing = _sharing(one, replicas)
        if (key, rate, sharing, factor) not in self._simulations:
            limits = {name: getattr(self._workload, name) for name in ("ttft_max", "tpot_max")}
            scaled = {name: None if limit is None else limit / factor for name, limit in limits.items()}
            outcome = simulate_replica(replace(self._workload, **scaled), *self._server(group, one), rate * factor, sharing)
            self._simulations[key, rate, sharing, factor] = outcome
        return self._simulations[key, rate, sharing, factor]

    def _fewest_simulated(
        self, group: Group, one: Configuration, factor: float = 1.0, headroom: float = 1.0
    ) -> tuple[int, Configuration] | None:
        """Return the fewest replicas that keep the objectives in simulation, and if steps take `factor` times as long; or None.

        The configuration has the engine's own scheduler limits, or tighter ones if fewer replicas keep the objectives with them.
        """
        times, (start, end) = self._server(group, one)[1], self._replica_range(one)
        usual = self._fewest_by_formula(one, times)
        if usual is not None and factor > 1.0:
            usual = self._fewest_with_slow_steps(one, times, factor, usual)
        if usual == start and self._holds(group, one, start, factor, headroom):
            return start, one
        limited = self._with_limits(group, one, factor)
        fewest = {} if usual is None else {one: usual}
        if limited is not None:
            saturation = self._server(group, limited)[1].saturation * one.parallel.dp
            busiest = BUSIEST * saturation / max(factor, headroom)
            fewest[limited] = max(start, ceil(self._rate / busiest - 1e-9))
        if not fewest:
            return None
        holding: dict[int, Configuration] = {}

        def holds(replicas: int) -> bool:
            for each, start in fewest.items():
                if replicas >= start and self._holds(group, each, replicas, factor, headroom):
                    holding[replicas] = each
                    return True
            return False

        start = min(fewest.values())
        largest = max(start, ceil(end * factor))
        replicas = least_count(start, min(largest, MAX_REPLICAS), holds) if start <= MAX_REPLICAS else None
        if replicas is None and largest > MAX_REPLICAS and holds(largest):
            return max(start, MAX_REPLICAS + 1), one  # No candidate may have as many, so their exact number does not matter.
        return None if replicas is None else (replicas, holding[replicas])

    def _holds(self, group: Group, one: Configuration, replicas: float, factor: float, headroom: float) -> bool:
        """Return whether objectives hold in simulation, with steps `factor` or `headroom` times as long and with usual ones."""
        slow = self._simulation(group, one, replicas, max(factor, headroom)) is not None
        return slow and self._simulation(group, one, replicas) is not None

    def _has_headroom(self, group: Group, one: Configuration, replicas: float) -> bool:
        """Return whether replicas sustain `MIN_HEADROOM` times their rate: by cautious formulas, else in simulation."""
        rate = MIN_HEADROOM * self._rate / replicas / one.parallel.dp
        if may_hold_by_formula(self._workload, self._server(group, one)[1], rate, _sharing(one, replicas), FORMULA_LEEWAY):
            return True
        return self._simulation(group, one, replicas, MIN_HEADROOM) is not None

    def _with_limits(self, group: Group, one: Configuration, factor: float) -> Configuration | None:
        """Return the configuration with limits on sequences, and on tokens per step if that helps, that keep TPOT at any load.

        They are those with the highest saturation rate; None if there is no TPOT objective, or no limits keep it when steps take
        `factor` times as long.
        """
        if self._workload.tpot_max is None or one.parallel.pp > 1:
            return None
        limit, best, highest = OBJECTIVE_MARGIN * self._workload.tpot_max / factor, None, 0.0
        defaults = self._servers[replica_key(group, one)][0].batch_limits
        for tokens in (None, *STEP_TOKENS):
            if tokens and not (defaults.chunked_prefill and defaults.mixed_steps and tokens < defaults.max_batched_tokens):
                continue
            times = self._server(group, replace(one, overrides=LimitOverrides(tokens)))[1]
            sequences = times.most_within(limit)
            if not tokens and sequences == times.slots:
                return None  # TPOT holds at any load as it is.
            saturation = times.limited_to(sequences).saturation if sequences else 0.0
            if saturation > highest * MIN_GAIN:
                highest, best = saturation, LimitOverrides(tokens, sequences)
        if best is None:
            return None
        return replace(one, overrides=best, batch=(best.max_sequences or 1) * one.parallel.dp)

    def _fewest_with_slow_steps(
        self, one: Configuration, times: ServiceTimes, factor: float, fewest: int, leeway: float = 1.0
    ) -> int | None:
        """Return the fewest replicas, at least `fewest`, that may keep the objectives with slow steps; None if none do."""
        max_replicas, dp = ceil(self._replica_range(one)[1] * factor), one.parallel.dp
        return least_count(
            fewest,
            max_replicas,
            lambda count: may_hold_with(self._workload, times, self._rate / count / dp, count * dp, factor, leeway),
        )

    def _with_max_rate(self, group: Group, one: Configuration, replicas: int) -> Configuration:
        """Return a simulated configuration with the highest request rate per second that one replica sustains.

        It is found by formulas, and by simulation if TTFT has a limit.
        """
        (server, times), workload = self._server(group, one), self._workload
        servers = replicas * one.parallel.dp

        headroom = MIN_HEADROOM if self._risk == "low" and self._has_headroom(group, one, replicas) else 1.0

        def may_hold(rate: float) -> bool:
            return may_hold_by_formula(workload, times, rate / servers, servers, FORMULA_LEEWAY)

        def holds(rate: float) -> bool:
            return workload.ttft_max is None or simulate_replica(workload, server, times, rate / servers, servers) is not None

        return replace(one, max_rate=highest_rate(self._rate * headroom, may_hold, holds) / replicas)

    def prepare(self, candidates: Iterable[tuple[Group, Configuration]]) -> None:
        """Build the servers of candidates that will be simulated; those that differ only in the GPU are timed in one call."""
        alike: dict[Hashable, dict[Hashable, UntimedReplica]] = defaultdict(dict)
        for group, one in candidates:
            key = replica_key(group, one)
            if key not in self._servers and (replica := self._replica(group, one)) is not None:
                alike[replace(replica.workload, model=""), replica.batch_limits.max_batched_tokens][key] = replica
        for replicas in alike.values():
            servers = timed_servers(self._request, list(replicas.values()))
            for key, server in zip(replicas, servers, strict=True):
                self._servers[key] = server, ServiceTimes.of(server, *mean_lengths(self._workload))

    def _replica(self, group: Group, one: Configuration) -> UntimedReplica | None:
        key = replica_key(group, one)
        if key not in self._replicas:
            self._replicas[key] = untimed_replica(self._request, group, one)
        return self._replicas[key]

    def _server(self, group: Group, one: Configuration) -> tuple[Server, ServiceTimes]:
        """Return the server of a configuration and its service times; tighter limits use the step times of the defaults."""
        key = replica_key(group, one)
        if one.overrides == LimitOverrides():
            return self._servers[key]
        if (key, one.overrides) not in self._limited:
            usual, limited = self._servers[key][0], untimed_replica(self._request, group, one)
            assert limited is not None
            server = Server(usual.steps, limited.limits, limited.batch_limits, usual.replicas, usual.stages)
            self._limited[key, one.overrides] = server, ServiceTimes.of(server, *mean_lengths(self._workload))
        return self._limited[key, one.overrides]

    def _with_replicas(self, one: Configuration, replicas: int) -> Configuration:
        """Return the configuration with its capacity set so that the question's rate needs exactly `replicas` replicas."""
        return replace(one, capacity=self._rate / replicas * (1 + 1e-9))

    def replicas_of(self, one: Configuration) -> int:
        """Return the number of replicas of a simulated configuration."""
        return ceil(self._rate / (one.capacity or self._rate) - 1e-6)

    def _replica_range(self, one: Configuration) -> tuple[int, int]:
        """Return the fewest and the most replicas to try in the search for a number that keeps the objectives."""
        fewest, safe = (
            max(one.min_replicas, ceil(self._rate / each - 1e-9)) for each in (one.rate_bound or inf, one.capacity or inf)
        )
        return fewest, ceil(safe * MAX_REPLICAS_FACTOR + 0.5)

    def _fewest_by_formula(self, one: Configuration, times: ServiceTimes, leeway: float = 1.0) -> int | None:
        """Return the fewest replicas that may keep the objectives according to formulas; None if no number does."""
        workload, dp = self._workload, one.parallel.dp
        return least_count(
            *self._replica_range(one),
            lambda count: may_hold_by_formula(workload, times, self._rate / count / dp, count * dp, leeway),
        )


def _sharing(one: Configuration, replicas: float) -> int:
    """Return how many servers share a load in turn: each replica of a configuration has one per data-parallel rank."""
    return max(1, int(replicas)) * one.parallel.dp
