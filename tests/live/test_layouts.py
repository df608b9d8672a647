"""Lines of published price lists: offers, skipped and refused lines, and joining of GPU and host prices."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from tests.live import answers
from whichgpu.base.errors import DataError, UsageError
from whichgpu.catalog.live.layouts import gpuhunt, price_list, skypilot
from whichgpu.catalog.live.layouts.hosts import Joiner
from whichgpu.catalog.live.resolve import Resolver
from whichgpu.catalog.live.rows import OfferRow, ReadCounts, RejectedRow
from whichgpu.catalog.live.sources.aws import _day, aws_rows
from whichgpu.catalog.live.sources.endpoint import source_url

HUNT = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size".split(",")
SKY = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Price,SpotPrice,Region,AvailabilityZone".split(",")


def lines(header: list[str], *rows: dict[str, object] | str) -> list[str]:
    """A CSV file; a text is a line as it is."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    for row in rows:
        if isinstance(row, str):
            text.write(row + "\n")
        else:
            writer.writerow([row.get(name, "") for name in header])
    return text.getvalue().splitlines(keepends=True)


def hunt(**cells: object) -> dict[str, object]:
    usual: dict[str, object] = {"instance_name": "p5.48xlarge", "location": "us-east-1", "price": "55.04"}
    return usual | {"gpu_count": 8, "gpu_name": "H100", "gpu_memory": "80.0", "spot": "False"} | cells


def sky(**cells: object) -> dict[str, object]:
    usual: dict[str, object] = {"InstanceType": "p5.48xlarge", "AcceleratorName": "H100", "AcceleratorCount": "8.0"}
    return usual | {"Price": "55.04", "SpotPrice": "20.5", "Region": "us-east-1", "AvailabilityZone": "us-east-1a"} | cells


def split(rows: Iterable[OfferRow | RejectedRow]) -> tuple[list[OfferRow], list[str]]:
    """Offers, and the reasons of what was refused."""
    both = list(rows)
    return [row for row in both if isinstance(row, OfferRow)], [row.reason for row in both if isinstance(row, RejectedRow)]


class TestGpuhunt:
    def read(
        self, provider: str, resolver: Resolver, *rows: dict[str, object] | str
    ) -> tuple[list[OfferRow], list[str], ReadCounts]:
        read = ReadCounts()
        return *split(gpuhunt.gpuhunt_rows(lines(HUNT, *rows), provider, resolver.machine_of, read)), read

    def test_another_header_is_no_catalog(self, resolver: Resolver) -> None:
        with pytest.raises(DataError, match="gpuhunt") as error:
            list(gpuhunt.gpuhunt_rows(["a,b\n", "1,2\n"], "aws", resolver.machine_of, ReadCounts()))
        assert error.value.kind == "not-a-catalog"

    def test_a_line_of_more_or_fewer_cells_or_without_a_price_is_refused(self, resolver: Resolver) -> None:
        offers, reasons, read = self.read("aws", resolver, "a,b", "1," * 20, hunt(price="free"), hunt(gpu_count="many"), hunt())
        assert reasons == ["malformed"] * 4
        assert (len(offers), read.rows, read.aside) == (1, 5, 0)

    def test_a_machine_without_a_gpu_is_set_aside_unless_we_know_it_has_one(self, resolver: Resolver) -> None:
        bare = {"gpu_name": "", "gpu_count": 0, "gpu_memory": ""}
        offers, _, read = self.read("aws", resolver, hunt(instance_name="m5.large", **bare), hunt(**bare))
        assert read.aside == 1
        assert [(row.instance, row.count, row.memory_mib) for row in offers] == [("p5.48xlarge", None, None)]

    def test_spot_is_recognised_in_either_spelling(self, resolver: Resolver) -> None:
        offers, _, _ = self.read("aws", resolver, hunt(spot="True"), hunt(spot="true"), hunt(spot="False"), hunt(spot=""))
        assert [row.term for row in offers] == ["spot", "spot", "on-demand", "on-demand"]

    @pytest.mark.parametrize(
        ("theirs", "ours", "name", "instance", "region", "zone"),
        [
            ("vastai", "vast", "12345", "8x-H100", "us-east1-b", ""),
            ("gcp", "gcp", "n1-standard-4", "n1-standard-4+8xh100", "us-east1", "us-east1-b"),
            ("gcp", "gcp", "a3-highgpu-8g", "a3-highgpu-8g", "us-east1", "us-east1-b"),
            ("runpod", "runpod", "NVIDIA H100", "8x NVIDIA H100", "us-east1-b", ""),
            ("aws", "aws", "p5.48xlarge", "p5.48xlarge", "us-east1-b", ""),
        ],
    )
    def test_names_and_zones_are_each_providers_own(
        self, resolver: Resolver, theirs: str, ours: str, name: str, instance: str, region: str, zone: str
    ) -> None:
        (row,), _, _ = self.read(theirs, resolver, hunt(instance_name=name, location="us-east1-b"))
        assert (row.provider, row.instance, row.region, row.zone) == (ours, instance, region, zone)
        assert row.names == ((name,) if ours == "runpod" else ())
        assert row.memory_mib == 80 * 1024


