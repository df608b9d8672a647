"""What keeping the objectives costs when machines may be taken away: on demand, on spot with one on demand standing in, mixed.

Each policy is simulated until machines were taken away some ten times; where the objectives do not hold, it is given a machine
more, until they do. Where that would take too many requests, machines live so many times faster (`pace`): what share of the time
how many of them serve stays the same. What is paid is the mean over a long time, which follows from how often and how long each
state lasts. Interruptions and starts are those assumed for runs of training (`price.run`), unless given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal, get_args

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.base.parallel.sweep import Progress, run_sweep
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
# Half a minute's notice is the shortest any large cloud gives.
USUAL = Interruptions(rate=INTERRUPTIONS, notice=run_default("notice"), warm_up=STARTUP)
TAKEN = 10  # times a machine should be taken away while simulated
MOST_REQUESTS = 50_000
SHORTEST = 60.0  # seconds a start is never made shorter than: many times as long as an answer takes
MOST_MORE = 6  # machines beyond the plan
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Money for one copy's machine and hour; no `spot` where it is not offered so."""

    on_demand: Decimal
    spot: Decimal | None = None
    currency: str = "USD"


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """One policy to be tried."""

    policy: Policy
    fleet: Fleet
    load: Load
    goals: Objectives
    interruptions: Interruptions


@dataclass(frozen=True, slots=True)
class Tried:
    """How it went: copies and those of them on spot by station, and what became of the requests."""

    policy: Policy
    copies: tuple[int, ...]
    spot: tuple[int, ...]
    more: int
    pace: float
    hours: float
    met: float
    requests: int
    lost: int
    retried: int
    interruptions: int
    kept: bool


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """A policy with its bill: money an hour, the share of requests that met the objectives, machines beyond the plan.

    `lost` and `retried` are shares of requests as machines live at their own pace; `interruptions` those seen in `hours`.
    """

    policy: Policy
    cost: Money
    kept: bool
    met: float
    more: int
    copies: Mapping[str, int]
    spot: Mapping[str, int]
    spot_share: float  # of the hours of machines
    lost: float
    retried: float
    requests: int
    interruptions: int
    hours: float
    pace: float


@dataclass(frozen=True, slots=True)
class PoliciesAnswer:
    """All policies, those that keep the objectives first, cheapest first."""

    sentence: Message
    policies: tuple[PolicyCost, ...]
    assumptions: tuple[Message, ...]
    warnings: tuple[Message, ...]


