"""Cost of meeting objectives with machines that may be interrupted: on demand, spot with on-demand fallback, mixed, spot alone.

Each policy is simulated until about ten interruptions; if the objectives fail, it gets one machine more, until they hold. If that
would take too many inference requests, interruptions and starts are sped up by a factor (`pace`), which keeps the share of time
with any number of machines serving. The cost is the mean over a long time, from how often and how long each state lasts. Rates
of interruption and start-up times are those of training runs (`price.run`) unless given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.base.parallel.sweep import run_sweep
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.fleet_answer import share_within_objectives
from whichgpu.estimate.serving.fleet.fleet_outcome import FleetOutcome
from whichgpu.estimate.serving.fleet.pools import Fleet, Interruptions
from whichgpu.estimate.serving.load import Load
from whichgpu.estimate.serving.summary import WARM_UP_SHARE
from whichgpu.price.run import INTERRUPTIONS, STARTUP
from whichgpu.price.run_settings import run_default

Policy = Literal["on-demand", "spot-with-fallback", "mixed", "spot"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
DEFAULT_INTERRUPTIONS = Interruptions(rate=INTERRUPTIONS, notice=run_default("notice"), warm_up=STARTUP)
SIMULATED_INTERRUPTIONS = 10  # Interruptions that one simulation should contain (assumed).
MAX_REQUESTS = 50_000  # Most inference requests in one simulation (assumed).
MIN_STARTUP = 60.0  # `pace` shortens no start below this many seconds, since answers take seconds.
MAX_EXTRA_MACHINES = 6  # Most machines that are added to keep the objectives despite interruptions (assumed).
HOUR = 3600.0  # seconds
UNPRICED = Money(Decimal(0), "USD")


class Rates(msgspec.Struct, frozen=True):
    """Prices per hour of the machine of one replica; `spot` is None if the machine is not offered as spot."""

    on_demand: Decimal
    spot: Decimal | None = None
    currency: str = "USD"


class PolicyCase(msgspec.Struct, frozen=True):
    """One way to hold spot machines (all, none, half, with fallback), to simulate; its contents, without prices, fix the seed."""

    policy: Policy
    fleet: Fleet
    load: Load
    goals: Objectives
    interruptions: Interruptions


class PolicyCost(msgspec.Struct, frozen=True):
    """One way to hold spot machines (`policy`): cost per hour, share of requests within the objectives, machines added.

    `lost` and `retried` are shares of requests at the machines' own pace; `interruptions` are those simulated in `hours`.
    """

    policy: Policy
    cost: Money
    kept: bool
    met: float
    more: int
    copies: Mapping[str, int]
    spot: Mapping[str, int]
    spot_share: float  # share of machine hours that are spot
    lost: float
    retried: float
    requests: int
    interruptions: int
    hours: float
    pace: float


class PoliciesAnswer(msgspec.Struct, frozen=True):
    """Every way to hold spot machines, with its cost: those that keep the objectives first, cheapest first."""

    sentence: Message
    policies: tuple[PolicyCost, ...]
    assumptions: tuple[Message, ...]
    warnings: tuple[Message, ...]


def cost_of_policies(
    fleet: Fleet, load: Load, goals: Objectives, rates: Mapping[str, Rates], interruptions: Interruptions = DEFAULT_INTERRUPTIONS,
    policies: Sequence[Policy] = POLICIES, sweep: Callable[..., list[PolicyCost]] = run_sweep,
) -> PoliciesAnswer:  # fmt: skip
    """Return the cost of each way to hold spot machines; `rates` are machine prices by the name of the pool of equal replicas."""
    _check(fleet, rates, policies)
    on_spot = all(rates[pool.name].spot is not None for pool in fleet.pools)
    offered = [policy for policy in policies if policy == "on-demand" or on_spot]
    cases = [PolicyCase(policy, fleet, load, goals, interruptions) for policy in offered]
    simulated = sweep(simulate_policy, cases)
    costs = [_with_cost(one, rates, interruptions) for one in simulated]
    ordered = tuple(sorted(costs, key=lambda one: (not one.kept, one.cost.amount)))
    best = ordered[0]
    warnings = [msg("policies.none-kept")] if not best.kept else []
    if len(offered) < len(policies):
        warnings.append(msg("policies.no-spot"))
    few = SIMULATED_INTERRUPTIONS // 2
    if thin := [one.policy for one in ordered if one.policy != "on-demand" and one.interruptions < few]:
        warnings.append(msg("policies.thin", policies=tuple(thin)))
    values = {name: f"{getattr(interruptions, name):g}" for name in ("rate", "notice", "warm_up", "outage")}
    return PoliciesAnswer(
        sentence=msg("policies.sentence", policy=msg(f"policy.{best.policy}"), cost=str(best.cost), met=f"{best.met:.1%}"),
        policies=ordered,
        assumptions=(msg("policies.assumes", **values),),
        warnings=tuple(warnings),
    )


def _check(fleet: Fleet, rates: Mapping[str, Rates], policies: Sequence[Policy]) -> None:
    missing = tuple(pool.name for pool in fleet.pools if pool.name not in rates)
    if missing:
        raise UsageError("no-price", msg("policies.no-price", stations=missing))
    unknown = tuple(policy for policy in policies if policy not in POLICIES)
    if unknown:
        raise UsageError("bad-policy", msg("policies.unknown", policies=unknown, known=POLICIES))


def fleet_under(policy: Policy, fleet: Fleet, interruptions: Interruptions) -> Fleet:
    """Return the fleet with all, half or none of each pool's equal replicas on spot machines, as `policy` says."""
    share = {"on-demand": 0.0, "mixed": 0.5}.get(policy, 1.0)
    pools = tuple(replace(pool, spot=int(share * pool.replicas)) for pool in fleet.pools)
    return replace(fleet, pools=pools, interruptions=replace(interruptions, fallback=policy != "spot"))


