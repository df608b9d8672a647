"""Prices that cannot be true, in any currency, stay out of the store and so out of every answer."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from tests.live.source_harness import TODAY
from whichgpu.api.prices.store import PriceImportAnswer, catalog_import
from whichgpu.catalog.live.price_store import open_for_reading
from whichgpu.catalog.live.queries import OfferQuery, offers_on, quarantined_rows
from whichgpu.catalog.live.references import ReferencePrices
from whichgpu.catalog.store import Catalog

HEADER = "provider,instance,region,gpu,gpus,term,price,currency,per"
OTHER_OFFER = "aws,g6.xlarge,us-east-1,L4,1,on-demand,0.8048,USD,hour"


class Importer:
    """Imports price lists of one name into a store."""

    def __init__(self, path: Path, folder: Path, catalog: Catalog) -> None:
        self.path, self.folder, self.catalog = path, folder, catalog

    def take(self, *lines: str, header: str = HEADER, day: date | None = None, trusting: bool = False) -> PriceImportAnswer:
        """Import these lines and one offer at its known price."""
        self.path.write_text("\n".join([header, *lines, OTHER_OFFER]) + "\n", encoding="utf-8")
        return catalog_import(
            self.path, catalog=self.catalog, today=day or TODAY, observed_on=day, folder=self.folder, trusting=trusting
        )

    def stored(self) -> dict[str, Decimal]:
        """Prices by instance and currency, without the other offer's."""
        with open_for_reading(self.folder) as connection:
            assert connection is not None
            offers = offers_on(connection, None, None, OfferQuery())
        return {f"{offer.instance} {offer.currency}": offer.price for offer in offers if offer.instance != "g6.xlarge"}

    def details(self) -> list[str]:
        with open_for_reading(self.folder) as connection:
            assert connection is not None
            return [row["detail"] for row in quarantined_rows(connection)]


@pytest.fixture
def importer(tmp_path: Path, folder: Path, catalog: Catalog) -> Importer:
    return Importer(tmp_path / "ours.csv", folder, catalog)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,1,VND,hour", "below-power"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,1,vnd,hour", "below-power"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,730,JPY,month", "below-power"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,1,KRW,gpu-hour", "below-power"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,spot,10,KRW,hour", "below-power"),
        ("colo,own8,Seoul,H100 SXM,8,on-demand,100,KRW,hour", "below-power"),
        ("colo,trn,Seoul,Trainium2,4,on-demand,1,VND,hour", "below-power"),  # without a published power limit
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,900000,EUR,hour", "too-dear"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,1000000000000,VND,hour", "too-dear"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,0.0000001,EUR,hour", "price-zero"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,1e400,EUR,hour", "malformed"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,inf,EUR,hour", "malformed"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,NaN,KRW,hour", "malformed"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,1,EUR,minute", "malformed"),
        ("aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,50,XAU,hour", "currency"),
    ],
)
def test_floors_and_ceilings_hold_in_every_currency(importer: Importer, line: str, reason: str) -> None:
    answer = importer.take(line)
    assert (answer.kept, answer.reasons) == (1, {reason: 1})
    assert importer.stored() == {}
    assert importer.take(line, trusting=True).reasons == {reason: 1}


@pytest.mark.parametrize(
    "name",
    [
        "p9${x}$(touch X)",
        "`touch X`",
        "a;b",
        "a|b",
        "a>b",
        "<script>",
        "-n",
        "--dry-run",
        "a#b",
        "a\\b",
        "a{b}",
        "a!b",
        "*",
        "a=b",
    ],
)
def test_names_with_characters_that_no_machine_has_are_quarantined(importer: Importer, name: str) -> None:
    rest = "H100 SXM,8,on-demand,98.32,USD,hour"
    answer = importer.take(f"aws,{name},us-east-1,{rest}", f"aws,own8,{name},{rest}", f"{name},own8,us-east-1,{rest}")
    assert (answer.kept, answer.reasons) == (1, {"words": 3})


@pytest.mark.parametrize(
    "name", ["H100_NVLINK_80GB::8", "n1+1xk80", "서울 (2관)", "Hà Nội, 1", "L'Aquila", "VM.Flex$_8_32", "a&b/c"]
)
def test_names_as_providers_write_them_are_kept(importer: Importer, name: str) -> None:
    assert importer.take(f'"{name}","{name}","{name}",H100 SXM,8,on-demand,20,USD,hour').reasons == {}


