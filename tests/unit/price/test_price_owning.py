"""Owning against renting, by hand; and how providers bill."""

from __future__ import annotations

from datetime import date

import pytest

from whichgpu.price.billing import assumed_extras, billing_on, billing_prefixes, extras, extras_sources
from whichgpu.price.own import OwnershipCosts, compare_with_rent, host_price, sensitivity
from whichgpu.price.run_settings import run_default, run_default_sources

# 450 W at full load with the host, 675 W with the facility; 2800 paid, 700 left after two years; 120 a year for upkeep.
BOX = OwnershipCosts(2000.0, 300.0, 800.0, power_price=0.2, pue=1.5, years=2.0, residual=0.25, use=0.4, upkeep=120.0)
WORKED = 0.75 * 300 * 1.5 / 1000 * 0.2  # from 15% to 90% of its power
STANDING = 2100 / 17520 + 120 / 8760 + (45 + 150) * 1.5 / 1000 * 0.2


def test_an_owned_hour_by_hand() -> None:
    assert BOX.price == 2800
    assert BOX.hours == pytest.approx(7008)
    assert BOX.power(1.0) == pytest.approx(0.675)
    assert BOX.worked_hour == pytest.approx(WORKED)
    assert BOX.standing_hour == pytest.approx(STANDING)
    assert BOX.hour == pytest.approx(STANDING / 0.4 + WORKED)


def test_break_even_of_owning_and_renting() -> None:
    comparison = compare_with_rent(BOX, 1.0)
    use = STANDING / (1 - WORKED)
    assert comparison.break_even_use == pytest.approx(use)
    assert comparison.break_even_hours == pytest.approx(use * 17520)
    monthly = (1 - WORKED) * 0.4 * 730 - 0.0585 * 730 - 10
    assert comparison.break_even_months == pytest.approx(2800 / monthly)
    assert comparison.rent == 1.0


def test_owning_never_breaks_even_with_cheap_rent() -> None:
    free = compare_with_rent(BOX, BOX.worked_hour)
    assert (free.break_even_use, free.break_even_hours, free.break_even_months) == (None, None, None)
    cheap = compare_with_rent(
        BOX, 0.25
    )  # even at full use it loses more value than that; its power and upkeep are still below the rent
    assert (cheap.break_even_use, cheap.break_even_hours) == (None, None)
    assert cheap.break_even_months == pytest.approx(2800 / ((0.25 - WORKED) * 0.4 * 730 - 0.0585 * 730 - 10))
    assert compare_with_rent(BOX, 0.2).break_even_months is None  # not even those


def test_full_use_may_be_just_enough() -> None:
    plain = OwnershipCosts(17520.0, 0.0, 0.0, power_price=0.0, years=1.0, residual=0.5)
    comparison = compare_with_rent(plain, 1.0)
    assert comparison.break_even_use == 1.0
    assert comparison.break_even_hours == 8760.0
    assert compare_with_rent(plain, 0.999).break_even_use is None


def test_the_use_to_break_even_moves_with_each_input() -> None:
    plain = OwnershipCosts(6000.0, 300.0, 0.0, power_price=0.0, years=3.0, residual=0.3)
    use = 6000 * 0.7 / (3 * 8760)
    moved = sensitivity(plain, 1.0)
    assert set(moved) == {"gpu_price", "power_price", "residual", "years", "rent"}
    assert moved["gpu_price"] == pytest.approx((use * 2 / 3, use * 4 / 3))
    assert moved["power_price"] == pytest.approx((use, use))
    assert moved["residual"] == pytest.approx((use * 0.8 / 0.7, use * 0.6 / 0.7))
    assert moved["years"] == pytest.approx((use * 3 / 2, use * 3 / 4))
    assert moved["rent"] == pytest.approx((use * 3 / 2, use * 3 / 4))


def test_default_ownership_costs() -> None:
    usual = OwnershipCosts(1000.0, 100.0, 0.0)
    assert (usual.power_price, usual.pue, usual.years, usual.residual, usual.use, usual.upkeep) == (
        0.1275,
        1.0,
        3.0,
        0.3,
        0.5,
        0.0,
    )
    assert host_price(3200.0) == 800.0
    assert host_price(3204.0) == 801.0
    assert host_price(1000.0, minimum=10.0) == 250.0


@pytest.mark.parametrize(
    ("provider", "day", "machine", "granularity", "minimum", "assumed"),
    [
        ("aws", date(2017, 10, 1), "", 3600.0, 3600.0, False),
        ("aws", date(2017, 10, 2), "p3.2xlarge", 1.0, 60.0, False),
        ("gcp", date(2014, 3, 31), "", 3600.0, 3600.0, True),  # nothing is known of it before
        ("gcp", date(2014, 4, 1), "", 60.0, 600.0, False),
        ("nobody", date(2026, 1, 1), "", 3600.0, 3600.0, True),
    ],
)
def test_a_provider_bills_as_it_did_on_the_day(
    provider: str, day: date, machine: str, granularity: float, minimum: float, assumed: bool
) -> None:
    billing = billing_on(provider, day, machine)
    assert (billing.granularity, billing.minimum, billing.assumed) == (granularity, minimum, assumed)
    assert bool(billing.sources) is not assumed


def test_separately_billed_hosts_are_known() -> None:
    assert billing_prefixes("oci") == ("BM.",)
    assert billing_prefixes("aws") == ()


def test_extra_costs_are_the_provider_s_or_defaults() -> None:
    assert extras("azure") == {"disk": 0.10, "egress": 0.087}  # its disks are the usual ones
    assert extras("nobody") == {"disk": 0.10, "egress": 0.10}
    assert assumed_extras("azure", ["disk"])
    assert not assumed_extras("azure", ["egress"])
    assert not assumed_extras("azure", [])
    assert extras_sources("azure", ["disk", "egress", "host-vcpu"]) == ("c3x-azure-egress",)


def test_billing_rules_are_the_provider_s_or_defaults() -> None:
    assert run_default("notice", "nobody") == run_default("notice") == 30.0
    assert run_default_sources("notice", "aws") == ("aws-spot-interruptions",)
    assert run_default_sources("checkpoint_every") == ()
    assert run_default_sources("startup", "aws") == ("tensorfuse-image-pull", "tensorfuse-cold-start")
