"""Chart files: vl-convert (an extra) writes a Vega-Lite spec as SVG, PNG or HTML."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from whichgpu.base.codec import script_json
from whichgpu.base.errors import UsageError
from whichgpu.base.files import write_atomically
from whichgpu.base.messages import msg
from whichgpu.surface.charts.palette import with_fixed_colours

ENDINGS = (".svg", ".png", ".html")
PLACEHOLDER = {"description": "chart of whichgpu"}  # The converter would write names of the spec into a script as they are.


def check_chart_file(path: str) -> None:
    """Raise an error if a chart cannot be written to a path: unknown ending, not a plain file, or vl-convert is missing.

    A symbolic link is followed: the picture is written where it points, and the link stays.
    """
    if Path(path).suffix.lower() not in ENDINGS:
        raise UsageError("bad-plot", msg("error.bad-plot", name=path), msg("hint.bad-plot", endings=ENDINGS), ENDINGS)
    target = _target(path)
    if target.exists() and not target.is_file():
        raise UsageError("bad-plot", msg("error.no-plain-file", path=path), msg("hint.bad-plot", endings=ENDINGS), ENDINGS)
    _converter()


def _target(path: str) -> Path:
    """Return the file that a path names, with symbolic links followed."""
    target = Path(path).expanduser()
    return Path(os.path.realpath(target)) if target.is_symlink() else target


def write_chart(spec: dict[str, Any], path: str) -> None:
    """Write a Vega-Lite chart as a picture in the format of the file's ending."""
    converter, ending = _converter(), Path(path).suffix.lower()
    if ending == ".svg":
        content = converter.vegalite_to_svg(with_fixed_colours(spec)).encode()
    elif ending == ".png":
        content = converter.vegalite_to_png(with_fixed_colours(spec), scale=2)
    else:
        page = converter.vegalite_to_html(PLACEHOLDER, bundle=True)
        content = page.replace(json.dumps(PLACEHOLDER, separators=(",", ":")), script_json(spec)).encode()
    try:
        write_atomically(_target(path), content)
    except OSError as problem:
        message = msg("error.cannot-write-file", name=path, why=problem.strerror or str(problem))
        raise UsageError("cannot-write-file", message, msg("hint.cannot-write-file")) from problem


def _converter() -> Any:
    try:
        return import_module("vl_convert")
    except ModuleNotFoundError as missing:
        raise UsageError("needs-extra", msg("error.needs-extra", name="vl-convert-python"), msg("hint.needs-extra")) from missing
