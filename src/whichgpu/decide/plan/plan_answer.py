"""The answer of `plan`: groups of replicas, the bill, levels of load, comparisons, and what fails first."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from whichgpu.base.display import Displayable
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.base.units import format_seconds
from whichgpu.decide.candidate import Cost
from whichgpu.workload.workload import Parallel

MIN_GAP = 0.0005  # A smaller gap, as a share of the cost, is shown as none.
MAX_PROBABILITY = 0.95  # No higher probability is stated: that of the slow end of a 90% range.


class Serves(msgspec.Struct, frozen=True):
    """One bucket of requests a group of replicas serves: its lengths, the share of its requests, requests per second."""

    bucket: str
    share: float
    rate: float
    place: str = ""  # city of the users, if they are in several


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas of one model on one kind of machine at the busiest level. `batch` is the most sequences of one replica."""

    model: str = ""
    gpu: str
    gpu_name: str
    gpus: int
    copies: int
    gpus_per_copy: int
    machines: int
    provider: str = ""
    instance: str = ""
    region: str = ""
    term: str = "on-demand"
    precision: str = ""
    parallel: Parallel
    batch: int = 0
    rate: float  # requests per second
    capacity: Figure  # requests per second, of these lengths
    utilisation: float
    cost_per_hour: Cost
    serves: tuple[Serves, ...]
    copies_by_level: tuple[int, ...]
    because: tuple[Message, ...] = ()
    role: str = "both"
    price_observed_at: str = ""  # day its price was last seen; empty if owned
    gpus_per_machine: int = 0
    memory: Figure | None = None  # what the engine needs on each GPU for one sequence, as `estimate` gives it; None if unknown
    memory_device: Figure | None = None  # the same with CUDA context and all that the engine reserves


