"""What a plan shows: groups of copies, the bill, hours, what each kind of GPU would cost alone, what breaks first."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from whichgpu.base.display import Displayable
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.base.units import format_seconds
from whichgpu.decide.candidate import Cost
from whichgpu.workload.workload import Parallel


@dataclass(frozen=True, slots=True)
class Serves:
    """A bucket of requests a group takes part in: its lengths, the share of it, requests a second."""

    bucket: str
    share: float
    rate: float


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Copies of one model on one kind of machine, at the busiest level. `batch` is the most sequences of one copy."""

    model: str
    gpu: str
    gpu_name: str
    gpus: int
    copies: int
    gpus_per_copy: int
    machines: int
    provider: str
    instance: str
    region: str
    term: str
    precision: str
    parallel: Parallel
    batch: int
    rate: float  # requests a second it takes
    capacity: Figure  # requests a second it could, of these
    utilisation: float
    cost_per_hour: Cost
    serves: tuple[Serves, ...]
    copies_by_level: tuple[int, ...]
    because: tuple[Message, ...]
    role: str = "both"
    price_observed_at: str = ""  # the day its price was last seen; nothing where it is owned
    gpus_per_machine: int = 0


@dataclass(frozen=True, slots=True)
class BillRow:
    """Machines of one offer: how many at each level of load, and what an average hour of them costs."""

    provider: str
    instance: str
    region: str
    gpu: str
    gpu_name: str
    gpus_per_machine: int
    term: str
    machines: int
    machines_by_level: tuple[int, ...]
    price: Money  # of one machine, an hour
    cost_per_hour: Money
    cost_per_month: Money
    price_observed_at: str
    source: str


@dataclass(frozen=True, slots=True)
class LevelRow:
    """Hours of like load: their share of all, requests a second by model, GPUs kept, what an hour of it costs."""

    share: float
    rates: dict[str, float]
    gpus: int
    cost_per_hour: Money


@dataclass(frozen=True, slots=True)
class AloneRow:
    """The same traffic on one kind of GPU only; None where it cannot."""

    gpu: str
    gpu_name: str
    cost_per_hour: Money | None
    gpus: int | None


@dataclass(frozen=True, slots=True)
class OwnedRow:
    """What becomes of owned GPUs: how many work, at what, and why the others do not."""

    gpu: str
    gpu_name: str
    gpus: int
    used: int
    roles: tuple[Message, ...]
    reasons: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job: where it runs, how long, what it costs."""

    name: str
    gpu: str
    gpus: int
    provider: str
    instance: str
    term: str
    share: float
    hours: float
    deadline_hours: float
    cost: Money  # of doing it once
    region: str = ""
    price_observed_at: str = ""
    cost_per_hour: Money | None = None  # its part of the bill of an average hour: it is done once in the horizon


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The bill of an hour were an objective looser or tighter; None where nothing could keep it."""

    objective: str
    value: float  # seconds
    cost_per_hour: Money | None
    gap: float | None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class HourPoint:
    """One hour of the curve."""

    hour: int
    rate: float
    level: int
    gpus: dict[str, int]
    cost: Money


@dataclass(frozen=True, slots=True)
class OwnRow:
    """Buying what the plan rents of a kind: the use it has in the plan against the use from which owning is cheaper."""

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


@dataclass(frozen=True, slots=True)
class CheckRow:
    """A model under the plan, simulated: seconds at the percentile, and whether its objectives hold."""

    model: str
    percentile: float
    ttft: Figure
    tpot: Figure
    latency: Figure
    met: float | None
    holds: bool
    requests: int
    unsure: tuple[str, ...] = ()  # objectives kept by the value, but not by all of its range
    foresight: bool = False  # they hold only behind a router that knows how long answers get


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class PlanAnswer(Displayable):
    """The plan. `bound` is what no plan of all offers looked at can cost less than; `gap` the distance to it, as a share."""

    request: dict[str, Any]
    as_of: str
    sentence: Message
    cost_per_hour: Cost
    cost_per_month: Money
    cost: Money  # over the horizon
    horizon_hours: float
    bound: Money
    gap: float
    optimum_per_hour: Money  # before kinds were joined for simplicity
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
    program: int  # columns in the program
    seconds: float
    assumptions: tuple[Message, ...]
    warnings: tuple[Message, ...] = ()
    sources: tuple[Any, ...] = ()
    verify: str = ""
    verify_note: Message | None = None  # what that command measures, and what not
    reproduce: str = ""
    changes: dict[str, int] = field(default_factory=dict)  # GPUs added or given back against the current fleet
    roles: Any = None
    designs: tuple[Any, ...] = ()
    policies: tuple[Any, ...] = ()
    # Where the simulation misses an objective: simulated fleets by what they missed, and a changed request that is answered.
    rejected: dict[str, int] = field(default_factory=dict)
    relaxation: Any = None


def format_range(figure: Figure) -> Message:
    """Seconds with their range."""
    low, high = format_seconds(figure.low), format_seconds(figure.high)
    return msg("plan.ranged", value=format_seconds(figure.value), low=low, high=high)


def money(value: float, currency: str) -> Money:
    """To a hundredth of a cent."""
    return Money(Decimal(repr(round(float(value), 4))), currency)
