"""`--quota-file`: what AWS and Google Cloud export of an account's quotas limits the offers of recommend and plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whichgpu

DAY = "2026-10-01"
AWS = {
    "Quotas": [
        {"QuotaName": name, "QuotaArn": f"arn:aws:servicequotas:us-east-1:1:ec2/L-{vcpus}", "Value": float(vcpus)}
        for name, vcpus in (("Running On-Demand G and VT instances", 4), ("Running On-Demand P instances", 0))
    ]
}  # one g6.xlarge (L4) has four vCPUs
GCP = {
    "name": "us-central1",
    "quotas": [
        {"metric": "NVIDIA_L4_GPUS", "limit": 1.0, "usage": 0.0},
        {"metric": "NVIDIA_H100_GPUS", "limit": 0.0, "usage": 0.0},
    ],
}
ACCOUNTS = [("aws", "us-east-1", AWS), ("gcp", "us-central1", GCP)]


def question(provider: str, region: str, rate: str) -> dict[str, Any]:
    return {"rate": rate, "provider": provider, "region": region, "gpu": "L4", "term": "on-demand", "as_of": DAY}


@pytest.fixture
def quota_file(tmp_path: Path) -> Any:
    def write(document: Any) -> str:
        path = tmp_path / "quotas.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize(("provider", "region", "quotas"), ACCOUNTS)
def test_recommend_rents_no_more_than_the_account_may(provider: str, region: str, quotas: Any, quota_file: Any) -> None:
    request = question(provider, region, "3/s")
    free = whichgpu.recommend("serve", "llama-3.1-8b", **request)
    assert free.answer.gpus > 1
    with pytest.raises(whichgpu.NoAnswer):  # One L4 serves about 1 request/s.
        whichgpu.recommend("serve", "llama-3.1-8b", **request, quota_file=quota_file(quotas))
    slow = whichgpu.recommend("serve", "llama-3.1-8b", **request | {"rate": "0.2/s"}, quota_file=quota_file(quotas))
    assert {(one.gpu, one.gpus) for one in slow.candidates} == {("l4", 1)}


@pytest.mark.parametrize(("provider", "region", "quotas"), ACCOUNTS)
def test_a_plan_rents_no_more_than_the_account_may(provider: str, region: str, quotas: Any, quota_file: Any) -> None:
    request = question(provider, region, "3/s") | {"simulate": False, "curve": False}
    free = whichgpu.plan("llama-3.1-8b", **request)
    assert sum(row.gpus for row in free.groups) > 1
    with pytest.raises(whichgpu.NoAnswer):
        whichgpu.plan("llama-3.1-8b", **request, quota_file=quota_file(quotas))
    slow = whichgpu.plan("llama-3.1-8b", **request | {"rate": "0.2/s"}, quota_file=quota_file(quotas))
    assert [(row.gpu, row.gpus) for row in slow.groups] == [("l4", 1)]
