"""Refreshes what the pages show of commands' output: `python -m reference.outputs`, or `make docs`.

Only blocks under `<!-- output: N -->` are touched; each shows the first N lines of what the block before it prints on a terminal.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from reference.blocks import TOOL, Block, blocks

ROOT = Path(__file__).resolve().parents[2]
WIDTH = "100"


def pages() -> list[Path]:
    """Every page whose blocks are looked at."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(asked: Block, lines: int) -> str:
    """What a block of commands prints, cut off after so many lines."""
    from whichgpu.surface.cli.main import main

    out = io.StringIO()
    for words in asked.commands():
        if words[0] in TOOL:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                main([*words[1:], "--format", "table"])
    told = [line.rstrip() for line in out.getvalue().strip("\n").splitlines()]
    return "\n".join(told if len(told) <= lines else [*told[:lines], "…"])


def stale(page: Path) -> list[tuple[Block, str]]:
    """Blocks of a page that show something else than is printed now, with what is."""
    found = blocks(page)
    pairs = [(before, block) for before, block in pairwise(found) if block.shows]
    told = [(block, shown(before, block.shows)) for before, block in pairs]
    return [(block, text) for block, text in told if text != block.text]


def main() -> int:
    """Write them."""
    os.environ |= {"COLUMNS": WIDTH, "NO_COLOR": "1", "LANGUAGE": "en"}
    with tempfile.TemporaryDirectory() as home:  # nobody's own prices or measurements
        os.environ |= {"XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home}
        for page in pages():
            lines = page.read_text(encoding="utf-8").split("\n")
            for block, text in reversed(stale(page)):  # from the end, so that line numbers hold
                lines[block.line : block.line + len(block.text.splitlines())] = text.splitlines()
                print(f"{page.relative_to(ROOT)}:{block.line}: refreshed", file=sys.stderr)
            page.write_text("\n".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
