"""Quotas of cloud accounts as limits of offers."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.price.quotas import TABLE, machine_limit, read_quotas

AWS = {
    "Quotas": [
        {"QuotaName": name, "QuotaArn": f"arn:aws:servicequotas:us-east-1:1:ec2/L-{place}", "Value": value}
        for place, (name, value) in enumerate(
            {
                "Running On-Demand P instances": 192.0,
                "All P4, P3 and P2 Spot Instance Requests": 96.0,
                "All P5 Spot Instance Requests": 0.0,
                "Running On-Demand G and VT instances": 8.0,
                "Rules per VPC security group": 60.0,
            }.items()
        )
    ]
}
GCP = {
    "name": "us-central1",
    "quotas": [
        {"metric": "NVIDIA_A100_80GB_GPUS", "limit": 16.0, "usage": 8.0},
        {"metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 1.0, "usage": 0.0},
        {"metric": "CPUS", "limit": 96.0, "usage": 0.0},
    ],
}


@pytest.fixture
def quotas(tmp_path: Path) -> Any:
    def read(document: Any) -> Any:
        path = tmp_path / "quotas.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return read_quotas(path)

    return read


@pytest.mark.parametrize(
    ("document", "offer", "gpus", "machines"),
    [
        (AWS, ("aws", "us-east-1", "p5.48xlarge", "h100-sxm", "on-demand"), 8, 1),
        (AWS, ("aws", "us-east-1", "p4d.24xlarge", "a100-sxm-40gb", "reserved-1y"), 8, 2),
        (AWS, ("aws", "us-east-1", "p4d.24xlarge", "a100-sxm-40gb", "spot"), 8, 1),
        (AWS, ("aws", "us-east-1", "p5.48xlarge", "h100-sxm", "spot"), 8, 0),
        (AWS, ("aws", "us-east-1", "g6.xlarge", "l4", "on-demand"), 1, 2),
        (AWS, ("aws", "us-east-1", "gr6.4xlarge", "l4", "on-demand"), 1, 0),
        (AWS, ("aws", "eu-west-1", "p5.48xlarge", "h100-sxm", "on-demand"), 8, inf),
        (AWS, ("gcp", "us-east-1", "p5.48xlarge", "h100-sxm", "on-demand"), 8, inf),
        (GCP, ("gcp", "us-central1", "a2-ultragpu-4g", "a100-sxm-80gb", "on-demand"), 4, 2),
        (GCP, ("gcp", "us-central1", "a2-ultragpu-4g", "a100-sxm-80gb", "spot"), 4, inf),
        ([GCP], ("gcp", "us-central1", "g2-standard-24", "l4", "spot"), 2, 0),
    ],
)
def test_quotas_limit_machines_of_their_family_region_and_term(
    quotas: Any, document: Any, offer: tuple[str, str, str, str, str], gpus: int, machines: float
) -> None:
    assert machine_limit(quotas(document), offer, Catalog(), gpus) == machines


@pytest.mark.parametrize("document", [{}, [], {"Quotas": "x"}, {"Quotas": [1, {}]}, {"quotas": [{"metric": "CPUS", "limit": 1}]}])
def test_files_without_quotas_of_gpus_are_refused(quotas: Any, document: Any) -> None:
    with pytest.raises(UsageError):
        quotas(document)


def test_named_gpus_are_rented_there() -> None:
    rented = {(one.provider, one.gpu) for one in Catalog().instances}
    rows = [line.split(",") for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    assert all((provider, gpu) in rented for provider, _, gpu, *_ in rows)
