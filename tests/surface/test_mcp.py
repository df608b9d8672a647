"""`whichgpu mcp`: tools answer the SDK's client; wrong questions are tool errors with a hint; the extra is optional."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest

from tests.surface.cli import call
from whichgpu.base.messages import language
from whichgpu.surface.cli import mcp as command
from whichgpu.surface.mcp.tools import NAMES, answer, input_schema

ENGLISH = language("en")
QUESTIONS: dict[str, dict[str, Any]] = {
    "gpus": {"name": "H100"},
    "offers": {"gpu": "H100", "term": "on-demand"},
    "fit": {"model": "llama-3.1-8b", "gpu": "RTX 4090"},
    "estimate": {"task": "decode", "model": "llama-3.1-8b", "gpu": "H100 SXM", "batch": 8},
    "compare": {"name": ["H100 SXM", "A100-SXM-80GB"]},
    "recommend": {"task": "serve", "model": "llama-3.1-8b", "rate": "2/s"},
    "plan": {"what": "llama-3.1-8b", "rate": "2/s", "curve": False, "simulate": False},
}
WRONG: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fit", {}),
    ("fit", {"model": "no-such-model"}),
    ("fit", {"model": "/etc/passwd"}),
    ("fit", {"model": ["a", {"b": []}]}),
    ("fit", {"model": "llama-3.1-8b", "plot": "/tmp/x.svg"}),
    ("estimate", {"task": "dance", "model": "llama-3.1-8b"}),
    ("estimate", {"task": "decode", "model": "llama-3.1-8b", "gpu": "H1000", "batch": -1}),
    ("recommend", {"task": "serve", "model": "llama-3.1-8b", "budget": "0.0001usd/h"}),
    ("gpus", {"limit": "many"}),
    ("offers", {"nonsense": 1}),
    ("plan", {"what": "llama-3.1-8b", "export": "/tmp/x"}),
)


@pytest.mark.parametrize("name", NAMES)
def test_each_tool_answers_shortly(name: str) -> None:
    reply = answer(name, QUESTIONS[name], ENGLISH)
    assert not reply.is_error, reply.document
    assert len(json.dumps(reply.document)) < 120_000
    schema = input_schema(name, ENGLISH)
    assert set(QUESTIONS[name]) <= set(schema["properties"])
    assert all(field not in schema["properties"] for field in ("plot", "export", "catalog"))


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_wrong_questions_are_errors_with_message_and_choices(name: str, arguments: dict[str, Any]) -> None:
    reply = answer(name, arguments, ENGLISH)
    assert reply.is_error
    assert reply.document["ok"] is False
    assert reply.document["error"]["message"]
    assert {"kind", "hint", "choices"} <= reply.document["error"].keys()
    assert reply.document["error"]["kind"] != "internal"
    assert "Traceback" not in json.dumps(reply.document)


def test_without_the_extra_the_install_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    reply = call("mcp")
    assert reply.code == 2
    assert 'pip install "whichgpu[mcp]"' in reply.err


@pytest.mark.skipif(find_spec("mcp") is None, reason="the mcp package is not installed")
def test_the_sdk_s_client_lists_and_calls_tools() -> None:
    import anyio
    from mcp import Client

    from whichgpu.surface.mcp.server import build_server

    async def talk() -> None:
        async with Client(build_server(ENGLISH)) as client:
            listed = await client.list_tools()
            assert tuple(tool.name for tool in listed.tools) == NAMES
            reply = await client.call_tool("gpus", {"name": "H100"})
            assert not reply.is_error
            wrong = await client.call_tool("fit", {"model": "no-such-model"})
            assert wrong.is_error
            assert "no-such-model" in json.dumps(wrong.structured_content)
            assert (await client.call_tool("dance", {})).is_error

    anyio.run(talk)
