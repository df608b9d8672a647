"""Cost of a run: starts, checkpoints, interruptions, idle time, billing granularity, commitments.

Inputs and results are arrays with one entry per candidate offer.
"""

from __future__ import annotations

import msgspec
import numpy as np

from whichgpu.price.run_settings import run_default, run_default_sources
from whichgpu.price.table import Floats, Ints
from whichgpu.price.terms import MONTH_HOURS, YEAR_HOURS, YEARS

HOUR = 3600.0  # seconds
# Seconds from renting a machine to useful work: it boots, pulls an image of about 10 GB (7 to 10 minutes, Tensorfuse) and loads
# weights (5 minutes for vLLM with 8B parameters on an L40S, also Tensorfuse); 10 minutes in all are assumed (`--startup`).
STARTUP = run_default("startup")
# Interruptible runs save a checkpoint twice an hour, which takes a minute (assumed, `--checkpoint-every`).
CHECKPOINT_EVERY, CHECKPOINT_TAKES = run_default("checkpoint_every"), run_default("checkpoint_takes")
# Interruptions of a spot machine per hour (assumed, `--interruptions`). AWS publishes only which of five bands, from under 5% to
# over 20%, the share of machines reclaimed in a month is in, whatever their lifetime, so no rate follows. Azure shows hourly
# rates by size and region to its customers. Over all kinds of EC2 machines fewer than 5% are reclaimed in a month (nOps); with
# GPUs more are: Bamboo (NSDI 2023) is cited for 0.10 to 0.33 per hour of p3 machines. The lower end of that is assumed.
INTERRUPTIONS = run_default("interruptions")
MAX_STARTING_SHARE = 0.9  # A service on spot spends at most this share of its hours starting.
UNFINISHED_HOURS = 1e9  # Finite number of hours for a run that never ends, so that sums stay finite.
SPOT_SOURCES = ("bamboo-nsdi-2023", *run_default_sources("interruptions"))


class RunSettings(msgspec.Struct, frozen=True):
    """Settings that determine the hours and cost of a run, besides its work: start, checkpoints, interruptions, disk, egress."""

    startup: float = STARTUP  # seconds
    checkpoint_every: float = CHECKPOINT_EVERY  # seconds
    checkpoint_takes: float = CHECKPOINT_TAKES  # seconds
    interruptions: float = INTERRUPTIONS  # per hour of one spot machine
    idle: float = 0.0  # share of the paid time without work, 0 to 1
    disk_gb: float = 0.0
    egress_gb: float = 0.0


class RunCost(msgspec.Struct, frozen=True):
    """Hours and cost of a run on each offer, in arrays with one entry per offer; money in the offers' currency."""

    hours: Floats  # wall-clock hours from the first start to the end, reruns included
    billed: Floats  # billed hours of one machine
    reruns: Floats  # expected number of interruptions
    machine: Floats
    host: Floats
    disk: Floats
    egress: Floats
    break_even: Floats  # hours of on-demand use that cost as much as the commitment; nan without a commitment

    @property
    def cost(self) -> Floats:
        """Return the total cost of the run on each offer."""
        total: Floats = self.machine + self.host + self.disk + self.egress
        return total


