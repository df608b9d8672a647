"""The part of a page that says how to start what it advises: the files of each tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.api.launch.emit import Answer, launch_files_by_target
from whichgpu.surface.web.page import Page
from whichgpu.surface.web.views.shared import context_of


def launch_content(answer: Answer, request: Mapping[str, Any], page: Page) -> dict[str, Any]:
    """Return the template values of the files by tool, each with an id to copy it by; the tool of the URL is opened."""
    tools = launch_files_by_target(answer, request, context_of(page))
    return {
        "launch": [
            {
                "tool": tool,
                "is_open": tool == page.state.get("emit"),
                "files": [
                    {"id": f"use-{place}-{index}", "name": name, "text": text} for index, (name, text) in enumerate(files.items())
                ],
            }
            for place, (tool, files) in enumerate(tools.items())
        ]
    }
