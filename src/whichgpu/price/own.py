"""Cost of owning a machine, and the utilisation above which owning is cheaper than renting.

Every input is the user's or a default marked as such; answers show how the result depends on each input.
"""

from __future__ import annotations

from math import inf

import msgspec
from msgspec.structs import replace

from whichgpu.price.terms import MONTH_HOURS, YEAR_HOURS

# US dollars per kWh: the average of US commercial customers in 2024 (EIA, Electric Power Monthly). PUE: facilities draw 1.58
# times the power of their machines on average (Uptime Institute, 2023). At home there is no cooling plant, so PUE is 1.
POWER_PRICE, POWER_SOURCE = 0.1275, "eia-electricity-prices"
PUE_SOURCE = "uptime-pue-2023"
YEARS, RESIDUAL, USE = 3.0, 0.3, 0.5
HOST_SHARE, MIN_HOST_PRICE = (
    0.25,
    800.0,
)  # Price of the host as a share of its GPUs' price, and its minimum in US dollars (assumed).
HOST_WATTS = 150.0  # Power in watts of the machine without its GPUs (assumed).
MACHINE_GPUS = 8  # At most this many owned GPUs share one host (assumed).
LOAD, IDLE = 0.9, 0.15  # Share of its rated power that a GPU draws under load and when idle (assumed).


def owned_gpu_hour(watts: float | None, gpus: int, power_price: float) -> float:
    """Return the cost of an hour's work of one of several owned GPUs (rated `watts`): its power and its share of the host's.

    >>> round(owned_gpu_hour(700.0, 4, 0.1), 5)
    0.06675
    """
    return ((watts or HOST_WATTS) * LOAD + HOST_WATTS / min(gpus, MACHINE_GPUS)) / 1000.0 * power_price


def rated_watts(watts: float | None, gpus: float, machines: float) -> float:
    """Return the power of GPUs at their limit (`watts` each) and of their machines; infinite if the GPU's is unknown.

    >>> rated_watts(700.0, 8, 1), rated_watts(None, 8, 1)
    (5750.0, inf)
    """
    return inf if watts is None else watts * gpus + HOST_WATTS * machines


class OwnershipCosts(msgspec.Struct, frozen=True):
    """Inputs of the cost of owning a machine: money in one currency, shares from 0 to 1, watts of all GPUs together."""

    gpu_price: float  # price of all GPUs
    watts: float
    host_price: float
    power_price: float = POWER_PRICE  # price per kWh
    pue: float = 1.0
    years: float = YEARS
    residual: float = RESIDUAL  # share of the purchase price left at the end
    use: float = USE  # share of all hours that the machine works
    upkeep: float = 0.0  # cost per year

    @property
    def price(self) -> float:
        """Return the purchase price of the machine: its GPUs and host."""
        return self.gpu_price + self.host_price

    @property
    def hours(self) -> float:
        """Return the hours the machine works over the years of ownership."""
        return self.years * YEAR_HOURS * self.use

    def power(self, share: float) -> float:
        """Return the machine's power in kilowatts, cooling included (PUE), with GPUs at a share of their rated power."""
        return (self.watts * share + HOST_WATTS) * self.pue / 1000.0

    @property
    def worked_hour(self) -> float:
        """Return the cost of the power that an hour of work draws beyond an idle hour."""
        return (self.power(LOAD) - self.power(IDLE)) * self.power_price

    @property
    def standing_hour(self) -> float:
        """Return the cost of any hour of ownership, busy or idle: depreciation, upkeep and idle power."""
        lost = self.price * (1.0 - self.residual) / (self.years * YEAR_HOURS)
        return lost + self.upkeep / YEAR_HOURS + self.power(IDLE) * self.power_price

    @property
    def hour(self) -> float:
        """Return the total cost of ownership per hour of work, idle hours included.

        >>> round(OwnershipCosts(2000.0, 350.0, 800.0).hour, 3)
        0.234
        """
        return self.standing_hour / self.use + self.worked_hour


class RentComparison(msgspec.Struct, frozen=True):
    """Owning compared with renting at `rent` per hour: use, hours and months from which owning is cheaper; None if never."""

    rent: float
    break_even_use: float | None  # share of all hours in use
    break_even_hours: float | None  # hours of work over the years of ownership
    break_even_months: float | None  # months until the rent saved, at the given use, has paid for the machine


def compare_with_rent(own: OwnershipCosts, rent: float) -> RentComparison:
    """Return the utilisation, hours and months at which owning breaks even with renting at `rent` per hour.

    >>> round(compare_with_rent(OwnershipCosts(2000.0, 350.0, 800.0), 0.5).break_even_use, 2)
    0.22
    """
    saved = rent - own.worked_hour
    if saved <= 0:
        return RentComparison(rent, None, None, None)
    use = own.standing_hour / saved
    monthly = (rent - own.worked_hour) * own.use * MONTH_HOURS - own.power(IDLE) * own.power_price * MONTH_HOURS - own.upkeep / 12
    months = own.price / monthly if monthly > 0 else None
    if use > 1:
        return RentComparison(rent, None, None, months)
    return RentComparison(rent, use, use * own.years * YEAR_HOURS, months)


def sensitivity(own: OwnershipCosts, rent: float) -> dict[str, tuple[float | None, float | None]]:
    """Return, by input of the ownership cost, the break-even utilisation with that input a third lower and a third higher."""
    changes = {}
    for name in ("gpu_price", "power_price", "residual", "years"):
        value = getattr(own, name)
        changes[name] = tuple(
            compare_with_rent(replace(own, **{name: value * factor}), rent).break_even_use for factor in (2 / 3, 4 / 3)
        )
    changes["rent"] = tuple(compare_with_rent(own, rent * factor).break_even_use for factor in (2 / 3, 4 / 3))
    return changes  # type: ignore[return-value]


def host_price(gpu_price: float, minimum: float = MIN_HOST_PRICE) -> float:
    """Return the assumed price of a machine without its GPUs, in the currency of `gpu_price`.

    >>> host_price(1000.0), host_price(40000.0)
    (800.0, 10000.0)
    """
    return max(minimum, HOST_SHARE * gpu_price)
