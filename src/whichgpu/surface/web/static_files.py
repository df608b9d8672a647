"""Scripts and styles of the pages: compressed, and under a URL with their digest, which browsers may cache for ever."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zlib import compress

FOLDER = Path(__file__).parent / "static"
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
COMPRESSION_LEVEL = 9  # The files are compressed once.


@cache
def static_version() -> str:
    """Return a digest of all files; scripts import each other by relative URLs, so one digest serves for all."""
    content = blake2b(digest_size=8)
    for path in sorted(FOLDER.iterdir()):
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    return content.hexdigest()


def static_url(name: str) -> str:
    """Return the URL of a file, which changes with the content of the files."""
    return f"/static/{static_version()}/{name}"


def chart_script_url() -> str:
    """Return the URL of the script that draws charts, which changes with the package that it comes from."""
    return f"/assets/vega.js?v={version('vl-convert-python')}"


@cache
def static_answer(name: str) -> dict[str, Any] | None:
    """Return a file as an answer to a client, compressed; None if there is no file of that name."""
    path = FOLDER / name
    if name not in {one.name for one in FOLDER.iterdir()} or path.suffix not in TYPES:
        return None
    content = path.read_bytes()
    return {
        "status": 200, "content": TYPES[path.suffix], "body": compress(content, COMPRESSION_LEVEL, wbits=31), "packed": True,
        "tag": blake2b(content, digest_size=12).hexdigest(), "headers": {}, "plain_bytes": len(content),
    }  # fmt: skip