class TestSkypilot:
    def read(
        self, provider: str, resolver: Resolver, *rows: dict[str, object] | str
    ) -> tuple[list[OfferRow], list[str], ReadCounts]:
        read = ReadCounts()
        return *split(skypilot.skypilot_rows(lines(SKY, *rows), provider, resolver.machine_of, read)), read

    def test_another_header_is_no_catalog(self, resolver: Resolver) -> None:
        with pytest.raises(DataError, match="SkyPilot") as error:
            list(skypilot.skypilot_rows([], "aws", resolver.machine_of, ReadCounts()))
        assert error.value.kind == "not-a-catalog"

    def test_each_price_of_a_line_is_an_offer_and_a_line_without_one_is_reported(self, resolver: Resolver) -> None:
        offers, reasons, read = self.read(
            "aws", resolver, sky(), sky(SpotPrice=""), sky(Price="nan", SpotPrice="nan"), sky(Price="dear"), "too,few"
        )
        assert [(row.term, row.price) for row in offers] == [
            ("on-demand", Decimal("55.04")),
            ("spot", Decimal("20.5")),
            ("on-demand", Decimal("55.04")),
        ]
        assert reasons == ["no-price", "malformed", "malformed"]
        assert (read.rows, read.aside) == (5, 0)

    def test_a_host_alone_is_set_aside(self, resolver: Resolver) -> None:
        offers, reasons, read = self.read("aws", resolver, sky(InstanceType="m5.large", AcceleratorName="", AcceleratorCount=""))
        assert (offers, reasons, read.aside) == ([], [], 1)

    @pytest.mark.parametrize(
        ("provider", "stated", "mib"),
        [("aws", 81920, 81920), ("runpod", 80, 81920), ("vast", 8 * 81920, 81920), ("aws", 0, None)],
    )
    def test_memory_is_per_gpu_even_if_the_field_has_the_total(
        self, resolver: Resolver, provider: str, stated: int, mib: float | None
    ) -> None:
        info = f"{{'Gpus': [{{'Name': 'H100 SXM', 'MemoryInfo': {{'SizeInMiB': {stated}}}}}]}}"
        offers, _, _ = self.read(provider, resolver, sky(GpuInfo=info))
        assert {row.memory_mib for row in offers} == {mib}
        assert {row.names for row in offers} == {("H100 SXM",)}

    def test_a_tpu_slice_is_a_machine_by_itself(self, resolver: Resolver) -> None:
        (row, _), _, _ = self.read("gcp", resolver, sky(InstanceType="TPU-VM", AcceleratorName="tpu-v4-8", AcceleratorCount="1"))
        assert (row.instance, row.count) == ("tpu-v4-8", None)