@pytest.mark.parametrize(
    "line",
    [
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,0.2,USD,hour",
        "aws,P5.48XLARGE,us-east-1,H100 SXM,8,on-demand,0.2,USD,hour",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,5000,VND,hour",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,600,EUR,hour",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,spot,0.3,EUR,hour",
        "aws,p5.48xlarge,moon-base-1,H100 SXM,8,on-demand,5000,KRW,hour",  # a region the history lacks
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,sustained,1,USD,hour",  # a term it lacks
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,committed-1y,2.5,USD,hour",  # plausible as spot, never as a commitment
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,reserved-3y,2,EUR,hour",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,committed-3y,7,USD,hour",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,reserved-1y,160,USD,hour",  # a commitment dearer than on demand
    ],
)
def test_the_first_price_of_an_offer_is_compared_with_the_bundled_history(importer: Importer, line: str) -> None:
    answer = importer.take(line)
    assert (answer.kept, answer.reasons) == (1, {"jump": 1})
    assert importer.stored() == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("colo,own8,Seoul,H100 SXM,8,on-demand,5000,VND,hour", "below-market"),
        ("colo,own8,Seoul,H100 SXM,8,on-demand,3.5,USD,hour", "one-for-all"),  # what one H100 costs
        ("aws,p99.48xlarge,us-east-1,H100 SXM,8,on-demand,3.2,EUR,hour", "one-for-all"),
        ("colo,own8,Seoul,H100 SXM,8,committed-1y,2.5,USD,hour", "one-for-all"),
        ("mithril,h100.sxm.8x,us-central1,H100 SXM,8,on-demand,2.5,USD,hour", "one-for-all"),
        ("colo,own1,Seoul,H100 SXM,1,on-demand,0.7,USD,hour", "below-spot"),
        ("colo,own1,Seoul,H100 SXM,1,on-demand,950,KRW,hour", "below-spot"),
        ("colo,own1,Seoul,H100 SXM,1,on-demand,0.2,USD,hour", "below-market"),  # less than a tenth of the median
        ("colo,own1,Seoul,H100 SXM,1,committed-3y,0.2,USD,hour", "below-market"),
    ],
)
def test_a_machine_the_history_lacks_is_compared_with_all_sellers_of_its_gpu(importer: Importer, line: str, reason: str) -> None:
    for day in (TODAY - timedelta(1), TODAY):  # saying it twice does not make it true
        answer = importer.take(line, day=day)
        assert (answer.kept, answer.reasons) == (1, {reason: 1})
    assert importer.stored() == {}
    assert "USD / GPU h; 0." in importer.details()[0]
    assert importer.take(line, trusting=True).reasons == {}
    assert importer.take(line).reasons == {}
    assert len(importer.stored()) == 1


def test_a_commitment_is_reported_with_the_on_demand_range_it_is_compared_with(importer: Importer) -> None:
    importer.take("aws,p5.48xlarge,us-east-1,H100 SXM,8,committed-1y,2.5,USD,hour")
    assert importer.details() == ["55.04-127.8 USD → 2.5 USD"]


def test_a_list_with_days_is_compared_with_the_bundled_history(importer: Importer) -> None:
    header = f"{HEADER},observed"
    line = "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,0.2,USD,hour,2026-08-01"
    importer.path.write_text(f"{header}\n{line}\n{OTHER_OFFER},2026-08-01\n", encoding="utf-8")
    answer = catalog_import(importer.path, catalog=importer.catalog, today=TODAY, folder=importer.folder)
    assert (answer.kept, answer.reasons) == (1, {"jump": 1})


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "line",
    [
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,27.5,USD,hour",  # half of what it was
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,1300000,VND,hour",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,8000,JPY,hour",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,55000000,KRW,month",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,6,eur,gpu-hour",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,6000,RUB,hour",  # quoted last in 2022
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,spot,7,EUR,hour",
        "aws,p9.48xlarge,us-east-1,H100 SXM,8,on-demand,20,EUR,hour",  # new to the catalog
        "colo,own8,Seoul,H100 SXM,8,on-demand,20000,KRW,hour",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,committed-1y,34,USD,hour",  # 62% of on-demand
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,reserved-3y,21,EUR,hour",
        "colo,own8,Seoul,H100 SXM,8,committed-3y,10,USD,hour",
    ],
)
def test_plausible_prices_pass_in_every_currency(importer: Importer, line: str) -> None:
    assert importer.take(line).reasons == {}
    assert len(importer.stored()) == 1


