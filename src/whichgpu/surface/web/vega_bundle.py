"""The script that draws charts in the browser: made from vl-convert's own bundle once, which takes seconds, and kept."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from whichgpu.base.files import user_folder


@cache
def bundle() -> bytes:
    """Vega, Vega-Lite and vega-embed as one classic script that sets `vegaEmbed`, `vega` and `vegaLite` on the window."""
    kept = _kept()
    if kept is not None:
        with contextlib.suppress(OSError):
            return kept.read_bytes()
    make: Any = import_module("vl_convert").javascript_bundle  # its own annotations forget that it may be called bare
    made = str(make()).encode()
    if kept is not None:
        beside = kept.with_name(f"{kept.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(made)
            beside.replace(kept)
    return made


def is_made() -> bool:
    """Whether it was made before: then any worker can give it."""
    kept = _kept()
    try:
        return kept is not None and kept.is_file()
    except OSError:
        return False


def _kept() -> Path | None:
    folder = user_folder("XDG_CACHE_HOME", ".cache")
    return None if folder is None else folder / "whichgpu" / f"vega-{version('vl-convert-python')}.js"
