"""SkyPilot's public catalog on GitHub: two dozen clouds, on-demand and spot (see `layouts.skypilot` for what it lacks).

The day each file last changed comes from GitHub's list of commits, since a file may be years old; otherwise it is today.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import date, datetime
from typing import IO

import msgspec

from whichgpu.base.errors import DataError
from whichgpu.catalog.live.layouts.skypilot import skypilot_rows
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts, SourceRequest
from whichgpu.catalog.live.source_tables import published_since
from whichgpu.catalog.live.sources.endpoint import source_url

BASE = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8"
COMMITS = "https://api.github.com/repos/skypilot-org/skypilot-catalog/commits"
CLOUDS = (
    "aws azure cudo do fluidstack gcp hyperbolic hyperstack ibm lambda mithril nebius oci ovhcloud paperspace primeintellect "
    "runpod scaleway scp seeweb shadeform vast verda yotta"
).split()


class _Commit(msgspec.Struct):
    class Inner(msgspec.Struct):
        class Committer(msgspec.Struct):
            date: datetime

        committer: Committer

    commit: Inner


class SkyPilot:
    """SkyPilot's catalog as a source of prices, one batch per cloud; the others go on if one fails."""

    name = "skypilot"
    key = None
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """Yield a batch of prices for each cloud; one that cannot be downloaded raises when its rows are read."""
        base = source_url("skypilot", BASE, request.keys)
        for cloud in CLOUDS:
            try:
                yield self._cloud(request, base, cloud)
            except DataError as problem:
                yield PriceBatch(self.name, cloud, _failing(problem), request.today)

    def _cloud(self, request: SourceRequest, base: str, cloud: str) -> PriceBatch:
        reply = request.client.get(f"{base}/{cloud}/vms.csv")
        if reply.body is None:
            return PriceBatch(self.name, cloud, iter(()), request.today, unchanged=True)
        read = ReadCounts(digest=digest_of(reply.body))
        content = self._changed(request, base, cloud)
        return PriceBatch(
            self.name,
            cloud,
            skypilot_rows(reply.lines(), cloud, request.machine_of, read),
            min(content or request.today, request.today),
            content,
            read=read,
            validators=(reply.validators,),
            seen_of_digest=known_content(),
        )

    def _changed(self, request: SourceRequest, base: str, cloud: str) -> date | None:
        """Return the day of the last commit that changed a cloud's price file; None if GitHub does not answer."""
        commits = COMMITS if base == BASE else f"{base}/commits"
        try:
            reply = request.client.get(f"{commits}?path=catalogs/v8/{cloud}/vms.csv&per_page=1", conditional=False)
            latest = msgspec.json.decode(reply.bytes(), type=list[_Commit])
        except (DataError, msgspec.DecodeError, msgspec.ValidationError):
            return None
        return latest[0].commit.committer.date.date() if latest else None


def _failing(problem: DataError) -> Iterator[OfferRow]:
    raise problem
    yield  # The yield makes this a generator, which raises only when the rows are read.


def digest_of(body: IO[bytes]) -> str:
    """Return the SHA-256 of a downloaded file, and rewind the file."""
    body.seek(0)
    digest = hashlib.file_digest(body, "sha256").hexdigest()  # type: ignore[arg-type]  # any readable file will do
    body.seek(0)
    return digest


def known_content() -> dict[str, date]:
    """Return the day of publication of files known to be old, by SHA-256."""
    return {digest: date.fromisoformat(since) for digest, since in published_since().items()}