class TestHostsAndGpusApart:
    """As GCP lists them: a host's line, a GPU's line, and what one rents is both."""

    ZONE: ClassVar[dict[str, object]] = {"Region": "us-central1", "AvailabilityZone": "us-central1-a"}

    def host(self, name: str, price: object, spot: object = "", **cells: object) -> dict[str, object]:
        bare: dict[str, object] = {"InstanceType": name, "AcceleratorName": "", "AcceleratorCount": ""}
        return sky(**{**bare, **self.ZONE, "Price": price, "SpotPrice": spot, **cells})

    def gpu(self, name: str, count: float, price: object, spot: object = "", **cells: object) -> dict[str, object]:
        bare: dict[str, object] = {"InstanceType": "", "AcceleratorName": name, "AcceleratorCount": count}
        return sky(**{**bare, **self.ZONE, "Price": price, "SpotPrice": spot, **cells})

    def read(self, resolver: Resolver, *rows: dict[str, object]) -> tuple[list[tuple[str, str, Decimal, str]], list[RejectedRow]]:
        entries = list(skypilot.skypilot_rows(lines(SKY, *rows), "gcp", resolver.machine_of, ReadCounts()))
        offers = [(one.instance, one.term, one.price, one.includes) for one in entries if isinstance(one, OfferRow)]
        return offers, [one for one in entries if isinstance(one, RejectedRow)]

    def test_a_fixed_machine_is_the_sum_of_both_in_its_zone_and_of_its_count(self, resolver: Resolver) -> None:
        offers, refused = self.read(
            resolver,
            self.host("a2-highgpu-1g", "0.7", "0.2"),
            self.host("a2-highgpu-8g", "5.6"),
            self.host("a2-highgpu-1g", "99", AvailabilityZone="elsewhere-b"),
            self.gpu("A100", 1, "3", "1"),
        )
        assert offers == [
            ("a2-highgpu-1g", "on-demand", Decimal("3.7"), "gpu+host"),
            ("a2-highgpu-1g", "spot", Decimal("1.2"), "gpu+host"),
        ]
        assert refused == []

    def test_a_term_the_host_has_no_price_for_is_no_offer(self, resolver: Resolver) -> None:
        offers, _ = self.read(resolver, self.host("a2-highgpu-1g", "0.7"), self.gpu("A100", 1, "3", "1"))
        assert [term for _, term, _, _ in offers] == ["on-demand"]

    def test_host_price_of_zero_gives_a_price_of_zero(self, resolver: Resolver) -> None:
        offers, _ = self.read(resolver, self.host("a2-highgpu-1g", "0"), self.gpu("A100", 1, "3"))
        assert offers == [("a2-highgpu-1g", "on-demand", Decimal(0), "gpu+host")]

    def test_host_price_is_not_added_if_the_gpu_price_includes_it(self, resolver: Resolver) -> None:
        offers, _ = self.read(resolver, self.host("a4-highgpu-8g", "0"), self.gpu("B200", 8, "80"))
        assert offers == [("a4-highgpu-8g", "on-demand", Decimal(80), "gpu+host")]

    def test_a_gpu_without_its_host_or_without_a_price_is_refused_by_name(self, resolver: Resolver) -> None:
        offers, refused = self.read(resolver, self.gpu("A100", 1, "3"), self.gpu("A100", 2, ""))
        assert offers == []
        assert refused == [RejectedRow("no-host", "A100 x 1 us-central1-a"), RejectedRow("no-price", "A100 x 2 us-central1-a")]

    def test_gpu_with_a_configurable_host_is_also_an_offer_by_itself(self, resolver: Resolver) -> None:
        offers, refused = self.read(
            resolver, self.host("n1-standard-4", "0.19"), self.host("n1-standard-8", "0.38"), self.gpu("T4", 1, "0.35")
        )
        assert offers == [
            ("n1+1xt4", "on-demand", Decimal("0.35"), "gpu"),
            ("n1-standard-4+1xt4", "on-demand", Decimal("0.54"), "gpu+host"),
        ]
        assert refused == []

    def test_lines_with_machine_or_unknown_gpu_are_not_joined(self, resolver: Resolver) -> None:
        def row(provider: str, **cells: Any) -> OfferRow:
            usual: dict[str, Any] = {"instance": "", "region": "r", "accelerator": "A100", "count": 1.0, "memory_mib": None}
            return OfferRow(provider, **{**usual, "term": "on-demand", "price": Decimal(1), **cells})

        prices = {"on-demand": Decimal(1)}
        assert not Joiner("aws", resolver.machine_of).collect(row("aws"), prices)
        joiner = Joiner("gcp", resolver.machine_of)
        assert not joiner.collect(row("gcp", instance="whole-machine"), prices)
        assert not joiner.collect(row("gcp", accelerator="unheard-of"), prices)
        assert not joiner.collect(row("gcp", instance="e2-small", accelerator=""), prices)
        assert joiner.collect(row("gcp"), prices)
        assert joiner.collect(row("gcp", instance="a2-highgpu-1g", accelerator=""), prices)


