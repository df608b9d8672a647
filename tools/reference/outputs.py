"""Refresh the outputs of commands output_of on the pages: `python -m reference.outputs`, or `make docs`.

Only blocks under `<!-- output: N -->` change; each shows the first N lines that the block before it prints on a terminal.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from reference.blocks import TOOL, Block, blocks

ROOT = Path(__file__).resolve().parents[2]
WIDTH = "100"


def pages() -> list[Path]:
    """Every page with code blocks."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def output_of(block: Block, lines: int) -> str:
    """Output of a block of commands, cut off after a number of lines."""
    from whichgpu.surface.cli.main import main

    out = io.StringIO()
    for words in block.commands():
        if words[0] in TOOL:
            table = patch.dict(os.environ, {"WHICHGPU_FORMAT": "table"})
            with table, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                main(words[1:])
    output_lines = [line.rstrip() for line in out.getvalue().strip("\n").splitlines()]
    return "\n".join(output_lines if len(output_lines) <= lines else [*output_lines[:lines], "…"])


def stale(page: Path) -> list[tuple[Block, str]]:
    """Output blocks of a page that differ from the current output, with that output."""
    all_blocks = blocks(page)
    pairs = [(before, block) for before, block in pairwise(all_blocks) if block.shows]
    outputs = [(block, output_of(before, block.shows)) for before, block in pairs]
    return [(block, text) for block, text in outputs if text != block.text]


def main() -> int:
    """Rewrite the outdated blocks."""
    os.environ |= {"COLUMNS": WIDTH, "NO_COLOR": "1", "LANGUAGE": "en"}
    with tempfile.TemporaryDirectory() as home:  # without the user's prices and measurements
        os.environ |= {"XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home}
        for page in pages():
            lines = page.read_text(encoding="utf-8").split("\n")
            for block, text in reversed(stale(page)):  # from the end, so that line numbers stay valid
                lines[block.line : block.line + len(block.text.splitlines())] = text.splitlines()
                print(f"{page.relative_to(ROOT)}:{block.line}: refreshed", file=sys.stderr)
            page.write_text("\n".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
