"""Files sent by clients: streamed to a folder of the server's own under names of its own, bounded, and gone after a while."""

from __future__ import annotations

import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from whichgpu.surface.web.request_body import body_parts
from whichgpu.surface.web.responses import Refusal
from whichgpu.surface.web.server.limits import Limits

TYPES = {"text/csv": ".csv", "application/json": ".jsonl", "application/x-ndjson": ".jsonl", "text/plain": ".csv"}


@dataclass(slots=True)
class Upload:
    """One file."""

    path: Path
    client: str
    until: float
    bytes: int = 0
    whole: bool = False


class Uploads:
    """All of them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._known: dict[str, Upload] = {}

    async def take(self, request: Request, client: str) -> tuple[str, int]:
        """Keep what a request sends; its id and size."""
        ending = TYPES.get(request.headers.get("content-type", "").partition(";")[0].strip().lower())
        if ending is None:
            raise Refusal(415, "upload-type", None, types=tuple(TYPES))
        self._forget()
        if len(self._known) >= self._limits.uploads:
            self._make_room(client)
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="whichgpu-")
        name = secrets.token_urlsafe(16)
        until = time.monotonic() + self._limits.job_kept_seconds
        kept = Upload(Path(self._folder.name) / (name + ending), client, until)
        self._known[name] = kept  # from the first byte: those under way count
        try:
            with kept.path.open("xb") as file:
                async for part in body_parts(request, self._limits.upload_bytes, self._limits.upload_seconds):
                    kept.bytes += len(part)
                    while sum(one.bytes for one in self._known.values()) > self._limits.uploads_bytes:
                        self._make_room(client)
                    file.write(part)
        except BaseException:
            self._drop(name)
            raise
        kept.whole = True
        return name, kept.bytes

    def path(self, name: str) -> Path:
        """Where a file lies, by its id alone."""
        self._forget()
        if name not in self._known:
            raise Refusal(404, "upload")
        return self._known[name].path

    def close(self) -> None:
        """Remove all."""
        if self._folder is not None:
            self._folder.cleanup()

    def _make_room(self, client: str) -> None:
        """A client's own oldest file goes first; those of others stay."""
        own = [name for name, one in self._known.items() if one.client == client and one.whole]
        if not own:
            raise Refusal(503, "uploads-full", {"Retry-After": "600"})
        self._drop(own[0])

    def _forget(self) -> None:
        now = time.monotonic()
        for name in [name for name, one in self._known.items() if one.until < now]:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._known.pop(name).path.unlink(missing_ok=True)
