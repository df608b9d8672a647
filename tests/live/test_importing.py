"""Importing files into the store (public catalogs unmodified, user lists) and exporting them again."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tests.live import answers
from tests.live.source_harness import TODAY
from whichgpu.api.prices.store import PriceImportAnswer, catalog_export, catalog_import
from whichgpu.base.errors import DataError, UsageError, WhichGpuError
from whichgpu.catalog.live.import_files import day_of
from whichgpu.catalog.live.price_store import open_for_reading
from whichgpu.catalog.live.queries import OfferQuery, offers_on, quarantined_rows, series_status
from whichgpu.catalog.offer import Observation
from whichgpu.catalog.store import Catalog


def offers(folder: Path, day: date | None = None) -> list[Observation]:
    with open_for_reading(folder) as connection:
        assert connection is not None
        return offers_on(connection, day, None, OfferQuery())


def adds_up(answer: PriceImportAnswer) -> None:
    for row in answer.snapshots:
        assert row.prices == row.kept + row.quarantined + row.unknown
        assert row.aside <= row.rows
        assert row.offers <= row.kept
    assert answer.quarantined == sum(answer.reasons.values())
    assert answer.unknown == sum(answer.unknown_gpus.values())


@pytest.fixture(scope="session")
def skypilot_store(evidence: Path, catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PriceImportAnswer]:
    source = evidence / "prices" / "skypilot_catalog_2026-08-22"
    if not source.is_dir():
        pytest.skip("no copy of SkyPilot's catalog")
    folder = tmp_path_factory.mktemp("skypilot")
    return folder, catalog_import(source, catalog=catalog, today=TODAY, folder=folder)


class TestTheCatalogOfSkyPilotAsItStands:
    """Every cloud of it, with known errors corrected or rejected."""

    @pytest.fixture(autouse=True)
    def stored(self, skypilot_store: tuple[Path, PriceImportAnswer]) -> None:
        self.folder, self.answer = skypilot_store
        self.offers = offers(self.folder)

    def of(self, provider: str, **fields: object) -> list[Observation]:
        return [
            offer
            for offer in self.offers
            if offer.provider == provider and all(getattr(offer, name) == value for name, value in fields.items())
        ]

    def price(self, provider: str, instance: str, region: str, term: str = "on-demand") -> Decimal:
        (offer,) = self.of(provider, instance=instance, region=region, term=term)
        return offer.price

    def test_the_counts_add_up_and_little_is_lost(self) -> None:
        adds_up(self.answer)
        assert self.answer.failed == 0
        assert sum(row.rows for row in self.answer.snapshots) == 112_207
        assert self.answer.kept > 0.99 * self.answer.prices
        assert self.answer.passed_over == ("common_accelerators.csv", "common_metadata.csv")

    def test_all_clouds_have_offers(self) -> None:
        assert {row.scope for row in self.answer.snapshots if row.offers} == {row.scope for row in self.answer.snapshots}
        assert len({offer.provider for offer in self.offers}) == 24

    def test_every_price_is_of_a_known_gpu_and_plausible(self, catalog: Catalog) -> None:
        for offer in self.offers:
            assert offer.gpu in catalog.gpu_by_id
            assert 0 < offer.price / Decimal(str(offer.gpus)) < 30, offer

    def test_gcp_hosts_and_gpus_are_summed(self) -> None:
        assert self.price("gcp", "a2-highgpu-1g", "us-central1") == Decimal("3.67339")
        assert self.price("gcp", "a3-highgpu-8g", "us-central1") == Decimal("87.83246")
        assert self.price("gcp", "g2-standard-4", "us-central1") == Decimal("0.70683")
        assert self.price("gcp", "n1-standard-8+1xv100", "us-central1") == Decimal("2.86")
        (alone,) = self.of("gcp", instance="n1+1xv100", region="us-central1", term="on-demand")
        assert (alone.includes, alone.price) == ("gpu", Decimal("2.48"))
        assert self.price("gcp", "a4-highgpu-8g", "us-central1") == Decimal("90.216")

    def test_memory_is_corrected_if_the_field_is_wrong(self) -> None:
        by_provider = {
            "runpod": {"a100-pcie-80gb", "a100-sxm-80gb", "h100-pcie", "h100-sxm", "h200-sxm", "mi300x", "rtx-4090"},
            "shadeform": {"a100-sxm-40gb", "a100-pcie-80gb", "a100-sxm-80gb", "gaudi-2", "gh200-96gb", "v100-sxm-32gb"},
            "primeintellect": {"a100-sxm-40gb", "a100-sxm-80gb", "h200-sxm", "l40s", "v100-sxm-16gb", "rtx-6000-ada"},
            "vast": {"a100-sxm-40gb", "a100-sxm-80gb", "h100-nvl", "rtx-3060-ti", "rtx-3060-12gb", "v100-sxm-16gb"},
        }
        for provider, some in by_provider.items():
            assert some <= {offer.gpu for offer in self.of(provider)}, provider
        assert not self.answer.reasons.get("memory")

    def test_slices_are_slices(self) -> None:
        assert {offer.gpus for offer in self.of("aws", instance="g6f.large")} == {0.125}
        assert {offer.gpus for offer in self.of("azure", instance="Standard_NV4as_v4")} == {0.125}
        assert {offer.gpus for offer in self.of("runpod", instance="1x_PRO-6000-MIG-24GB_SECURE")} == {0.25}

    def test_invalid_rows_are_quarantined_with_a_reason(self) -> None:
        assert set(self.answer.reasons) == {
            "price-zero",
            "known-fault",
            "no-host",
            "no-price",
            "no-region",
            "count",
            "below-power",
        }
        with open_for_reading(self.folder) as connection:
            assert connection is not None
            rows = quarantined_rows(connection)
        assert len(rows) == self.answer.quarantined + self.answer.unknown
        by_reason = {reason: [row for row in rows if row["reason"] == reason] for reason in self.answer.reasons}
        assert {row["provider"] for row in by_reason["price-zero"]} == {"vast"}
        assert any("H200" in row["detail"] for row in by_reason["no-price"])
        assert {row["instance"] for row in by_reason["count"]} == {"Standard_ND96isr_H100_v5"}
        assert not any(offer.price == 700 for offer in self.of("gcp"))
        assert not self.of("mithril", term="on-demand")

    def test_unknown_gpus_are_reported_by_their_name(self) -> None:
        assert {"Virtex UltraScale+ (VU47P)", "Qualcomm AI100"} <= set(self.answer.unknown_gpus)
        assert self.answer.unknown < 0.005 * self.answer.prices

    def test_stale_clouds_are_flagged_by_the_age_of_their_content(self) -> None:
        with open_for_reading(self.folder) as connection:
            assert connection is not None
            content = {row.scope: row.content for row in series_status(connection, date(2026, 8, 23))}
            stale = {row.scope for row in series_status(connection, date(2026, 8, 23)) if row.stale}
        assert (content["azure"], content["oci"], content["ibm"]) == ("2024-08-19", "2025-01-12", "2023-01-15")
        assert {"azure", "oci", "ibm", "scp", "ovhcloud"} <= stale
        assert not {"aws", "gcp", "runpod", "lambda", "nebius", "verda"} & stale
        assert {offer.observed for offer in self.of("azure")} == {"2024-08-19"}

    def test_answer_is_reproducible_as_of_a_recorded_day(self, catalog: Catalog, tmp_path: Path) -> None:
        source = tmp_path / "aws.csv"
        source.write_bytes(answers.skypilot(answers.p5(price="50.0")))
        with open_for_reading(self.folder) as connection:
            assert connection is not None
            before = offers_on(connection, None, TODAY, OfferQuery(provider="aws"))
        later = date(2026, 11, 16)
        catalog_import(source, catalog=catalog, today=later, observed_on=later, folder=self.folder, trusting=True)
        with open_for_reading(self.folder) as connection:
            assert connection is not None
            assert offers_on(connection, None, TODAY, OfferQuery(provider="aws")) == before
            assert offers_on(connection, None, later, OfferQuery(provider="aws")) != before


def write(path: Path, header: str, *lines: str) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def test_a_list_of_ones_own_with_discounts_and_periods(tmp_path: Path, folder: Path, catalog: Catalog) -> None:
    path = write(
        tmp_path / "ours.csv",
        "provider,instance,region,gpu,gpus,term,price,currency,per,discount",
        "aws,p5.48xlarge,us-east-1,H100 SXM,8,reserved-1y,40,USD,,15%",
        "colo,,Seoul,RTX 4090,2,,3.5 usd/h,,,",
        "colo,,Busan,L4,1,,730000,KRW,month,",
        "colo,,Daegu,L4,4,,0.5,USD,gpu-hour,0.2",
    )
    answer = catalog_import(path, catalog=catalog, today=TODAY, folder=folder)
    adds_up(answer)
    prices = {offer.region: (offer.gpu, offer.gpus, offer.price, offer.currency, offer.term) for offer in offers(folder)}
    assert prices == {
        "us-east-1": ("h100-sxm", 8, Decimal(34), "USD", "reserved-1y"),
        "Seoul": ("rtx-4090", 2, Decimal("3.5"), "USD", "on-demand"),
        "Busan": ("l4", 1, Decimal(1000), "KRW", "on-demand"),
        "Daegu": ("l4", 4, Decimal("1.6"), "USD", "on-demand"),
    }


def test_a_line_of_ones_own_that_makes_no_sense_is_quarantined(tmp_path: Path, folder: Path, catalog: Catalog) -> None:
    lines = [
        "colo,L4,cheap",
        "colo,L4,-1",
        "colo,L4,0",
        "colo,H100,2",
        "colo,L4,1,too,many",
        "colo,L4",
        "colo,L4,5e400",
        "colo,L4,nan",
        "colo,L4,0.7",
    ]
    answer = catalog_import(
        write(tmp_path / "ours.csv", "provider,gpu,price", *lines), catalog=catalog, today=TODAY, folder=folder
    )
    adds_up(answer)
    assert (answer.prices, answer.kept, answer.unknown) == (9, 1, 1)
    assert answer.reasons == {"malformed": 5, "price-zero": 1, "price-negative": 1}


def test_json_of_ones_own(tmp_path: Path, folder: Path, catalog: Catalog) -> None:
    path = tmp_path / "ours.json"
    items = [{"provider": "colo", "gpu": "L4", "price": {"amount": "0.7", "currency": "EUR"}}, {"provider": "colo", "gpu": 7}]
    path.write_text(json.dumps({"offers": items}), encoding="utf-8")
    answer = catalog_import(path, catalog=catalog, today=TODAY, folder=folder)
    assert (answer.kept, answer.reasons) == (1, {"malformed": 1})
    assert offers(folder)[0].currency == "EUR"


def test_gzip_subfolders_and_gpuhunt_zips_are_read(tmp_path: Path, folder: Path, catalog: Catalog) -> None:
    source = tmp_path / "catalogs-2026-09-01"
    (source / "aws").mkdir(parents=True)
    (source / "aws" / "vms.csv").write_bytes(answers.skypilot(answers.p5()))
    (source / "aws" / "images.csv").write_text("ImageId,Tag\n1,2\n")
    with gzip.open(source / "gcp.csv.gz", "wb") as packed:
        packed.write(
            answers.skypilot(["", "T4", 1, "", "", answers.info("T4", 16384), 0.35, 0.1, "us-central1", "us-central1-a"])
        )
    rows: list[list[object]] = [["g4dn.xlarge", "us-east-1", "0.526", "4", "16", "nvidia", "1", "T4", "16", "False", "", ""]]
    (source / "catalog.zip").write_bytes(answers.gpuhunt_zip(aws=rows))
    answer = catalog_import(source, catalog=catalog, today=TODAY, folder=folder)
    assert {(row.source, row.scope) for row in answer.snapshots} == {("skypilot", "aws"), ("skypilot", "gcp"), ("gpuhunt", "aws")}
    assert answer.passed_over == ("images.csv",)
    assert {offer.observed for offer in offers(folder)} == {"2026-09-01"}
    assert Counter(offer.includes for offer in offers(folder))["gpu"] == 2  # no N1 host is listed for the T4


@pytest.mark.parametrize(
    ("path", "day"),
    [
        ("skypilot_catalog_2026-08-22/aws.csv", date(2026, 8, 22)),
        ("prices-20260822.csv", date(2026, 8, 22)),
        ("2025-01-01/prices_2026-02-03.csv", date(2026, 2, 3)),
        ("2026-13-99.csv", None),
        ("v12345678.csv", None),
    ],
)
def test_the_day_in_a_name(path: str, day: date | None) -> None:
    assert day_of(Path("/data") / path) == day


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe", b"\x1f\x8b broken", b"{}", b"[1]"])
@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.json", "x.zip"])
def test_files_that_are_no_price_lists_are_reported(
    tmp_path: Path, folder: Path, catalog: Catalog, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    try:
        answer = catalog_import(path, catalog=catalog, today=TODAY, folder=folder)
    except WhichGpuError:
        return
    assert answer.kept == 0


def test_missing_or_endless_path_is_reported(tmp_path: Path, folder: Path, catalog: Catalog) -> None:
    with pytest.raises(UsageError) as caught:
        catalog_import(tmp_path / "none.csv", catalog=catalog, today=TODAY, folder=folder)
    assert caught.value.kind == "cannot-import"
    os.mkfifo(tmp_path / "pipe.csv")
    answer = catalog_import(tmp_path / "pipe.csv", catalog=catalog, today=TODAY, folder=folder)
    assert answer.failed == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError):
        catalog_import(tmp_path / "empty", catalog=catalog, today=TODAY, folder=folder)


@pytest.fixture
def filled(tmp_path: Path, folder: Path, catalog: Catalog) -> Path:
    for day, price in (("2026-01-01", "0.5"), ("2026-02-01", "0.6"), ("2026-03-01", "0.6")):
        path = write(tmp_path / "ours.csv", "provider,gpu,price,region", f"colo,L4,{price},Seoul", "colo,T4,0.3,Seoul")
        catalog_import(path, catalog=catalog, today=TODAY, observed_on=date.fromisoformat(day), folder=folder)
    return folder


@pytest.mark.parametrize("name", ["out.csv", "out.json"])
def test_an_export_imports_again_as_the_same_history(filled: Path, tmp_path: Path, catalog: Catalog, name: str) -> None:
    path, other = tmp_path / name, tmp_path / "other"
    assert catalog_export(str(path), io.StringIO(), catalog=catalog, folder=filled) == 3
    adds_up(catalog_import(path, catalog=catalog, today=TODAY, folder=other))
    for day in (date(2026, 1, 15), date(2026, 2, 15), date(2026, 3, 1)):
        here, there = ({(offer.gpu, offer.price) for offer in offers(place, day)} for place in (filled, other))
        assert here == there


def test_export_of_a_day_can_be_written_to_a_stream(filled: Path, catalog: Catalog) -> None:
    stream = io.StringIO()
    assert catalog_export(None, stream, as_of=date(2026, 1, 15), gpu="L4", catalog=catalog, folder=filled) == 1
    (line,) = csv.DictReader(io.StringIO(stream.getvalue()))
    assert (line["gpu"], line["price"], line["observed"], line["ended"]) == ("l4", "0.5", "2026-01-01", "2026-02-01")


def test_parquet_has_dates_and_decimals(filled: Path, tmp_path: Path, catalog: Catalog) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "out.parquet"
    catalog_export(str(path), io.StringIO(), catalog=catalog, folder=filled)
    table = parquet.read_table(path)
    assert table.num_rows == 3
    first = table.to_pylist()[0]
    assert first["observed"] == date(2026, 1, 1)
    assert isinstance(first["price"], Decimal)


@pytest.mark.parametrize("name", ["out.xlsx", "out", "/dev/null/out.csv"])
def test_export_that_cannot_be_written_is_reported(filled: Path, catalog: Catalog, name: str) -> None:
    with pytest.raises(UsageError):
        catalog_export(name, io.StringIO(), catalog=catalog, folder=filled)
