"""AWS, GCP, RunPod, Vast and Lambda against a server that replays the documented shapes of their answers."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pytest

from tests.live import answers
from tests.live.server import Answer, ReceivedRequest, Server
from tests.live.source_harness import NO_ANSWERS, SourceHarness, good, kinds, only
from whichgpu.base.errors import UsageError
from whichgpu.catalog.live.refresh import select_sources

# AWS


def serve_aws(server: Server, *lines: list[object]) -> None:
    server.on("/aws/offers/v1.0/aws/AmazonEC2/current/region_index.json", answers.aws_index("us-east-1", "eu-west-1"))
    server.on("/aws/offers/v1.0/aws/AmazonEC2/20261113184423/us-east-1/index.csv", answers.aws_file(*lines))


def test_aws_on_demand_and_reserved_by_payment(harness: SourceHarness, server: Server) -> None:
    lease = {"TermType": "Reserved", "LeaseContractLength": "1yr", "OfferingClass": "standard"}
    serve_aws(
        server,
        answers.aws_line(),
        answers.aws_line(OfferTermCode="A", PurchaseOption="No Upfront", PricePerUnit="32.5", **lease),
        answers.aws_line(OfferTermCode="B", PurchaseOption="Partial Upfront", PricePerUnit="15.0", **lease),
        answers.aws_line(OfferTermCode="B", PurchaseOption="Partial Upfront", PricePerUnit="131400", Unit="Quantity", **lease),
        answers.aws_line(OfferTermCode="C", PurchaseOption="All Upfront", PricePerUnit="0", **lease),
        answers.aws_line(OfferTermCode="C", PurchaseOption="All Upfront", PricePerUnit="262800", Unit="Quantity", **lease),
        answers.aws_line(
            OfferTermCode="D", PurchaseOption="No Upfront", PricePerUnit="9", **{**lease, "OfferingClass": "convertible"}
        ),
        answers.aws_line(Operating_System="Windows", PricePerUnit="70"),
        answers.aws_line(Tenancy="Dedicated", PricePerUnit="60"),
        answers.aws_line(Instance_Type="m5.large", GPU="", PricePerUnit="0.096"),
        answers.aws_line(Instance_Type="p9.96xlarge", GPU="16", PricePerUnit="900"),
        answers.aws_line(Instance_Type="g6f.large", GPU="1", PricePerUnit="0.2"),
        ["cut", "off"],
        answers.aws_line(PricePerUnit="seven"),
    )
    (outcome,) = harness.refresh("aws", regions=("us-east-1",))
    assert good(outcome)
    prices = {(offer.instance, offer.term, offer.payment): (offer.price, offer.upfront) for offer in harness.offers()}
    assert prices == {
        ("p5.48xlarge", "on-demand", None): (Decimal("55.04"), None),
        ("p5.48xlarge", "reserved-1y", "no-upfront"): (Decimal("32.5"), None),
        ("p5.48xlarge", "reserved-1y", "partial-upfront"): (Decimal(30), Decimal(131400)),
        ("p5.48xlarge", "reserved-1y", "all-upfront"): (Decimal(30), Decimal(262800)),
        ("g6f.large", "on-demand", None): (Decimal("0.2"), None),
    }
    assert only(harness, instance="g6f.large").gpus == 0.125
    assert harness.refused() == {"malformed": 2, "unknown-gpu": 1}
    assert outcome.batches[0].content == date(2026, 11, 13)


def test_aws_is_queried_only_when_named(harness: SourceHarness) -> None:
    assert "aws" not in {source.name for source in select_sources((), harness.keys)}


def test_aws_of_an_unknown_region_names_those_there_are(harness: SourceHarness, server: Server) -> None:
    serve_aws(server)
    (outcome,) = harness.refresh("aws", regions=("us-eest-1",))
    assert kinds(outcome) == {"unknown-region"}


def test_aws_without_a_column_it_needs_is_refused(harness: SourceHarness, server: Server) -> None:
    serve_aws(server)
    spoilt = answers.aws_file(answers.aws_line()).replace(b"TermType", b"Term Type")
    server.on("/aws/offers/v1.0/aws/AmazonEC2/20261113184423/us-east-1/index.csv", spoilt)
    (outcome,) = harness.refresh("aws", regions=("us-east-1",))
    assert kinds(outcome) == {"http-malformed"}


def test_aws_prices_remain_if_its_file_is_unusable(harness: SourceHarness, server: Server) -> None:
    serve_aws(server, answers.aws_line())
    harness.refresh("aws", regions=("us-east-1",), day=date(2026, 11, 1))
    before = harness.offers()
    assert before
    for kind, answer in NO_ANSWERS.items():
        server.on("/aws/offers/v1.0/aws/AmazonEC2/20261113184423/us-east-1/index.csv", answer)
        (outcome,) = harness.refresh("aws", regions=("us-east-1",))
        assert outcome.problems, kind
        assert outcome.batches == (), kind
        assert harness.offers() == before, kind


# GCP


def test_gcp_sums_parts_and_keeps_attached_gpus_by_themselves(harness: SourceHarness, server: Server) -> None:
    page = [
        answers.sku("A2 Instance Core running in Americas", "0", 31611000),
        answers.sku("A2 Instance Ram running in Americas", "0", 4237000, group="RAM"),
        answers.sku("Nvidia Tesla A100 GPU running in Iowa", "2", 933908000, group="GPU"),
        answers.sku("Spot Preemptible A2 Instance Core running in Americas", "0", 9480000, "Preemptible"),
        answers.sku("Spot Preemptible A2 Instance Ram running in Americas", "0", 1270000, "Preemptible", "RAM"),
        answers.sku(
            "Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Iowa", "0", 880000000, "Preemptible", "GPU"
        ),
        answers.sku("Commitment v1: Nvidia Tesla T4 GPU running in Iowa for 1 Year", "0", 220000000, "Commit1Yr", "GPU"),
        answers.sku("Nvidia Tesla T4 GPU running in Iowa", "0", 350000000, group="GPU"),
        answers.sku("Nvidia Q900 GPU running in Iowa", "9", 0, group="GPU"),
        answers.sku("Custom Instance Core running in Americas", "0", 33174000),
        {"description": "broken"},
    ]

    def route(request: ReceivedRequest) -> Answer:
        if "pageToken=two" in request.query:
            return Answer(body=answers.dumped({"skus": page[5:], "nextPageToken": ""}))
        return Answer(body=answers.dumped({"skus": page[:5], "nextPageToken": "two"}))

    server.on("/gcp/services/6F81-5844-456A/skus", route)
    (outcome,) = harness.refresh("gcp")
    assert good(outcome)
    whole = only(harness, instance="a2-highgpu-1g", term="on-demand")
    assert whole.price == Decimal("3.673385")  # 12 x 0.031611 + 85 x 0.004237 + 2.933908
    assert only(harness, instance="a2-highgpu-1g", term="spot").price == Decimal("1.10171")
    alone = only(harness, instance="n1+1xt4", term="on-demand")
    assert (alone.includes, alone.price) == ("gpu", Decimal("0.35"))
    assert only(harness, instance="n1+4xt4", term="committed-1y").price == Decimal("0.88")
    assert harness.refused() == {"malformed": 1, "unknown-gpu": 1}
    assert {received.headers["X-Goog-Api-Key"] for received in server.received} == {"google-key"}
    assert not any("google-key" in received.query for received in server.received)


def test_gcp_without_a_key_says_which_variable(harness: SourceHarness) -> None:
    with pytest.raises(UsageError) as caught:
        select_sources(("gcp",), {})
    assert caught.value.kind == "needs-key"
    assert "GOOGLE_API_KEY" in str(caught.value.hint)


def test_gcp_that_never_ends_is_refused(harness: SourceHarness, server: Server) -> None:
    server.on("/gcp/services/6F81-5844-456A/skus", {"skus": [], "nextPageToken": "again"})
    (outcome,) = harness.refresh("gcp")
    assert kinds(outcome) == {"endless-pages"}


# RunPod, Vast, Lambda


def test_runpod_prices_by_cloud_term_and_count(harness: SourceHarness, server: Server) -> None:
    types = [
        answers.runpod_type(),
        answers.runpod_type(id="x", displayName="RTX 9999", memoryInGb=99, communityPrice=None, communitySpotPrice=None),
        answers.runpod_type(id="unknown", securePrice=None, communityPrice=None, secureSpotPrice=None, communitySpotPrice=None),
        answers.runpod_type(memoryInGb="eighty"),
    ]
    server.on("/runpod", {"data": {"gpuTypes": types}})
    (outcome,) = harness.refresh("runpod")
    assert good(outcome)
    eight = only(harness, instance="8x_H100-SXM_SECURE", term="on-demand")
    assert (eight.gpu, eight.gpus, eight.price, eight.region) == ("h100-sxm", 8, Decimal("21.52"), "any")
    assert eight.note == "stock: Low"
    assert only(harness, instance="1x_H100-SXM_COMMUNITY", term="spot").price == Decimal("1.5")
    assert outcome.batches[0].unknown_names == {"RTX 9999": 8}
    assert harness.refused()["malformed"] == 1


@pytest.mark.parametrize("answer", [{"errors": [{"message": "Unauthorized"}]}, {"data": None}, {"data": {"gpuTypes": {}}}, []])
def test_runpod_errors_are_errors(harness: SourceHarness, server: Server, answer: dict[str, object]) -> None:
    server.on("/runpod", answer)
    (outcome,) = harness.refresh("runpod")
    assert kinds(outcome) == {"http-malformed"}


def test_vast_keeps_the_cheapest_of_a_kind_with_how_many(harness: SourceHarness, server: Server) -> None:
    offers = [
        answers.vast_offer(),
        answers.vast_offer(dph_total=0.65, min_bid=None),
        answers.vast_offer(geolocation="Seoul, KR"),
        answers.vast_offer(geolocation=None),
        answers.vast_offer(gpu_name="A100 SXM4", gpu_ram=81920, num_gpus=1, dph_total=0.9),
        answers.vast_offer(gpu_name="A100 SXM4", gpu_ram=40960, num_gpus=1, dph_total=0.6),
        answers.vast_offer(gpu_name="RTX 4090", gpu_ram=49140),
        answers.vast_offer(num_gpus="two"),
    ]
    server.on("/vast/bundles/", {"offers": offers})
    (outcome,) = harness.refresh("vast")
    assert good(outcome)
    cheapest = only(harness, gpu="rtx-4090", region="US", term="on-demand")
    assert (cheapest.price, cheapest.gpus, cheapest.note) == (Decimal("0.65"), 2, "listed now: 3")
    assert {offer.gpu for offer in harness.offers()} == {"rtx-4090", "a100-sxm-80gb", "a100-sxm-40gb"}
    assert only(harness, region="unknown", term="spot").price == Decimal("0.4")
    assert harness.refused() == {"memory": 2, "malformed": 1}
    assert json.loads(server.received[0].body)["verified"] == {"eq": True}


def test_lambda_capacity_is_read_without_a_guarantee(harness: SourceHarness, server: Server) -> None:
    sold_out = answers.lambda_entry(
        name="gpu_1x_a10", gpu_description="A10 (24 GB PCIe)", price_cents_per_hour=75, specs={"gpus": 1}
    )
    sold_out["regions_with_capacity_available"] = []
    data = {
        "gpu_8x_h100_sxm5": answers.lambda_entry(),
        "gpu_1x_a10": sold_out,
        "cpu_4x_general": answers.lambda_entry(name="cpu_4x_general", specs={"gpus": 0}),
        "new": answers.lambda_entry(name="gpu_8x_new", gpu_description="H100 (80 GB SXM5)"),
        "odd": answers.lambda_entry(price_cents_per_hour="a lot"),
    }
    server.on("/lambda/instance-types", {"data": data})
    (outcome,) = harness.refresh("lambda")
    assert good(outcome)
    assert only(harness, instance="gpu_8x_h100_sxm5").note == "capacity now: us-west-3"
    assert only(harness, instance="gpu_1x_a10").note == "no capacity now"
    assert only(harness, instance="gpu_8x_new").gpu == "h100-sxm"
    assert server.received[0].headers["Authorization"] == "Bearer lambda-key"
    assert harness.refused() == {"malformed": 1}


def test_a_wrong_key_is_an_error_that_does_not_show_it(harness: SourceHarness, server: Server) -> None:
    server.on("/lambda/instance-types", Answer(401, b'{"error": {"code": "global/invalid-api-key"}}'))
    (outcome,) = harness.refresh("lambda")
    assert kinds(outcome) == {"http-status"}
    assert "lambda-key" not in str(outcome)
