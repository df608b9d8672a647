"""`whichgpu mcp`: the handshake, tools and resources of the Model Context Protocol; wrong and hostile messages are errors."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from socket import create_connection
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import language
from whichgpu.surface.mcp.http import LocalServer, serve_http
from whichgpu.surface.mcp.protocol import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    RESOURCES,
    SCHEME,
    VERSIONS,
)
from whichgpu.surface.mcp.server import MAX_LINE_BYTES, serve
from whichgpu.surface.mcp.tools import NAMES, input_schema

ENGLISH = language("en")
QUESTIONS: dict[str, dict[str, Any]] = {
    "gpus": {"name": "H100"},
    "offers": {"gpu": "H100", "term": "on-demand"},
    "fit": {"model": "llama-3.1-8b", "gpu": "RTX 4090"},
    "estimate": {"task": "decode", "model": "llama-3.1-8b", "gpu": "H100 SXM", "batch": 8},
    "compare": {"name": ["H100 SXM", "A100-SXM-80GB"]},
    "recommend": {"task": "serve", "model": "llama-3.1-8b", "rate": "2/s"},
    "plan": {"what": "llama-3.1-8b", "rate": "2/s", "curve": False, "simulate": False},
    "explain": {"text": "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192", "gpu": "L4"},
    "evidence": {"words": ["H100", "llama"], "limit": 3},
}
WRONG: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fit", {}),
    ("fit", {"model": "no-such-model"}),
    ("fit", {"model": "/etc/passwd"}),
    ("fit", {"model": ["a", {"b": []}]}),
    ("fit", {"model": "llama-3.1-8b", "plot": "/tmp/x.svg"}),
    ("estimate", {"task": "dance", "model": "llama-3.1-8b"}),
    ("estimate", {"task": "decode", "model": "llama-3.1-8b", "gpu": "H1000", "batch": -1}),
    ("gpus", {"limit": "many"}),
    ("offers", {"nonsense": 1}),
    ("plan", {"what": "llama-3.1-8b", "export": "/tmp/x"}),
    ("evidence", {"words": {"a": 1}}),
    ("explain", {}),
    ("explain", {"file": "/etc/passwd"}),
    ("explain", {"text": "vllm serve /etc/passwd"}),
    ("explain", {"text": "a: &a [x, x]\nbase_model: [*a, *a]"}),
    ("explain", {"text": "x" * 50_000}),
)


def talk(*lines: bytes | dict[str, Any]) -> list[dict[str, Any]]:
    """Send lines to a server, close its input, and return its replies."""
    source = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    sink = io.BytesIO()
    serve(io.BytesIO(source), sink, ENGLISH)
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def request(method: Any, params: Any = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method} | ({} if params is None else {"params": params})


def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    [reply] = talk(request("tools/call", {"name": name, "arguments": arguments}))
    result: dict[str, Any] = reply["result"]
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result


def test_handshake_agrees_on_a_version_and_lists_tools_and_resources() -> None:
    hello = {"protocolVersion": VERSIONS[0], "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    newer = request("initialize", hello | {"protocolVersion": "2099-01-01"}, "b")
    replies = talk(request("initialize", hello, "a"), newer, initialized, request("tools/list"), request("resources/list", id=2))
    assert [reply["id"] for reply in replies] == ["a", "b", 1, 2]
    assert [reply["result"]["protocolVersion"] for reply in replies[:2]] == [VERSIONS[0], VERSIONS[-1]]
    assert [tool["name"] for tool in replies[2]["result"]["tools"]] == list(NAMES)
    assert [one["uri"] for one in replies[3]["result"]["resources"]] == [SCHEME + name for name in RESOURCES]


@pytest.mark.parametrize("name", NAMES)
def test_each_tool_answers_shortly(name: str) -> None:
    result = call_tool(name, QUESTIONS[name])
    assert not result["isError"], result
    assert len(result["content"][0]["text"]) < 120_000
    schema = input_schema(name, ENGLISH)
    assert set(QUESTIONS[name]) <= set(schema["properties"])
    assert all(field not in schema["properties"] for field in ("plot", "export", "catalog"))


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_wrong_questions_are_errors_with_message_and_choices(name: str, arguments: dict[str, Any]) -> None:
    result = call_tool(name, arguments)
    assert result["isError"]
    error = result["structuredContent"]["error"]
    assert error["message"]
    assert {"kind", "hint", "choices"} <= error.keys()
    assert error["kind"] != "internal"
    assert "Traceback" not in json.dumps(result)


def test_nothing_fits_is_an_answer_with_the_reasons() -> None:
    result = call_tool("recommend", {"task": "serve", "model": "llama-3.1-8b", "budget": "0.0001usd/h"})
    assert not result["isError"]
    assert result["structuredContent"]["ok"] is False
    assert result["structuredContent"]["rejected"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"{\n", PARSE_ERROR),
        (b"\xff\xfe\n", PARSE_ERROR),
        (b"[" * 100_000 + b"\n", PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"a" * MAX_LINE_BYTES + b'"}\n', PARSE_ERROR),
        (b'{"id": NaN}\n', PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}\n', PARSE_ERROR),  # A lone surrogate cannot be sent back.
        (b"[]\n", INVALID_REQUEST),
        (b"7\n", INVALID_REQUEST),
        ({"id": 1, "method": "ping"}, INVALID_REQUEST),
        ({"jsonrpc": "2.0", "id": 1}, INVALID_REQUEST),
        ({"jsonrpc": "2.0"}, INVALID_REQUEST),
        (request("ping", id=None), INVALID_REQUEST),
        (request("ping", id={"a": 1}), INVALID_REQUEST),
        (request("os.system"), METHOD_NOT_FOUND),
        (request({"a": []}), METHOD_NOT_FOUND),
        (request("tools/call", [1]), INVALID_PARAMS),
        (request("tools/call", {}), INVALID_PARAMS),
        (request("tools/call", {"name": "dance"}), INVALID_PARAMS),
        (request("tools/call", {"name": ["fit"]}), INVALID_PARAMS),
        (request("tools/call", {"name": "fit", "arguments": "llama"}), INVALID_PARAMS),
        (request("resources/read", {"uri": "file:///etc/passwd"}), RESOURCE_NOT_FOUND),
        (request("resources/read", {"uri": SCHEME + "../gpus"}), RESOURCE_NOT_FOUND),
    ],
)
def test_a_message_against_the_protocol_is_an_error_and_the_next_is_answered(message: bytes | dict[str, Any], code: int) -> None:
    replies = talk(message, request("ping", id="next"))
    assert sorted(reply.get("error", {}).get("code", 0) for reply in replies) == [code, 0]
    assert {"jsonrpc": "2.0", "id": "next", "result": {}} in replies


def test_a_resource_is_a_part_of_the_catalog() -> None:
    [reply] = talk(request("resources/read", {"uri": SCHEME + "engines"}))
    [content] = reply["result"]["contents"]
    assert "vllm" in {engine["id"] for engine in json.loads(content["text"])["engines"]}


def test_a_call_that_waits_can_be_cancelled_and_the_running_one_finishes() -> None:
    calls = [request("tools/call", {"name": "gpus", "arguments": {"name": "T4"}}, id) for id in (1, 2)]
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    ids = {reply["id"] for reply in talk(*calls, cancel)}
    assert 1 in ids  # The second may have started before the notification was read.


def test_the_handshake_imports_no_command_and_no_catalog() -> None:
    code = (
        "import io, sys\n"
        "from whichgpu.base.messages import language\n"
        "from whichgpu.surface.mcp.server import serve\n"
        'line = b\'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}\\n\'\n'
        "serve(io.BytesIO(line), io.BytesIO(), language('en'))\n"
        "print([name for name in sys.modules if name.startswith(('whichgpu.api', 'whichgpu.catalog', 'numpy', 'starlette'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def address() -> Iterator[str]:
    """Address of a server on this machine."""
    with LocalServer(0, ENGLISH) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.url
        server.shutdown()


JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def post(address: str, body: object, **headers: str) -> tuple[int, Any]:
    """Send a message over HTTP and return status and reply."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = httpx.post(
        address, content=content, headers=JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    )
    return reply.status_code, reply.json() if reply.content else None


