"""Where a source is asked: its own address, or a mirror named by WHICHGPU_URL_<SOURCE>."""

from __future__ import annotations

from collections.abc import Mapping

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg


def source_url(source: str, usual: str, environ: Mapping[str, str]) -> str:
    """The address to request, without a slash at its end."""
    named = environ.get(f"WHICHGPU_URL_{source.upper()}", "").strip()
    if named and not named.startswith(("https://", "http://")):
        raise UsageError("bad-address", msg("error.bad-address", name=named), msg("hint.bad-address"))
    return (named or usual).rstrip("/")