class OfferTerms(msgspec.Struct, frozen=True):
    """Price and billing terms of offers, in arrays with one entry per offer; disk and egress charges in US dollars."""

    price: Floats  # per hour of one machine
    machines: Floats
    spot: np.ndarray  # whether the offer is a spot machine
    years: Floats  # years of commitment, 0 without one
    granularity: Floats  # seconds to which time is rounded up
    minimum: Floats  # fewest seconds that are billed
    on_demand: Floats  # on-demand price per hour of the same machine; nan if not offered
    host: Floats  # price of the host per hour, if the GPU is priced alone
    disk: Floats  # per GB and month
    egress: Floats  # per GB
    steps: tuple[tuple[float, ...], ...] = ()  # price shares of sustained-use discounts, by part of the month
    step_of: np.ndarray = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # index into `steps`; -1 without

    def at(self, rows: Ints, machines: Floats) -> OfferTerms:
        """Return the billing terms of the offers in `rows`, with the given number of machines for each."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return OfferTerms(**columns, machines=machines, steps=self.steps)


COLUMNS = ("price", "spot", "years", "granularity", "minimum", "on_demand", "host", "disk", "egress", "step_of")


def run_cost(work_hours: Floats, terms: OfferTerms, run_settings: RunSettings, interruptible: bool) -> RunCost:
    """Return the cost of `work_hours` of work on each offer; `interruptible` work saves checkpoints and may be restarted.

    An interrupted spot machine loses half a checkpoint interval and a start; if interruptions are so frequent that the run never
    finishes, hours are infinite. A service loses starts only, which are paid for.
    """
    saved = run_settings.checkpoint_takes / run_settings.checkpoint_every if interruptible else 0.0
    start = run_settings.startup / HOUR
    busy = work_hours * (1.0 + saved) + start
    rate = np.where(terms.spot, run_settings.interruptions * terms.machines, 0.0)
    again = start if not interruptible else run_settings.checkpoint_every / HOUR / 2.0 + start
    lost = np.minimum(rate * again, MAX_STARTING_SHARE) if not interruptible else rate * again
    hours = np.where(lost < 1.0, busy / np.maximum(1.0 - lost, 1e-9), np.inf)
    done = np.isfinite(hours)
    clock = np.where(done, hours, UNFINISHED_HOURS) / (1.0 - run_settings.idle)
    billed = np.maximum(np.ceil(clock * HOUR / terms.granularity) * terms.granularity, terms.minimum) / HOUR
    committed = terms.years * YEAR_HOURS
    due = np.where(committed > 0, _committed_hours(billed if interruptible else work_hours, committed, terms), billed)
    paid = due * sustained(terms, clock)
    months = clock / MONTH_HOURS
    with np.errstate(invalid="ignore", divide="ignore"):
        even = np.where(committed > 0, terms.price * committed / terms.on_demand, np.nan)
    return RunCost(
        hours=np.where(done, clock, np.inf),
        billed=billed,
        reruns=rate * np.where(done, hours, UNFINISHED_HOURS),
        machine=terms.price * terms.machines * paid,
        host=terms.host * terms.machines * due,
        disk=terms.disk * run_settings.disk_gb * months,
        egress=terms.egress * run_settings.egress_gb * np.ones_like(clock),
        break_even=even,
    )


def _committed_hours(hours: Floats, committed: Floats, terms: OfferTerms) -> Floats:
    """Return the hours to pay at the committed price for `hours` of use: full terms, then one more or on demand if cheaper.

    On-demand hours are converted by price. A service's `hours` exclude its start, so that one year of service needs one term.
    """
    length = np.maximum(committed, 1.0)
    whole = np.floor(hours / length + 1e-9)
    rest = np.maximum(hours - whole * length, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        plain = np.where(np.isfinite(terms.on_demand), rest * terms.on_demand / terms.price, np.inf)
    again = np.where(rest > length * 1e-9, length, 0.0)
    return whole * length + np.where(whole > 0, np.minimum(again, plain), again)


def sustained(terms: OfferTerms, hours: Floats) -> Floats:
    """Return, for every offer, the average share of the on-demand price after sustained-use discounts for `hours` per month."""
    share = np.ones_like(hours)
    for place, steps in enumerate(terms.steps):
        part = MONTH_HOURS / len(steps)
        run = np.minimum(np.maximum(hours, 1e-9), MONTH_HOURS)
        paid = sum(np.clip(run - part * index, 0.0, part) * step for index, step in enumerate(steps))
        share = np.where(terms.step_of == place, paid / run, share)
    return share


def committed_years(term: str) -> float:
    """Return the years that a term commits to; 0 without a commitment."""
    return float(YEARS.get(term, 0))