def cost_of_policies(
    fleet: Fleet,
    load: Load,
    goals: Objectives,
    rates: Mapping[str, Rates],
    interruptions: Interruptions = USUAL,
    policies: Sequence[Policy] = POLICIES,
    *,
    jobs: int = 1,
    ray: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> PoliciesAnswer:
    """What each policy costs; `rates` by the name of a station."""
    _check(fleet, rates, policies)
    able = [one for one in policies if one == "on-demand" or all(rates[each.name].spot is not None for each in fleet.pools)]
    cases = [PolicyCase(one, fleet, load, goals, interruptions) for one in able]
    told = [_priced(one, fleet, rates, interruptions) for one in run_sweep(tried, cases, jobs=jobs, ray=ray, progress=progress)]
    ordered = tuple(sorted(told, key=lambda one: (not one.kept, one.cost.amount)))
    best = ordered[0]
    warnings = [msg("policies.none-kept")] if not best.kept else []
    if len(able) < len(policies):
        warnings.append(msg("policies.no-spot"))
    thin = [one.policy for one in ordered if one.policy != "on-demand" and one.interruptions < TAKEN // 2]
    if thin:
        warnings.append(msg("policies.thin", policies=tuple(thin)))
    values = {"rate": f"{interruptions.rate:g}", "notice": f"{interruptions.notice:g}", "warm_up": f"{interruptions.warm_up:g}"}
    return PoliciesAnswer(
        sentence=msg("policies.sentence", policy=msg(f"policy.{best.policy}"), cost=str(best.cost), met=f"{best.met:.1%}"),
        policies=ordered,
        assumptions=(msg("policies.assumes", **values, outage=f"{interruptions.outage:g}"),),
        warnings=tuple(warnings),
    )


def _check(fleet: Fleet, rates: Mapping[str, Rates], policies: Sequence[Policy]) -> None:
    missing = tuple(one.name for one in fleet.pools if one.name not in rates)
    if missing:
        raise UsageError("no-price", msg("policies.no-price", stations=missing))
    unknown = tuple(one for one in policies if one not in POLICIES)
    if unknown:
        raise UsageError("bad-policy", msg("policies.unknown", policies=unknown, known=POLICIES))


def under(policy: Policy, fleet: Fleet, interruptions: Interruptions) -> Fleet:
    """The fleet with as many machines on spot as the policy has: all, none, or every other one."""
    part = {"on-demand": 0.0, "mixed": 0.5}.get(policy, 1.0)
    stations = tuple(replace(one, spot=int(part * one.replicas)) for one in fleet.pools)
    return replace(fleet, pools=stations, interruptions=replace(interruptions, fallback=policy != "spot"))


def tried(case: PolicyCase, seed: int) -> Tried:
    """Simulated, with a machine more at a time where there is most to do, until the objectives hold."""
    fleet, more = replace(case.fleet, seed=seed), 0
    while True:
        own = under(case.policy, fleet, case.interruptions)
        load, pace = _long_enough(case.load, own)
        outcome = simulate_fleet(replace(own, interruptions=faster(own.interruptions, pace)), load.arrivals(), load.hash_tokens)
        met = share_within_objectives(outcome, case.goals, WARM_UP_SHARE if load.steady else 0.0)
        kept = met >= case.goals.percentile / 100.0
        if kept or more >= MOST_MORE:
            copies, spot = zip(*((one.replicas, one.spot) for one in own.pools), strict=True)
            return Tried(
                policy=case.policy, copies=copies, spot=spot, more=more, pace=pace, hours=outcome.seconds / HOUR, met=met,
                requests=len(outcome.served.arrived), lost=outcome.lost, retried=outcome.retried,
                interruptions=outcome.interruptions, kept=kept,
            )  # fmt: skip
        fleet, more = _one_more(fleet, outcome), more + 1


def faster(one: Interruptions, pace: float) -> Interruptions:
    """Machines that live so many times faster; the notice stays as long as it is, since answers do."""
    return replace(one, rate=one.rate * pace, warm_up=one.warm_up / pace, outage=one.outage / pace)


def _long_enough(load: Load, fleet: Fleet) -> tuple[Load, float]:
    """As many requests as it takes, or as many as are simulated at most and how much faster machines then live."""
    spot, asked = sum(one.spot for one in fleet.pools), fleet.interruptions
    hours = TAKEN / (asked.rate * spot) if spot and asked.rate > 0 else 0.0
    wanted = hours * HOUR * load.rate
    count = int(max(load.requests, min(MOST_REQUESTS, wanted)))
    pace = max(1.0, min(wanted / count, asked.warm_up / SHORTEST))
    return load.at(load.rate, count), pace


def _one_more(fleet: Fleet, outcome: FleetOutcome) -> Fleet:
    """One more copy where copies work most of their time."""
    busiest = max(range(len(fleet.pools)), key=lambda place: outcome.pools[place].utilisation)
    more = tuple(replace(one, replicas=one.replicas + (place == busiest)) for place, one in enumerate(fleet.pools))
    return replace(fleet, pools=more)


def held(interruptions: Interruptions) -> tuple[float, float]:
    """Machines on spot and on demand held on average for one place on spot: of every life of it, the time each is paid for.

    A life is the time until it is told of its end, the notice, the outage, and the start of the next. With an hour until then,
    half a minute's notice, an hour's outage and ten minutes' start it is 130.5 minutes; each is held for 70.5 of them:

    >>> [round(one, 4) for one in held(Interruptions(rate=1.0, notice=30.0, warm_up=600.0, outage=3600.0))]
    [0.5402, 0.5402]
    """
    if interruptions.rate <= 0:
        return 1.0, 0.0
    up, away = HOUR / interruptions.rate, interruptions.notice + interruptions.outage + interruptions.warm_up
    spot = up + interruptions.notice + interruptions.warm_up
    return spot / (up + away), away / (up + away) if interruptions.fallback else 0.0


def _priced(one: Tried, fleet: Fleet, rates: Mapping[str, Rates], interruptions: Interruptions) -> PolicyCost:
    total, names = Decimal(0), [each.name for each in fleet.pools]
    spot, stands_in = held(replace(interruptions, fallback=one.policy != "spot"))
    for name, copies, away in zip(names, one.copies, one.spot, strict=True):
        own = rates[name]
        total += (copies - away + away * Decimal(repr(stands_in))) * own.on_demand
        total += away * Decimal(repr(spot)) * (own.spot or Decimal(0))
    away = sum(one.spot)
    machines = sum(one.copies) - away + away * (spot + stands_in)
    return PolicyCost(
        policy=one.policy, cost=Money(total.quantize(Decimal("0.0001")), rates[names[0]].currency), kept=one.kept, met=one.met,
        more=one.more, copies=dict(zip(names, one.copies, strict=True)), spot=dict(zip(names, one.spot, strict=True)),
        spot_share=away * spot / machines, lost=one.lost / one.requests / one.pace, retried=one.retried / one.requests / one.pace,
        requests=one.requests, interruptions=one.interruptions, hours=one.hours, pace=one.pace,
    )  # fmt: skip
