"""The config.json of a model on Hugging Face: from our cache, from that of Hugging Face's tools, or downloaded and cached."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.files import write_atomically
from whichgpu.base.messages import Message, msg
from whichgpu.workload.model_files.bounded_read import MAX_CONFIG_BYTES, parse_config, read_config
from whichgpu.workload.model_files.local import hub_root

HOST = "huggingface.co"
TIMEOUT = 10.0  # Seconds to wait for the server (assumed).
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,95}"
_REPOSITORY = re.compile(rf"({_PART})/({_PART})")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def hub_config(repository: str) -> dict[str, Any]:
    """Return the config.json of the repository `ORG/NAME`; the network is used only if neither cache has it."""
    match = _REPOSITORY.fullmatch(repository)
    if not match:
        message = msg("error.bad-repository", name=repository[:200])
        raise UsageError("bad-repository", message, msg("hint.bad-repository"))
    own = _cache() / "hf" / match[1] / match[2] / "config.json"
    for path in (own, *_their_caches(match[1], match[2])):
        if os.path.isfile(path):
            return read_config(path)
    data = _fetched(repository)
    config = parse_config(data, f"https://{HOST}/{repository}")
    with contextlib.suppress(OSError):  # If the cache is not writable, the config is downloaded again next time.
        own.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(own, data)
    return config


def fetch(url: str, token: str | None) -> bytes:
    """Return the bytes at a URL, cut one byte above the size limit; the token is sent to that host only. Raises OSError."""
    import http.client
    from urllib.parse import urlsplit
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    def allow(request: Request) -> Request:
        if token and urlsplit(request.full_url).hostname == HOST:
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        return request

    class Redirects(HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> Request | None:
            following = super().redirect_request(*args)
            if following is not None and urlsplit(following.full_url).scheme != "https":
                raise OSError(f"redirected to {following.full_url[:80]}")
            return allow(following) if following is not None else None

    try:
        request = allow(Request(url, headers={"User-Agent": "whichgpu"}))
        with build_opener(Redirects).open(request, timeout=TIMEOUT) as answer:
            return bytes(answer.read(MAX_CONFIG_BYTES + 1))
    except http.client.HTTPException as problem:
        raise OSError(str(problem) or type(problem).__name__) from problem


def _fetched(repository: str) -> bytes:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise _not_cached(repository, msg("hub.offline"))
    try:
        return fetch(f"https://{HOST}/{repository}/resolve/main/config.json", os.environ.get("HF_TOKEN"))
    except OSError as problem:
        code = getattr(problem, "code", None)
        reasons = {401: msg("hub.gated"), 403: msg("hub.gated"), 404: msg("hub.unknown")}
        why = reasons.get(code) if isinstance(code, int) else None
        raise _not_cached(repository, why or msg("hub.unreachable", why=str(problem)[:120])) from problem


def _not_cached(repository: str, why: Message) -> UsageError:
    message = msg("error.model-not-cached", name=repository, why=why)
    folder = _cache() / "hf" / repository
    return UsageError(
        "model-not-cached", message, msg("hint.model-not-cached", path=str(folder / "config.json"), name=repository)
    )


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path("~/.cache").expanduser()) / "whichgpu"


def _their_caches(owner: str, name: str) -> list[Path]:
    """Return snapshot folders in the cache of Hugging Face's own tools: the branch `main` first, then the newest."""
    folder = hub_root() / f"models--{owner}--{name}"
    try:
        with (folder / "refs" / "main").open(encoding="ascii", errors="replace") as file:
            reference = file.read(64).strip()
    except OSError:
        reference = ""
    main = [folder / "snapshots" / reference / "config.json"] if _COMMIT.fullmatch(reference) else []
    try:
        others = sorted((folder / "snapshots").glob("*/config.json"), key=lambda path: -path.stat().st_mtime)
    except OSError:
        others = []
    return main + others
