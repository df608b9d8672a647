"""Files that clients upload: streamed to a temporary folder under random names, limited in size, and deleted after a while."""

from __future__ import annotations

import secrets
import tempfile
import time
from pathlib import Path

import msgspec
from starlette.requests import Request

from whichgpu.surface.web.request_body import body_parts
from whichgpu.surface.web.responses import HttpRefusal
from whichgpu.surface.web.server.limits import Limits

TYPES = {"text/csv": ".csv", "application/json": ".jsonl", "application/x-ndjson": ".jsonl", "text/plain": ".csv"}


class Upload(msgspec.Struct):
    """One uploaded file; it is deleted at the time `until`."""

    path: Path
    client: str
    until: float
    bytes: int = 0
    is_complete: bool = False


class Uploads:
    """Uploaded files of all clients, in a temporary folder."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._uploads: dict[str, Upload] = {}

    async def receive(self, request: Request, client: str) -> tuple[str, int]:
        """Store the body of a request as a file; return its id and size in bytes."""
        ending = TYPES.get(request.headers.get("content-type", "").partition(";")[0].strip().lower())
        if ending is None:
            raise HttpRefusal(415, "upload-type", None, types=tuple(TYPES))
        self._delete_expired()
        if len(self._uploads) >= self._limits.uploads:
            self._make_room(client)
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="whichgpu-")
        name = secrets.token_urlsafe(16)
        until = time.monotonic() + self._limits.job_kept_seconds
        upload = Upload(Path(self._folder.name) / (name + ending), client, until)
        self._uploads[name] = upload  # An upload under way counts from its first byte.
        try:
            with upload.path.open("xb") as file:
                async for part in body_parts(request, self._limits.upload_bytes, self._limits.upload_seconds):
                    upload.bytes += len(part)
                    while sum(one.bytes for one in self._uploads.values()) > self._limits.uploads_bytes:
                        self._make_room(client)
                    file.write(part)
        except BaseException:
            self._delete(name)
            raise
        upload.is_complete = True
        return name, upload.bytes

    def path(self, name: str) -> Path:
        """Return the path of an uploaded file by its id."""
        self._delete_expired()
        if name not in self._uploads:
            raise HttpRefusal(404, "upload")
        return self._uploads[name].path

    def close(self) -> None:
        """Delete all uploaded files and their folder."""
        if self._folder is not None:
            self._folder.cleanup()

    def _make_room(self, client: str) -> None:
        """Delete the client's own oldest file to make room; raise `HttpRefusal` if it has none."""
        own = [name for name, one in self._uploads.items() if one.client == client and one.is_complete]
        if not own:
            raise HttpRefusal(503, "uploads-full", {"Retry-After": "600"})
        self._delete(own[0])

    def _delete_expired(self) -> None:
        now = time.monotonic()
        for name in [name for name, one in self._uploads.items() if one.until < now]:
            self._delete(name)

    def _delete(self, name: str) -> None:
        self._uploads.pop(name).path.unlink(missing_ok=True)
