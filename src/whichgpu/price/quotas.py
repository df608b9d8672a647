"""Quotas of a cloud account, from exports of AWS (`aws service-quotas list-service-quotas --service-code ec2`) and Google Cloud
(`gcloud compute regions describe REGION --format=json`, or `regions list`).

AWS limits the vCPUs of families of machines, Google Cloud the GPUs of a kind; both by region, and spot apart from on demand. A
region that an export does not have is not limited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from whichgpu.base.bundled_data import data_rows
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.store import Catalog

TABLE = Path(__file__).parent / "data" / "quota_names.csv"
MAX_BYTES = 20_000_000  # Largest export that is read (assumed).
COMMITTED = re.compile(r"reserved|committed")  # Terms whose machines a quota of committed use limits.
_AWS_NAME = re.compile(r"(Running On-Demand|All) ([\w, ]+?) (?:instances|Spot Instance Requests)")
_AWS_REGION = re.compile(r"arn:aws[\w-]*:servicequotas:([\w-]+):")
_GCP_METRIC = re.compile(r"(PREEMPTIBLE_|COMMITTED_)?(NVIDIA_\w+?)_GPUS")


QuotaOffer = tuple[str, str, str, str, str]  # provider, region, instance, GPU, term


class AccountQuota(msgspec.Struct, frozen=True):
    """The most vCPUs of families of machines, or GPUs of a kind, that an account may run in a region with some terms."""

    provider: str
    region: str
    kind: str  # on-demand, spot or committed
    limit: float
    families: tuple[str, ...] = ()  # beginnings of machine names, without the generation or with it: p, p5
    gpu: str = ""

    def covers(self, provider: str, region: str, instance: str, gpu: str, term: str) -> bool:
        """Return whether an offer's machines count against the quota."""
        if (provider, region) != (self.provider, self.region) or self.kind != _kind(term, provider):
            return False
        return gpu == self.gpu if self.gpu else any(_is_family(instance, family) for family in self.families)


def read_quotas(path: Path) -> tuple[AccountQuota, ...]:
    """Return the quotas of GPUs in an export."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError) as problem:
        raise _bad(path, str(problem)[:200]) from problem
    quotas = (*_aws(document), *_gcp(document))
    if not quotas:
        raise UsageError("bad-quotas", msg("error.no-gpu-quotas", name=path.name), msg("hint.quotas"))
    return quotas


def machine_limit(quotas: Sequence[AccountQuota], offer: QuotaOffer, catalog: Catalog, gpus: float) -> float:
    """Return the most machines of an offer that quotas allow by themselves; infinite without one."""
    sizes = [(quota.limit, machine_size(quota, offer, catalog, gpus)) for quota in quotas]
    return min((limit // size for limit, size in sizes if size), default=float("inf"))


def machine_size(quota: AccountQuota, offer: QuotaOffer, catalog: Catalog, gpus: float) -> float:
    """Return how much of a quota one machine of an offer takes: its GPUs or vCPUs; 0 if the quota does not count it."""
    if not quota.covers(*offer):
        return 0.0
    if quota.gpu:
        return gpus
    own = (one.vcpus or 0 for one in catalog.instances if (one.provider, one.instance) == (offer[0], offer[2]))
    return float(next(own, 0))


def _aws(document: Any) -> Iterator[AccountQuota]:
    rows = document.get("Quotas") if isinstance(document, Mapping) else None
    for row in rows if isinstance(rows, list) else ():
        name = _AWS_NAME.fullmatch(str(row.get("QuotaName"))) if isinstance(row, Mapping) else None
        region = _AWS_REGION.match(str(row.get("QuotaArn"))) if name else None
        if name and region and (limit := _number(row.get("Value"))) is not None:
            families = tuple(word.lower() for word in re.split(r", | and ", name[2]))
            yield AccountQuota("aws", region[1], "spot" if name[1] == "All" else "on-demand", limit, families)


def _gcp(document: Any) -> Iterator[AccountQuota]:
    gpus = {row["quota"]: row["gpu"] for row in data_rows(TABLE)}
    for region in document if isinstance(document, list) else [document]:
        rows = region.get("quotas") if isinstance(region, Mapping) else None
        for row in rows if isinstance(rows, list) else ():
            metric = _GCP_METRIC.fullmatch(str(row.get("metric"))) if isinstance(row, Mapping) else None
            limit = _number(row.get("limit")) if metric and metric[2] in gpus else None
            if metric and limit is not None:
                kind = {"PREEMPTIBLE_": "spot", "COMMITTED_": "committed"}.get(metric[1] or "", "on-demand")
                left = max(0.0, limit - (_number(row.get("usage")) or 0.0))
                yield AccountQuota("gcp", str(region.get("name")), kind, left, gpu=gpus[metric[2]])


def _kind(term: str, provider: str) -> str:
    """Return which quota counts the machines of a term; reserved machines of AWS count as on demand."""
    if term == "spot":
        return "spot"
    return "committed" if COMMITTED.search(term) and provider == "gcp" else "on-demand"


def _is_family(instance: str, family: str) -> bool:
    """Return whether a machine is of a family: gr6 is of G."""
    return re.match(re.escape(family) + (r"(?!\d)" if family[-1].isdigit() else r"r?\d"), instance) is not None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _bad(path: Path, why: str) -> UsageError:
    return UsageError("bad-quotas", msg("error.bad-quotas", name=path.name, why=why), msg("hint.quotas"))
