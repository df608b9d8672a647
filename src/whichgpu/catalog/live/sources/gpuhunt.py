"""gpuhunt's published catalogs: one zip per day (see `layouts.gpuhunt` for what they lack)."""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from datetime import date
from typing import IO

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.base.units import MIB
from whichgpu.catalog.live.http import Validators
from whichgpu.catalog.live.layouts.gpuhunt import gpuhunt_rows
from whichgpu.catalog.live.rows import InstanceLookup, PriceBatch, ReadCounts, SourceRequest
from whichgpu.catalog.live.sources.endpoint import source_url

BASE = "https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v2"
MAX_FILES, MAX_FILE_BYTES = 200, 256 * MIB
# Errors for a zip member that is damaged, uses another compression method or has a password.
ZIP_ERRORS = (
    zipfile.BadZipFile,
    OSError,
    ValueError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
)


class GpuHunt:
    """gpuhunt's newest published catalog as a source of prices, one batch per provider; none if it is unchanged."""

    name = "gpuhunt"
    key = None
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """Yield a batch of prices for each provider in the newest catalog, dated by its version (20261114 is a day)."""
        base = source_url(self.name, BASE, request.keys)
        version = (
            request.client.get(f"{base}/version", max_bytes=1024, conditional=False).bytes().decode("ascii", "replace").strip()
        )
        day = version_day(version)
        if day is None:
            raise DataError("not-a-catalog", msg("error.bad-version", text=version[:40]), msg("hint.http"))
        reply = request.client.get(f"{base}/{version}/catalog.zip", max_bytes=256 * MIB)
        if reply.body is not None:
            yield from zip_batches(reply.body, min(day, request.today), request.machine_of, reply.validators)


def version_day(text: str) -> date | None:
    """Return the day in a gpuhunt catalog's version such as 20261114; None if it has none."""
    match = re.match(r"(\d{4})(\d{2})(\d{2})(?!\d)", text)
    try:
        return date(int(match[1]), int(match[2]), int(match[3])) if match else None
    except ValueError:
        return None


def zip_batches(
    body: IO[bytes], day: date, machine_of: InstanceLookup, validators: Validators | None = None
) -> Iterator[PriceBatch]:
    """Yield a batch of prices for each provider's CSV in the zip of a gpuhunt catalog."""
    with body, _archive(body) as archive:
        yield from _members(archive, day, machine_of, validators)


def _archive(body: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(body)
    except ZIP_ERRORS as problem:
        raise DataError("not-a-catalog", msg("error.bad-zip", why=str(problem)), msg("hint.http")) from problem


def _escapes(info: zipfile.ZipInfo) -> bool:
    """Whether a zip member is a link or its path leaves the archive: nothing is unpacked to disk, but it indicates an attack."""
    parts = info.filename.replace("\\", "/").split("/")
    return stat.S_ISLNK(info.external_attr >> 16) or parts[0] == "" or ".." in parts or ":" in parts[0]


def _members(
    archive: zipfile.ZipFile, day: date, machine_of: InstanceLookup, validators: Validators | None
) -> Iterator[PriceBatch]:
    members = [info for info in archive.infolist() if info.filename.endswith(".csv")]
    if escaping := [info.filename for info in archive.infolist() if _escapes(info)]:
        raise DataError("not-a-catalog", msg("error.zip-strays", name=escaping[0][:80]), msg("hint.http"))
    if len(members) > MAX_FILES or any(info.file_size > MAX_FILE_BYTES for info in members):
        raise DataError("not-a-catalog", msg("error.bad-zip", why=msg("why.too-large")), msg("hint.http"))
    for number, info in enumerate(members):
        name = info.filename.rpartition("/")[2].removesuffix(".csv")
        try:
            content = archive.read(info)
        except ZIP_ERRORS as problem:
            raise DataError("not-a-catalog", msg("error.bad-zip", why=str(problem)), msg("hint.http")) from problem
        read = ReadCounts(digest=hashlib.sha256(content).hexdigest())
        lines = io.TextIOWrapper(io.BytesIO(content), "utf-8", newline="")
        last = number + 1 == len(members)
        yield PriceBatch(
            "gpuhunt",
            name,
            gpuhunt_rows(lines, name, machine_of, read),
            day,
            day,
            read=read,
            validators=(validators,) if validators and last else (),
        )
