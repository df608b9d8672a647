"""The Model Context Protocol server over standard input and output, with the official Python SDK."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

from whichgpu.base.messages import Language
from whichgpu.base.version import __version__
from whichgpu.surface.mcp.tools import NAMES, answer, description, input_schema


def build_server(language: Language) -> Server[Any]:
    """Return the server with its tools; answers are in a language, one at a time."""
    one_at_a_time = anyio.CapacityLimiter(1)

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=description(name, language), inputSchema=input_schema(name, language))
                for name in NAMES
            ]
        )

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in NAMES:
            error = {"kind": "unknown-tool", "message": f"no tool {params.name[:80]!r}", "hint": None, "choices": list(NAMES)}
            return _result({"ok": False, "error": error}, True)
        work = partial(answer, params.name, params.arguments or {}, language)
        reply = await anyio.to_thread.run_sync(work, limiter=one_at_a_time)
        return _result(reply.document, reply.is_error)

    return Server("whichgpu", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


def _result(document: dict[str, Any], is_error: bool) -> types.CallToolResult:
    text = types.TextContent(type="text", text=json.dumps(document, ensure_ascii=False))
    return types.CallToolResult(content=[text], structuredContent=document, isError=is_error)


def serve(language: Language) -> None:
    """Answer a client on standard input and output until it closes them."""

    async def run() -> None:
        server = build_server(language)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)