class TestAws:
    def read(self, resolver: Resolver, *rows: list[object]) -> tuple[list[OfferRow], list[RejectedRow], ReadCounts]:
        read = ReadCounts()
        text = answers.aws_file(*rows).decode().splitlines(keepends=True)
        entries = list(aws_rows(iter(text), "us-east-1", resolver.machine_of, read))
        return (
            [one for one in entries if isinstance(one, OfferRow)],
            [one for one in entries if isinstance(one, RejectedRow)],
            read,
        )

    def test_missing_column_is_reported_with_the_file_name(self, resolver: Resolver) -> None:
        with pytest.raises(DataError) as error:
            list(aws_rows(iter(["\n"] * 5 + ["SKU,OfferTermCode\n"]), "us-east-1", resolver.machine_of, ReadCounts()))
        assert error.value.kind == "http-malformed"
        assert "TermType" in str(error.value)

    def test_lines_cut_short_or_of_other_units_and_terms_are_refused(self, resolver: Resolver) -> None:
        offers, refused, read = self.read(
            resolver,
            answers.aws_line()[:-3],
            answers.aws_line(Unit="Quantity"),
            answers.aws_line(
                TermType="Reserved", OfferingClass="standard", LeaseContractLength="5yr", PurchaseOption="No Upfront"
            ),
            answers.aws_line(TermType="Reserved", OfferingClass="standard", LeaseContractLength="1yr", PurchaseOption="Half"),
            answers.aws_line(TermType="Reserved", OfferingClass="convertible", LeaseContractLength="1yr"),
            answers.aws_line(TermType="Lottery"),
            answers.aws_line(),
        )
        assert [one.reason for one in refused] == ["malformed"] * 4
        assert [one.term for one in offers] == ["on-demand"]
        assert read.rows == 7

    def test_a_reservation_paid_at_once_without_its_hourly_line_has_no_price(self, resolver: Resolver) -> None:
        lease = {"TermType": "Reserved", "OfferingClass": "standard", "LeaseContractLength": "3yr"}
        offers, refused, _ = self.read(
            resolver, answers.aws_line(PurchaseOption="All Upfront", PricePerUnit="262800", Unit="Quantity", **lease)
        )
        assert offers == []
        assert refused == [RejectedRow("no-price", "p5.48xlarge reserved-3y all-upfront")]

    @pytest.mark.parametrize(
        ("url", "day"),
        [
            ("https://x/AmazonEC2/20261113184423/us-east-1/index.csv", date(2026, 11, 13)),
            ("https://x/AmazonEC2/20261313184423/us-east-1/index.csv", None),
            ("https://x/AmazonEC2/current/us-east-1/index.csv", None),
        ],
    )
    def test_day_is_read_from_a_version_that_is_a_date(self, url: str, day: date | None) -> None:
        assert _day(url) == day


def test_a_list_of_ones_own_needs_its_columns() -> None:
    with pytest.raises(DataError, match="price") as error:
        list(price_list.own_csv_rows(["a,b\n"], ReadCounts(), lambda _: None))
    assert error.value.kind == "not-a-list"


def test_a_mirror_is_an_address_of_the_web() -> None:
    usual = "https://usual.example/"
    assert source_url("aws", usual, {}) == "https://usual.example"
    assert source_url("aws", usual, {"WHICHGPU_URL_AWS": " http://mirror.example/aws// "}) == "http://mirror.example/aws"
    for address in ("file:///etc/passwd", "mirror.example", "ftp://mirror.example"):
        with pytest.raises(UsageError, match=address) as error:
            source_url("aws", usual, {"WHICHGPU_URL_AWS": address})
        assert error.value.kind == "bad-address"
