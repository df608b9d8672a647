#!/usr/bin/env python3
"""Run the example notebooks as a reader would, and store their outputs.

    .venv/bin/python tools/notebooks.py

Run it after a change of figures: `make test-long` compares the stored outputs with those of a real run.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "notebooks"
SECONDS = 300  # limit for one cell, on a slow machine
STORED_FORMATS = (
    "text/html",
    "text/plain",
    "image/svg+xml",
)  # a chart's specification too would double the size


def notebooks() -> list[Path]:
    """All example notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path) -> Any:
    """The notebook with the outputs of a run in a fresh kernel, without the user's settings and prices."""
    from nbclient import NotebookClient

    notebook = _format().read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute(cwd=folder, env=_environment(folder))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # time of the run
        for output in cell.get("outputs", ()):
            output["data"] = {kind: data for kind, data in output.get("data", {}).items() if kind in STORED_FORMATS}
            if output.output_type == "stream":
                del output["data"]
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def _format() -> Any:
    """The library of the notebook format, whose functions have no types."""
    return import_module("nbformat")


def _environment(folder: str) -> dict[str, str]:
    own = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"), folder)
    base = {name: value for name, value in os.environ.items() if not name.startswith("WHICHGPU_")}
    return {
        **base,
        **own,
        "COLUMNS": "80",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), base.get("PYTHONPATH", "")]),
    }


def main() -> int:
    """Run and store all notebooks."""
    for path in notebooks():
        _format().write(executed(path), path)
        sys.stderr.write(f"{path.relative_to(ROOT)}: {path.stat().st_size >> 10} KiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
