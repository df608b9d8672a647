"""Readers of the public price histories in the evidence folder: every price in them that belongs to an offer of ours."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

PAYMENTS = {"noUpfront": "no-upfront", "partialUpfront": "partial-upfront", "allUpfront": "all-upfront"}
GCP_GPUS = {"K80": "k80", "P4": "p4", "P100": "p100", "V100": "v100", "T4": "t4"}
GCP_TPUS = {
    "tpu-v2-8": "v2-8",
    "tpu-v3-8": "v3-8",
    "tpu-v5litepod-1": "ct5lp-hightpu-1t",
    "tpu-v5litepod-4": "ct5lp-hightpu-4t",
    "tpu-v5p-8": "ct5p-hightpu-4t",
    "tpu-v6e-4": "ct6e-standard-4t",
}
HOMES = {"AWS": ("aws", "us-east-1"), "Azure": ("azure", "eastus"), "GCP": ("gcp", "us-central1")}


@dataclass(frozen=True, slots=True)
class Claim:
    """One price a source states of one offer on a day, and how far rounding may take it."""

    source: str
    provider: str
    instance: str
    region: str
    term: str
    payment: str | None
    day: str
    price: Decimal
    slack: Decimal = Decimal(0)  # or a fifth of a percent


def all_claims(prices: Path) -> Iterator[Claim]:
    """Every claim of every source."""
    yield from vantage(prices)
    yield from karpenter(prices)
    yield from tsaol(prices)
    yield from skypilot(prices)
    yield from fullstack(prices)


def vantage(prices: Path) -> Iterator[Claim]:
    """ec2instances.info, 2013 to 2017; convertible reservations are no part of our table."""
    for row in _rows(prices / "aws_ec2_gpu_price_history_2013_2017.csv"):
        term, payment = "on-demand", None
        if row["term"] != "on_demand":
            length, _, how = row["term"].removeprefix("reserved:yrTerm").partition(".")
            if length.endswith("Convertible"):
                continue
            term, payment = f"reserved-{length[0]}y", PAYMENTS[how]
        place = (row["instance_type"], row["region"], term, payment, row["as_of"])
        yield Claim("vantage", "aws", *place, Decimal(row["usd_per_hour"]))


def karpenter(prices: Path) -> Iterator[Claim]:
    """AWS's own tables in karpenter; those of China are in yuan, as ours are."""
    for row in _rows(prices / "karpenter_aws_gpu_ondemand_history_2022_2026.csv"):
        place = (row["instance_type"], row["region"], "on-demand", None, row["as_of"])
        yield Claim("karpenter", "aws", *place, Decimal(row["usd_per_hour"]))


def tsaol(prices: Path) -> Iterator[Claim]:
    """AWS on 2025-11-30; the reserved price, its term not stated, lies where one-year prices do: 0.61 to 0.66 of the list."""
    for row in _rows(prices / "aws_gpu_ondemand_reserved_2025-11-30.csv"):
        place = (row["instance"], row["region"])
        yield Claim("tsaol", "aws", *place, "on-demand", None, "2025-11-30", Decimal(row["on_demand"]))
        if row["reserved"]:
            yield Claim("tsaol", "aws", *place, "reserved-1y", None, "2025-11-30", Decimal(row["reserved"]))


def skypilot(prices: Path) -> Iterator[Claim]:
    """SkyPilot's catalog on every day a price changed, on demand."""
    for row in _rows(prices / "skypilot_gpu_price_history_2021_2026.csv"):
        if not row["price"]:
            continue
        instance = row["instance_type"]
        if row["cloud"] == "gcp":
            gpu = GCP_GPUS.get(row["accelerator"])
            instance = f"n1+{row['count']}x{gpu}" if gpu else GCP_TPUS.get(row["accelerator"], "")
        if instance:
            region = "any" if row["cloud"] in ("hyperbolic", "primeintellect") or not row["region"] else row["region"]
            price = Decimal(row["price"])
            yield Claim("skypilot", row["cloud"], instance, region, "on-demand", None, row["as_of"], price, Decimal("0.00005"))


def fullstack(prices: Path) -> Iterator[Claim]:
    """The Full Stack's table, to the cent; without regions, so compared with each cloud's home region."""
    for row in _rows(prices / "fullstack_cloud_gpus_history_2022_2025.csv"):
        price = row["on_demand"].lstrip("$")
        if row["cloud"] in HOMES and price and row["name"] and not row["name"].startswith("n1-"):
            provider, region = HOMES[row["cloud"]]
            name = row["name"].replace(" ", "_")
            instance = f"Standard_{name}" if provider == "azure" else name
            place = (provider, instance, region, "on-demand", None, row["as_of"])
            yield Claim("fullstack", *place, Decimal(price), Decimal("0.006") * max(int(row["gpus"]), 1))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