def test_http_answers_as_standard_output_does(address: str) -> None:
    hello = request(
        "initialize", {"protocolVersion": VERSIONS[-1], "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    )
    messages = [hello, request("tools/list", id="a"), request("tools/call", {"name": "gpus", "arguments": {"name": "T4"}}, 3)]
    for message in messages:
        assert post(address, message, MCP_Protocol_Version=VERSIONS[-1]) == (200, talk(message)[0])
    assert post(address, {"jsonrpc": "2.0", "method": "notifications/initialized"}) == (202, None)
    assert httpx.get(address).status_code == 405
    assert httpx.delete(address).status_code == 405


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        ([request("ping")], {}, 400),
        (request("ping"), {"Origin": "https://example.com"}, 403),
        (request("ping"), {"Origin": "null"}, 403),
        (request("ping"), {"Origin": "http://127.0.0.1.example.com"}, 403),
        (request("ping"), {"Host": "example.com"}, 403),
        (request("ping"), {"Host": "[::1"}, 403),
        (request("ping"), {"Content_Type": "text/plain"}, 415),
        (request("ping"), {"MCP_Protocol_Version": "1999-01-01"}, 400),
        (request("ping"), {"Content_Length": str(MAX_LINE_BYTES + 1)}, 413),
        (request("ping"), {"Content_Length": "９"}, 411),
        (request("ping"), {"Content_Length": "-1"}, 411),
    ],
)
@pytest.mark.sweep(3)
def test_http_refuses_other_sites_and_wrong_messages(address: str, body: object, headers: dict[str, str], status: int) -> None:
    refused = raw_post(address, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)
    assert refused == status
    assert post(address, request("ping")) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert httpx.post(address + "x", content=b"{}", headers=JSON).status_code == 404