class BillRow(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of one offer: how many at each level of load, and their cost per average hour."""

    provider: str = ""
    instance: str = ""
    region: str = ""
    gpu: str
    gpu_name: str
    gpus_per_machine: int
    term: str = "on-demand"
    machines: int
    machines_by_level: tuple[int, ...]
    price: Money  # per machine and hour
    cost_per_hour: Money
    cost_per_month: Money
    price_observed_at: str = ""
    source: str = ""


class LevelRow(msgspec.Struct, frozen=True):
    """A level of load: its share of the hours, requests per second by model, GPUs, cost per hour."""

    share: float
    rates: dict[str, float]
    gpus: int
    cost_per_hour: Money


class AloneRow(msgspec.Struct, frozen=True):
    """Cost and GPUs of serving all traffic on one kind of GPU only; None if that kind cannot serve it."""

    gpu: str
    gpu_name: str
    cost_per_hour: Money | None
    gpus: int | None


class OwnedRow(msgspec.Struct, frozen=True):
    """One kind of GPU the user owns: how many are used, what they serve, and why the others are idle."""

    gpu: str
    gpu_name: str
    gpus: int
    used: int
    roles: tuple[Message, ...]
    reasons: tuple[Message, ...]


class JobRow(msgspec.Struct, frozen=True):
    """A training or batch job of the plan: where it runs, how long, and its cost."""

    name: str
    gpu: str
    gpus: int
    provider: str
    instance: str
    term: str
    share: float
    hours: float
    deadline_hours: float
    cost: Money  # cost of one run of the job
    region: str = ""
    price_observed_at: str = ""
    cost_per_hour: Money | None = None  # its part of the bill per average hour; it runs once in the horizon
    request: dict[str, Any] = msgspec.field(default_factory=dict)  # request of `estimate` for it, in the layout chosen


class CurvePoint(msgspec.Struct, frozen=True):
    """One point of the cost curve: the plan's bill per hour at another objective or rate; None if no fleet meets it."""

    objective: str
    value: float  # seconds
    cost_per_hour: Money | None
    gap: float | None
    gpus: int | None = None


class HourPoint(msgspec.Struct, frozen=True):
    """One hour of the plan's load curve: requests, GPUs and cost."""

    hour: int
    rate: float
    level: int
    gpus: dict[str, int]
    cost: Money


class OwnRow(msgspec.Struct, frozen=True):
    """Buying instead of renting a kind of GPU: its use in the plan against the break-even use."""

    gpu: str
    gpu_name: str
    gpus: int
    purchase: Money
    rent_per_gpu_hour: Money
    own_per_gpu_hour: Money
    use: float
    break_even_use: float | None
    break_even_months: float | None
    buy: bool


class CheckRow(msgspec.Struct, frozen=True):
    """Simulation of a model under the plan: seconds at the percentile, and whether its objectives hold.

    `met` is the share of requests that met every objective, `met_low` its lower bound with 95% confidence. The objectives hold if
    that bound reaches the percentile.
    """

    model: str
    percentile: float
    ttft: Figure
    tpot: Figure
    latency: Figure
    met: float | None
    holds: bool
    requests: int
    met_low: float | None = None
    unsure: tuple[str, ...] = ()  # objectives met by the value, but not by all of its range
    foresight: bool = False  # The objectives hold only if the router knows output lengths.
    keeps_objective: float | None = None  # probability that its objectives hold, at most 0.95; None without any

    @property
    def unshown(self) -> bool:
        """Return whether enough simulated requests meet the objectives, but too few to show it with 95% confidence."""
        return self.met is not None and (self.met_low or 0.0) < self.percentile / 100.0 <= self.met


class PlanAnswer(Displayable, msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `plan`. `bound` is proven: no plan of these offers costs less; `gap` is its distance, a share of the cost."""

    request: dict[str, Any]
    as_of: str
    sentence: Message
    cost_per_hour: Cost
    cost_per_month: Money
    cost: Money  # over the horizon
    horizon_hours: float
    bound: Money
    gap: float
    optimum_per_hour: Money  # before kinds of machines were joined for simplicity
    headroom: float
    groups: tuple[GroupRow, ...]
    bill: tuple[BillRow, ...]
    levels: tuple[LevelRow, ...]
    alone: tuple[AloneRow, ...]
    jobs: tuple[JobRow, ...] = ()
    owned: tuple[OwnedRow, ...] = ()
    breaks_first: tuple[Message, ...]
    simulation: tuple[CheckRow, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    timeline: tuple[HourPoint, ...] = ()
    own: tuple[OwnRow, ...] = ()
    hints: tuple[Any, ...] = ()
    offers: int
    columns: int
    program: int  # columns in the mixed-integer program
    seconds: float
    assumptions: tuple[Message, ...]
    warnings: tuple[Message, ...] = ()
    sources: tuple[Any, ...] = ()
    verify: str = ""
    verify_note: Message | None = None  # what that command does and does not measure
    reproduce: str = ""
    changes: dict[str, int] = msgspec.field(default_factory=dict)  # GPUs added to or removed from the current fleet
    roles: Any = None
    designs: tuple[Any, ...] = ()
    policies: tuple[Any, ...] = ()
    # If the simulation misses an objective: fleets by the objective they missed, and a changed request that has a plan.
    rejected: dict[str, int] = msgspec.field(default_factory=dict)
    relaxation: Any = None
    emitted: dict[str, str] = msgspec.field(default_factory=dict)  # files that launch it, by name


def format_range(figure: Figure) -> Message:
    """Return a message with a time in seconds and its 90% range."""
    low, high = format_seconds(figure.low), format_seconds(figure.high)
    return msg("plan.ranged", value=format_seconds(figure.value), low=low, high=high)


def proof(gap: float) -> Message:
    """Return how far the cost is proven to be from the least possible: `gap` is the share that might be saved."""
    return msg("plan.least") if gap < MIN_GAP else msg("plan.saving", gap=f"{gap:.1%}")


def money(value: float, currency: str) -> Money:
    """Return an amount rounded to a hundredth of a cent, in a currency."""
    return Money(Decimal(repr(round(float(value), 4))), currency)
