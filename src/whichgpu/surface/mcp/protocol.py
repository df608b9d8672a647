"""Messages of the Model Context Protocol (JSON-RPC 2.0, one object per line) and the replies to them.

Written here instead of with the protocol's Python SDK, whose import alone takes longer than a client should wait for a server to
start, and which would be a dependency. The handshake is answered before the catalog or any command is imported.
Specification: https://modelcontextprotocol.io/specification/2025-11-25
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from whichgpu.base.messages import Language
from whichgpu.base.version import __version__

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")  # Versions with an `initialize` handshake, oldest first.
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)  # As in JSON-RPC 2.0.
RESOURCE_NOT_FOUND = -32002  # As in the specification of the protocol.
SLOW_METHODS = ("tools/call", "resources/read")  # Methods that compute.
SCHEME = "whichgpu://catalog/"  # Start of the address of every resource.
RESOURCES = ("gpus", "models", "engines", "status")  # Parts of the catalog to read.
MAX_NAME = 80  # Characters of a client's text that are repeated in an error.

Document = dict[str, Any]


class ProtocolError(Exception):
    """A request that the protocol refuses, with its JSON-RPC error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def parse(line: bytes) -> Document:
    """Return the message in a line, with the keys that JSON-RPC requires; raise `ProtocolError` for anything else."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ProtocolError(PARSE_ERROR, "the line is not JSON") from problem
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, "the message is not a JSON-RPC 2.0 object")
    return message


def is_request(message: Document) -> bool:
    """Whether a message gets a reply, if only an error; notifications and a client's replies do not."""
    return ("id" in message or "method" not in message) and not {"result", "error"} & message.keys()


def reply_to(message: Document, language: Language) -> Document:
    """Return the JSON-RPC reply to a request; every failure is an error object, never an exception."""
    id = message.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int):
        return error_reply(None, ProtocolError(INVALID_REQUEST, "the id is neither text nor an integer"))
    if "method" not in message:
        return error_reply(id, ProtocolError(INVALID_REQUEST, "the message has no method"))
    try:
        return {"jsonrpc": "2.0", "id": id, "result": _result(message, language)}
    except ProtocolError as problem:
        return error_reply(id, problem)
    except Exception as problem:
        return error_reply(id, ProtocolError(INTERNAL_ERROR, f"internal error: {type(problem).__name__}"))


def error_reply(id: str | int | None, error: ProtocolError) -> Document:
    """Return the JSON-RPC reply that reports an error."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": error.code, "message": str(error)}}


def _result(message: Document, language: Language) -> Document:
    method, params = message["method"], message.get("params", {})
    handler = METHODS.get(method) if isinstance(method, str) else None
    if handler is None:
        raise ProtocolError(METHOD_NOT_FOUND, f"no method {str(method)[:MAX_NAME]!r}")
    if not isinstance(params, dict):
        raise ProtocolError(INVALID_PARAMS, "params is not an object")
    return handler(params, language)


def _initialize(params: Document, language: Language) -> Document:
    version = params.get("protocolVersion")
    return {
        "protocolVersion": version if version in VERSIONS else VERSIONS[-1],
        "capabilities": {"tools": {}, "resources": {}},
        "serverInfo": {"name": "whichgpu", "version": __version__},
        "instructions": language.text("mcp.instructions"),
    }


def _ping(params: Document, language: Language) -> Document:  # noqa: ARG001
    return {}


def _list_tools(params: Document, language: Language) -> Document:  # noqa: ARG001
    from whichgpu.surface.mcp.tools import NAMES, description, input_schema

    read_only = {"readOnlyHint": True, "openWorldHint": False}
    return {
        "tools": [
            {
                "name": name,
                "description": description(name, language),
                "inputSchema": input_schema(name, language),
                "annotations": read_only,
            }
            for name in NAMES
        ]
    }


def _call_tool(params: Document, language: Language) -> Document:
    from whichgpu.surface.mcp.tools import NAMES, answer

    name, arguments = params.get("name"), params.get("arguments") or {}
    if name not in NAMES:
        raise ProtocolError(INVALID_PARAMS, f"no tool {str(name)[:MAX_NAME]!r}; there are: {', '.join(NAMES)}")
    if not isinstance(arguments, dict):
        raise ProtocolError(INVALID_PARAMS, "arguments is not an object")
    reply = answer(str(name), arguments, language)
    text = {"type": "text", "text": msgspec.json.encode(reply.document).decode()}
    return {"content": [text], "structuredContent": reply.document, "isError": reply.is_error}


def _list_resources(params: Document, language: Language) -> Document:  # noqa: ARG001
    return {
        "resources": [
            {
                "uri": SCHEME + name,
                "name": name,
                "description": language.text(f"command.{name}.short"),
                "mimeType": "application/json",
            }
            for name in RESOURCES
        ]
    }


def _list_resource_templates(params: Document, language: Language) -> Document:  # noqa: ARG001
    return {"resourceTemplates": []}


def _read_resource(params: Document, language: Language) -> Document:
    from whichgpu.surface.mcp.tools import whole_answer

    uri = params.get("uri")
    name = uri.removeprefix(SCHEME) if isinstance(uri, str) and uri.startswith(SCHEME) else None
    if name not in RESOURCES:
        raise ProtocolError(RESOURCE_NOT_FOUND, f"no resource {str(uri)[:MAX_NAME]!r}")
    endpoint = "catalog/status" if name == "status" else str(name)
    content = msgspec.json.encode(whole_answer(endpoint, {}, language).document).decode()
    return {"contents": [{"uri": uri, "mimeType": "application/json", "text": content}]}


METHODS: dict[str, Callable[[Document, Language], Document]] = {
    "initialize": _initialize,
    "ping": _ping,
    "tools/list": _list_tools,
    "tools/call": _call_tool,
    "resources/list": _list_resources,
    "resources/templates/list": _list_resource_templates,
    "resources/read": _read_resource,
}
