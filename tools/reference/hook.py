"""MkDocs hook: adds the generated reference pages while the site is built, so that they are always up to date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    for folder in (ROOT / "tools", ROOT / "src"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    from reference import all_pages

    for path, content in all_pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Mark the language of a translated page, by which browsers choose font and voice."""
    match page.file.src_uri.split("/"):
        case ["reference", code, _]:
            return f'<div lang="{code}">{html}</div>'
    return html
