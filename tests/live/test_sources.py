"""Catalogs of others, Azure, and all sources alike, against a server that replays the documented shapes of their answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from msgspec.structs import replace

from tests.live import answers
from tests.live.server import Answer, ReceivedRequest, Server, busy_then, conditional
from tests.live.source_harness import NO_ANSWERS, TODAY, SourceHarness, good, kinds, only, serve_azure
from whichgpu.base.errors import DataError, UnknownName
from whichgpu.catalog.live import sources as registry
from whichgpu.catalog.live.http import Client
from whichgpu.catalog.live.price_store import open_for_reading
from whichgpu.catalog.live.refresh import select_sources
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts, SourceRequest
from whichgpu.catalog.live.sources import find_source, source_names
from whichgpu.catalog.live.sources.skypilot import CLOUDS

# SkyPilot


def serve_skypilot(server: Server, clouds: dict[str, bytes]) -> None:
    empty = answers.skypilot()
    for cloud in CLOUDS:
        server.on(f"/skypilot/{cloud}/vms.csv", clouds.get(cloud, empty))


def test_skypilot_gives_every_cloud_its_batch(harness: SourceHarness, server: Server) -> None:
    serve_skypilot(server, {"aws": answers.skypilot(answers.p5(), answers.p5(zone="use1-az2", spot="16.2"))})
    server.on("/skypilot/commits", [{"sha": "1", "commit": {"committer": {"date": "2026-11-10T03:04:05Z"}}}])
    (outcome,) = harness.refresh("skypilot")
    assert good(outcome)
    assert len(outcome.batches) == 24
    demand, spot = only(harness, term="on-demand"), only(harness, term="spot")
    assert (demand.gpu, demand.gpus, demand.price, demand.source) == ("h100-sxm", 8, Decimal("55.04"), "skypilot")
    assert spot.price == Decimal("16.2")  # the lowest zone
    assert demand.observed == "2026-11-10"  # the day the content changed, not the day of the snapshot


def test_skypilot_is_requested_conditionally_the_second_time(harness: SourceHarness, server: Server) -> None:
    serve_skypilot(server, {})
    server.on("/skypilot/aws/vms.csv", conditional(answers.skypilot(answers.p5())))
    harness.refresh("skypilot", day=date(2026, 11, 14))
    (outcome,) = harness.refresh("skypilot")
    aws = next(summary for summary in outcome.batches if summary.scope == "aws")
    assert (aws.unchanged, aws.prices, aws.kept) == (True, 2, 2)
    assert only(harness, term="on-demand").last_observed == TODAY.isoformat()


def test_one_cloud_that_fails_holds_back_no_other(harness: SourceHarness, server: Server) -> None:
    serve_skypilot(server, {"aws": answers.skypilot(answers.p5()), "azure": b"<html>rate limited</html>"})
    server.on("/skypilot/gcp/vms.csv", Answer(404))
    server.on("/skypilot/oci/vms.csv", Answer(body=b"InstanceType", length=5000))
    (outcome,) = harness.refresh("skypilot")
    assert {(problem.scope, problem.kind) for problem in outcome.problems} == {
        ("azure", "not-a-catalog"),
        ("gcp", "http-status"),
        ("oci", "http-unreachable"),
    }
    assert {summary.scope for summary in outcome.batches} >= {"aws", "yotta"}
    assert len(harness.offers()) == 2


# gpuhunt


def test_gpuhunt_reads_the_zip_of_the_version(harness: SourceHarness, server: Server) -> None:
    server.on("/gpuhunt/version", b"20261114\n")
    aws: list[object] = ["p5.48xlarge", "us-east-1", "55.04", "192", "2048.0", "nvidia", "8", "H100", "80.0", "False", "", ""]
    gcp: list[object] = ["n1-standard-8", "us-central1-a", "2.86", "8", "30.0", "nvidia", "1", "V100", "16.0", "True", "", ""]
    cpu: list[object] = ["m5.large", "us-east-1", "0.096", "2", "8.0", "", "0", "", "", "False", "", ""]
    odd: list[object] = ["x1.large", "us-east-1", "not a price", "2", "8.0", "nvidia", "1", "H100", "80.0", "False", "", ""]
    server.on(
        "/gpuhunt/20261114/catalog.zip", Answer(body=answers.gpuhunt_zip(aws=[aws, cpu, odd], gcp=[gcp]), headers={"ETag": "x"})
    )
    (outcome,) = harness.refresh("gpuhunt")
    assert good(outcome)
    assert only(harness, provider="aws").observed == "2026-11-14"
    assert only(harness, provider="gcp").instance == "n1-standard-8+1xv100"
    assert only(harness, provider="gcp").region == "us-central1"
    assert harness.refused() == {"malformed": 1}
    assert next(summary for summary in outcome.batches if summary.scope == "aws").aside == 1


@pytest.mark.parametrize("version", [b"<html>", b"", b"99999999", b"2026"])
def test_gpuhunt_with_no_version_is_refused(harness: SourceHarness, server: Server, version: bytes) -> None:
    server.on("/gpuhunt/version", version)
    (outcome,) = harness.refresh("gpuhunt")
    assert kinds(outcome) == {"not-a-catalog"}


def test_gpuhunt_with_a_broken_zip_is_refused(harness: SourceHarness, server: Server) -> None:
    server.on("/gpuhunt/version", b"20261114")
    packed = answers.gpuhunt_zip(aws=[["p5.48xlarge", "us-east-1", "55", "1", "1", "", "8", "H100", "80", "False", "", ""]] * 50)
    for body in (b"no zip", packed[:-40], packed[:60] + b"\0" * 30 + packed[90:]):
        server.on("/gpuhunt/20261114/catalog.zip", body)
        (outcome,) = harness.refresh("gpuhunt")
        assert outcome.problems
        assert outcome.batches == ()


# Azure


def test_azure_pages_terms_and_skipped_rows(harness: SourceHarness, server: Server) -> None:
    year = {"type": "Reservation", "reservationTerm": "1 Year", "retailPrice": 551880.0}
    serve_azure(
        server,
        [answers.azure_item(), answers.azure_item(skuName="ND96isr H100 v5 Spot", retailPrice=29.5)],
        [
            answers.azure_item(**year),
            answers.azure_item(**{**year, "reservationTerm": "3 Years", "retailPrice": 1051200.0}),
            answers.azure_item(productName="Virtual Machines NDsrH100v5 Series Windows", retailPrice=102.7),
            answers.azure_item(skuName="ND96isr H100 v5 Low Priority", retailPrice=20),
            answers.azure_item(armSkuName="Standard_NX9_H900_v9"),
        ],
    )
    (outcome,) = harness.refresh("azure")
    assert good(outcome)
    prices = {offer.term: offer.price for offer in harness.offers()}
    assert prices == {
        "on-demand": Decimal("98.32"),
        "spot": Decimal("29.5"),
        "reserved-1y": Decimal(63),
        "reserved-3y": Decimal(40),
    }
    assert only(harness, term="reserved-1y").payment == "no-upfront"
    assert outcome.batches[0].aside == 2
    assert outcome.batches[0].unknown_names == {"Standard_NX9_H900_v9": 1}


def test_azure_prices_stay_in_the_requested_currency(harness: SourceHarness, server: Server) -> None:
    serve_azure(server, [answers.azure_item(currencyCode="KRW", retailPrice=136_000.5)])
    harness.refresh("azure", currency="KRW")
    assert (only(harness).currency, only(harness).price) == ("KRW", Decimal("136000.5"))
    assert "currencyCode='KRW'" in server.received[0].query


def test_azure_by_region_leaves_the_others_alone(harness: SourceHarness, server: Server) -> None:
    def route(request: ReceivedRequest) -> Answer:
        regions = [name for name in ("eastus", "westus", "koreacentral") if f"eq%20%27{name}%27" in request.query]
        items = [answers.azure_item(armRegionName=name) for name in regions or ("eastus", "westus", "koreacentral")]
        return Answer(body=answers.dumped(answers.azure_page(*items)))

    server.on("/azure", route)
    harness.refresh("azure")
    (outcome,) = harness.refresh("azure", regions=("eastus", "koreacentral"))
    assert [(summary.scope, summary.offers) for summary in outcome.batches] == [("USD/eastus", 1), ("USD/koreacentral", 1)]
    assert {offer.region for offer in harness.offers()} == {"eastus", "westus", "koreacentral"}
    (outcome,) = harness.refresh("azure", regions=("east' or 1 eq 1",))
    assert kinds(outcome) == {"unknown-region"}


def test_azure_items_of_wrong_types_are_quarantined_one_by_one(harness: SourceHarness, server: Server) -> None:
    wrong = [
        answers.azure_item(retailPrice="free"),
        answers.azure_item(armRegionName=None),
        answers.azure_item(retailPrice=None),
        "a word",
        7,
        {},
        answers.azure_item(retailPrice=0),
        answers.azure_item(retailPrice=-1),
        answers.azure_item(retailPrice=1e300),
    ]
    serve_azure(server, [*wrong, answers.azure_item()])
    (outcome,) = harness.refresh("azure")
    assert good(outcome)
    assert len(harness.offers()) == 1
    assert harness.refused() == {"malformed": 7, "price-zero": 1, "price-negative": 1}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"Items": 3}', b'{"Items": null}', b"<html>", b'{"NextPageLink": null}'])
def test_azure_pages_that_are_none_are_refused(harness: SourceHarness, server: Server, body: bytes) -> None:
    server.on("/azure", body)
    (outcome,) = harness.refresh("azure")
    assert kinds(outcome) == {"http-malformed"}
    assert outcome.batches == ()


def test_azure_that_leads_in_circles_or_away_is_refused(harness: SourceHarness, server: Server) -> None:
    for link in (f"{server.url}/azure?skip=0", "https://evil.example/prices"):
        server.on("/azure", answers.azure_page(answers.azure_item(), next=link))
        (outcome,) = harness.refresh("azure")
        assert kinds(outcome) <= {"endless-pages", "http-redirect"}
        assert outcome.batches == ()


def test_failed_page_leaves_stored_prices_unchanged(harness: SourceHarness, server: Server) -> None:
    serve_azure(server, [answers.azure_item()], [answers.azure_item(armRegionName="westus")])
    harness.refresh("azure", day=date(2026, 11, 1))
    before = harness.offers()
    more = answers.dumped(answers.azure_page(answers.azure_item(retailPrice=1.0), next=f"{server.url}/azure2"))
    server.on("/azure", Answer(body=more))
    server.on("/azure2", Answer(500))
    (outcome,) = harness.refresh("azure")
    assert kinds(outcome) == {"http-status"}
    assert harness.offers() == before


def test_a_rate_limit_is_waited_out(harness: SourceHarness, server: Server) -> None:
    server.on("/azure", busy_then(2, Answer(body=answers.dumped(answers.azure_page(answers.azure_item())))))
    (outcome,) = harness.refresh("azure")
    assert good(outcome)
    assert len(server.received) == 3


# all of them


SLOW = ("skypilot", "endless")  # it has two dozen files, each of which is read for as long as may be


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        pytest.param(name, answer, id=f"{kind}-{name}", marks=[pytest.mark.long] if (name, kind) == SLOW else [])
        for kind, answer in NO_ANSWERS.items()
        for name in source_names()
    ],
)
def test_malformed_reply_gives_no_prices(harness: SourceHarness, server: Server, name: str, answer: Answer) -> None:
    server.otherwise = lambda _: answer
    (outcome,) = harness.refresh(name)
    assert outcome.problems
    assert outcome.batches == ()
    with open_for_reading(harness.folder) as connection:
        assert connection is None


def test_sources_are_fetched_concurrently_and_fail_independently(harness: SourceHarness, server: Server) -> None:
    serve_azure(server, [answers.azure_item()])
    server.on("/runpod", Answer(500))
    server.on("/vast/bundles/", {"offers": [answers.vast_offer()]})
    outcomes = {outcome.source: outcome for outcome in harness.refresh("azure", "runpod", "vast")}
    assert not outcomes["azure"].problems
    assert not outcomes["vast"].problems
    assert outcomes["runpod"].problems
    assert {offer.provider for offer in harness.offers()} == {"azure", "vast"}


class Cloudy:
    """A plug-in."""

    name = "cloudy"
    key = None
    heavy = False

    def batches(self, source_request: SourceRequest) -> Iterator[PriceBatch]:
        row = OfferRow("cloudy", "c1.gpu", "north", "L4", 1.0, 24576, "on-demand", Decimal("0.5"))
        yield PriceBatch(self.name, "all", iter([row, replace(row, price=Decimal(0))]), source_request.today, read=ReadCounts(2))


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("cloudy", "tests.live.test_sources:Cloudy", registry.GROUP),
        EntryPoint("broken", "tests.live.test_sources:no_such_thing", registry.GROUP),
        EntryPoint("aws", "tests.live.test_sources:Cloudy", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.GROUP else [])


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_adds_a_cloud_and_is_checked_like_ours(harness: SourceHarness) -> None:
    assert "cloudy" in source_names()
    (outcome,) = harness.refresh("cloudy")
    assert good(outcome)
    assert only(harness).gpu == "l4"
    assert harness.refused() == {"price-zero": 1}


@pytest.mark.usefixtures("plugin")
def test_broken_plug_in_is_reported_by_name_and_cannot_replace_a_builtin_source() -> None:
    with pytest.raises(DataError) as caught:
        find_source("broken")
    assert caught.value.kind == "broken-plugin"
    assert type(find_source("aws")).__name__ == "Aws"
    assert "broken" not in {source.name for source in select_sources((), {})}


def test_an_unknown_source_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        find_source("azur")
    assert caught.value.choices[0] == "azure"


def test_a_refresh_that_is_interrupted_stops_waiting(
    harness: SourceHarness, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import whichgpu.catalog.live.refresh as module

    server.on("/azure", Answer(503, b"", {"Retry-After": "100"}))
    waiting = threading.Event()

    class Interrupted(Exception):
        pass

    def impatient(**settings: Any) -> Client:
        sleep = settings["sleep"]

        def wait(seconds: float) -> None:
            waiting.set()
            sleep(seconds)

        return Client(**{**settings, "sleep": wait})

    class Pool(module.ThreadPoolExecutor):  # type: ignore[misc,name-defined]
        def map(self, function: Any, *things: Any, **settings: Any) -> Any:
            results = super().map(function, *things, **settings)
            waiting.wait(10)
            raise Interrupted
            yield from results

    monkeypatch.setattr(module, "Client", impatient)
    monkeypatch.setattr(module, "ThreadPoolExecutor", Pool)
    began = time.monotonic()
    with pytest.raises(Interrupted):
        harness.refresh("azure")
    assert time.monotonic() - began < 20
