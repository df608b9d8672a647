"""The script that draws charts in the browser; vl-convert builds it in seconds, and it is kept in the user's cache."""

from __future__ import annotations

import contextlib
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from whichgpu.base.files import user_folder, write_atomically


@cache
def bundle() -> bytes:
    """Return Vega, Vega-Lite and vega-embed as one classic script that sets `vegaEmbed`, `vega` and `vegaLite` on the window."""
    cached = _cache_file()
    if cached is not None:
        with contextlib.suppress(OSError):
            return cached.read_bytes()
    make: Any = import_module("vl_convert").javascript_bundle  # Its annotations require an argument that is optional.
    script = str(make()).encode()
    if cached is not None:
        with contextlib.suppress(OSError):
            cached.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(cached, script)
    return script


def is_cached() -> bool:
    """Whether the script is in the cache, so that any worker can read it."""
    cached = _cache_file()
    try:
        return cached is not None and cached.is_file()
    except OSError:
        return False


def _cache_file() -> Path | None:
    folder = user_folder("XDG_CACHE_HOME", ".cache")
    return None if folder is None else folder / "whichgpu" / f"vega-{version('vl-convert-python')}.js"