def raw_post(address: str, body: bytes, changes: dict[str, str]) -> int:
    """Send a message with headers that HTTP libraries would not send; return the status."""
    url = urlsplit(address)
    assert url.hostname
    assert url.port
    headers = {"Host": url.netloc, "Content-Type": "application/json", "Content-Length": str(len(body))}
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"POST {url.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    with create_connection((url.hostname, url.port), timeout=30) as connection:
        connection.sendall("\r\n".join(lines).encode() + body)
        return int(connection.recv(100).split()[1])


def test_a_port_in_use_is_an_error(address: str) -> None:
    with pytest.raises(UsageError, match=str(urlsplit(address).port)):
        serve_http(urlsplit(address).port or 0, ENGLISH, print)


@pytest.mark.long
@pytest.mark.parametrize("over_http", [False, True])
@pytest.mark.skipif(find_spec("mcp") is None, reason="the client of the mcp package is not installed")
def test_the_sdk_s_client_gets_sixty_answers(over_http: bool, address: str) -> None:
    """Right, wrong and hostile questions through the official client, over the pipes of a real process or over HTTP."""
    import anyio
    from mcp import Client, MCPError, StdioServerParameters
    from mcp.client.stdio import stdio_client

    models = ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "qwen3-32b", "bert-large", "resnet50")
    right = [*QUESTIONS.items(), *(("fit", {"model": model, "gpu": gpu}) for model in models for gpu in ("H100 SXM", "T4"))]
    right += [("gpus", {"name": name}) for name in ("A100", "T4", "B200", "MI300X", "RTX 4090", "L4", "V100")]
    hostile = [
        "../../etc/passwd",
        "python:os:system",
        "hf:x/y",
        "\0",
        "a" * 50_000,
        "{" * 500,
        "<script>",
        "'; DROP TABLE",
        "％２ｆ",
        "{}",
    ]
    wrong = [
        *WRONG,
        *(("fit", {"model": text}) for text in hostile),
        *(("gpus", {"name": text, "sort": text}) for text in hostile),
    ]
    wrong += [("offers", {"limit": 10**9}), ("estimate", {"task": "decode", "model": "mlp:" + "9" * 400 + "x9", "gpu": "T4"})]

    async def ask() -> int:
        server = StdioServerParameters(command=sys.executable, args=["-m", "whichgpu", "mcp"], env=dict(os.environ))
        answered = 0
        async with Client(address if over_http else stdio_client(server)) as client:
            assert tuple(tool.name for tool in (await client.list_tools()).tools) == NAMES
            for name, arguments in right:
                reply = await client.call_tool(name, arguments)
                assert not reply.is_error, (name, arguments, reply)
                answered += 1
            for name, arguments in wrong:
                reply = await client.call_tool(name, arguments)
                assert reply.is_error, (name, arguments)
                assert reply.structured_content["error"]["kind"] != "internal", (name, arguments, reply)
                answered += 1
            with pytest.raises(MCPError):
                await client.call_tool("dance", {})
            assert "H100" in (await client.read_resource(SCHEME + "gpus")).contents[0].text
        return answered

    assert anyio.run(ask) >= 60