def simulate_policy(case: PolicyCase, seed: int) -> PolicyCost:
    """Simulate a way to hold spot machines, adding replicas where busiest until the objectives hold; the cost is not yet set."""
    fleet, extra = replace(case.fleet, seed=seed), 0
    while True:
        own = fleet_under(case.policy, fleet, case.interruptions)
        load, pace = _long_enough(case.load, own)
        outcome = simulate_fleet(replace(own, interruptions=faster(own.interruptions, pace)), load.arrivals(), load.hash_tokens)
        met = share_within_objectives(outcome, case.goals, WARM_UP_SHARE if load.steady else 0.0)
        objectives_hold = met >= case.goals.percentile / 100.0
        if objectives_hold or extra >= MAX_EXTRA_MACHINES:
            break
        fleet, extra = _with_one_more(fleet, outcome), extra + 1
    requests = len(outcome.served.arrived)
    return PolicyCost(
        policy=case.policy, cost=UNPRICED, kept=objectives_hold, met=met, more=extra,
        copies={pool.name: pool.replicas for pool in own.pools}, spot={pool.name: pool.spot for pool in own.pools},
        spot_share=0.0, lost=outcome.lost / requests / pace, retried=outcome.retried / requests / pace, requests=requests,
        interruptions=outcome.interruptions, hours=outcome.seconds / HOUR, pace=pace,
    )  # fmt: skip


def faster(one: Interruptions, pace: float) -> Interruptions:
    """Return interruptions and machine starts sped up by the factor `pace`; the seconds of notice before one stay the same."""
    return replace(one, rate=one.rate * pace, warm_up=one.warm_up / pace, outage=one.outage / pace)


def _long_enough(load: Load, fleet: Fleet) -> tuple[Load, float]:
    """Return a load of enough requests for `SIMULATED_INTERRUPTIONS`, up to `MAX_REQUESTS`, and the speed-up if that is fewer."""
    spot, interruptions = sum(pool.spot for pool in fleet.pools), fleet.interruptions
    hours = SIMULATED_INTERRUPTIONS / (interruptions.rate * spot) if spot and interruptions.rate > 0 else 0.0
    needed = hours * HOUR * load.rate
    count = int(max(load.requests, min(MAX_REQUESTS, needed)))
    pace = max(1.0, min(needed / count, interruptions.warm_up / MIN_STARTUP))
    return load.at(load.rate, count), pace


def _with_one_more(fleet: Fleet, outcome: FleetOutcome) -> Fleet:
    """Return the fleet with one more replica in the busiest of its pools of equal replicas."""
    busiest = max(range(len(fleet.pools)), key=lambda at: outcome.pools[at].utilisation)
    pools = tuple(replace(pool, replicas=pool.replicas + (at == busiest)) for at, pool in enumerate(fleet.pools))
    return replace(fleet, pools=pools)


def machines_per_spot_replica(interruptions: Interruptions) -> tuple[float, float]:
    """Return the mean number of spot and of on-demand machines paid for per replica that runs on spot.

    A cycle is the time until an interruption, its notice, the outage, and the next start. With an hour until it, half a
    minute's notice, an hour's outage and ten minutes' start, a cycle is 130.5 minutes; each machine is paid for 70.5 of them:

    >>> [round(one, 4) for one in machines_per_spot_replica(Interruptions(rate=1.0, notice=30.0, warm_up=600.0, outage=3600.0))]
    [0.5402, 0.5402]
    """
    if interruptions.rate <= 0:
        return 1.0, 0.0
    up, away = HOUR / interruptions.rate, interruptions.notice + interruptions.outage + interruptions.warm_up
    spot = up + interruptions.notice + interruptions.warm_up
    return spot / (up + away), away / (up + away) if interruptions.fallback else 0.0


def _with_cost(one: PolicyCost, rates: Mapping[str, Rates], interruptions: Interruptions) -> PolicyCost:
    """Return the simulated policy (how many spot machines to hold) with its mean cost per hour and its spot share of hours."""
    spot, on_demand = machines_per_spot_replica(replace(interruptions, fallback=one.policy != "spot"))
    total = Decimal(0)
    for name, copies in one.copies.items():
        own, on_spot = rates[name], one.spot[name]
        total += (copies - on_spot + on_spot * Decimal(repr(on_demand))) * own.on_demand
        total += on_spot * Decimal(repr(spot)) * (own.spot or Decimal(0))
    on_spot = sum(one.spot.values())
    machines = sum(one.copies.values()) - on_spot + on_spot * (spot + on_demand)
    cost = Money(total.quantize(Decimal("0.0001")), rates[next(iter(one.copies))].currency)
    return replace(one, cost=cost, spot_share=on_spot * spot / machines)