def test_a_jump_against_the_history_is_accepted_when_a_later_day_has_it_again_or_it_is_trusted(importer: Importer) -> None:
    line = "aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,12,USD,hour"
    for _ in range(2):  # the same day proves nothing new
        assert importer.take(line, day=TODAY - timedelta(2)).reasons == {"jump": 1}
    assert importer.take(line, day=TODAY - timedelta(1)).reasons == {}
    assert importer.take(line, day=TODAY).reasons == {}
    assert importer.stored() == {"p5.48xlarge USD": Decimal(12)}
    other = line.replace("us-east-1", "us-east-2")
    assert importer.take(line, other, trusting=True).reasons == {}


def test_price_jump_is_detected_across_currencies(importer: Importer) -> None:
    machine = "colo,own8,Seoul,H100 SXM,8,on-demand"
    assert importer.take(f"{machine},40,USD,hour", day=TODAY - timedelta(1)).reasons == {}
    assert importer.take(f"{machine},8000,KRW,hour").reasons == {"jump": 1}
    assert importer.details() == ["40 USD → 5.942 USD"]
    assert importer.take(f"{machine},55000,KRW,hour").reasons == {}
    assert importer.stored() == {"own8 KRW": Decimal(55000)}


@pytest.mark.parametrize(("day", "reason"), [("1970-01-01", "malformed"), ("2012-12-31", "currency"), ("2027-01-01", "future")])
def test_a_day_without_a_rate_is_refused_with_its_reason(importer: Importer, day: str, reason: str) -> None:
    line = f"aws,p5.48xlarge,us-east-1,H100 SXM,8,on-demand,1300000,VND,hour,{day}"
    importer.path.write_text(f"{HEADER},observed\n{line}\n", encoding="utf-8")
    answer = catalog_import(importer.path, catalog=importer.catalog, today=TODAY, folder=importer.folder)
    assert answer.reasons == {reason: 1}


def test_the_rate_is_that_of_the_day_of_the_price(importer: Importer) -> None:
    """One sum of roubles covered the power of a K80 in 2013, at 32 roubles a dollar, and not in 2022, at 105."""
    machine = "colo,k,Omsk,K80,1,on-demand"
    header, watts = f"{HEADER},observed", importer.catalog.gpu_by_id["k80"].tdp_watts
    assert watts is not None
    price = round(0.03 * watts / 1000 * 60, 3)  # its power at 60 roubles a dollar
    importer.path.write_text(f"{header}\n{machine},{price},RUB,hour,2013-06-03\n{machine},{price},RUB,hour,2022-02-28\n")
    answer = catalog_import(importer.path, catalog=importer.catalog, today=TODAY, folder=importer.folder, trusting=True)
    assert answer.reasons == {"below-power": 1}
    assert "RUB = " in importer.details()[0]


def test_every_bundled_price_is_within_its_own_range(catalog: Catalog) -> None:
    from whichgpu.base.dates import first_day
    from whichgpu.catalog.currency import DollarRates

    rates = DollarRates(catalog.exchange)
    references = ReferencePrices(catalog, rates)
    for row in catalog.prices():
        price = rates.dollars(row.price, row.currency, first_day(row.observed))
        assert price is not None
        for region in (*row.regions, "moon-base-1"):
            range_ = references.find(row.provider, row.instance, region, row.term, row.includes, row.gpu)
            assert range_ is not None
            assert range_.plausible_low <= price / row.gpus <= range_.plausible_high, row


def test_gpu_without_prices_has_no_reference(catalog: Catalog) -> None:
    from whichgpu.catalog.currency import DollarRates

    references = ReferencePrices(catalog, DollarRates(catalog.exchange))
    assert references.find("colo", "x", "Seoul", "on-demand", "gpu+host", "trainium2") is None
