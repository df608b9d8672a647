"""`measure --endpoint` from outside, against a server that streams at a known pace."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.served import ServerPlan, serving
from tests.surface.cli import assert_refused, assert_refused_json, call
from whichgpu.api.measure import endpoint
from whichgpu.base.errors import NoAnswer

CLAIM = "estimate serve llama-3.1-8b --gpu h200-sxm --engine vllm --seq-in 64 --seq-out 24"


def test_latencies_and_throughput_are_measured_beside_the_estimate(tmp_path: Path) -> None:
    plan = ServerPlan(ttft=0.02, tpot=0.005)
    with serving(plan) as url:
        reply = call("measure", "--endpoint", url, "--concurrency", "1,3", "--verify", CLAIM, "--json")
    answer = json.loads(reply.out)
    assert reply.code == 0, reply.err
    assert answer["served"] == {"id": plan.model, "owner": "vllm", "version": "0.26.0", "max_tokens": 4096}
    assert [level["measured"]["concurrency"] for level in answer["levels"]] == [1, 3]
    for level in answer["levels"]:
        measured = level["measured"]
        assert (measured["tokens_in"], measured["tokens_out"]) == (64, 24)
        assert 0.01 < measured["ttft"]["seconds"] < 0.2
        assert 0.002 < measured["tpot"]["seconds"] < 0.05
        assert 20 * measured["concurrency"] < measured["throughput"] < 1.5 * measured["concurrency"] * 24 / (0.02 + 23 * 0.005)
        assert level["tpot"]["low"] < level["tpot"]["value"] < level["tpot"]["high"]
    assert answer["levels"][1]["tpot"]["value"] > 0
    assert len(plan.bodies) == answer["budget"]["requests"] == 1 + 4 * 4
    assert all(body["stream"] and body["max_tokens"] <= 24 and len(body["prompt"]) == 64 for body in plan.bodies)
    [path] = (tmp_path / "data" / "whichgpu" / "records" / "own").glob("*.json")
    record = json.loads(path.read_text())
    assert answer["path"] == str(path)
    assert record["where"] == {"gpu": "h200-sxm", "gpus": 1, "driver": None, "cpu": None,
                               "software": {"server": "vllm", "version": "0.26.0"}}  # fmt: skip
    assert [step["request"]["batch"] for step in record["steps"]] == [1, 3]
    assert all(step["request"]["engine"] == "vllm" and 0.001 < step["seconds"] < 0.05 for step in record["steps"])
    assert "127.0.0.1" not in path.read_text()


def test_text_has_verdicts_and_no_keep_stores_nothing(tmp_path: Path) -> None:
    with serving(ServerPlan(takes_ids=False, max_tokens=12)) as url:
        reply = call("measure", "--endpoint", url, "--concurrency", "2", "--verify", CLAIM, "--no-keep")
    assert reply.code == 0, reply.err
    rows = reply.tsv()
    assert rows[0][0] == "requests at once"
    assert [row[:2] for row in rows[1:]] == [
        ["2", name] for name in ("time to first token", "time per output token", "throughput")
    ]
    assert {row[5] for row in rows[1:]} <= {"inside", "OUTSIDE"}
    assert "at most 9 requests, 576 input tokens, 216 output tokens" in reply.err
    assert "prompts were text of about 64 tokens" in reply.err
    assert "12 output tokens instead of 24" in reply.err
    assert not (tmp_path / "data").exists()


def test_a_chat_only_server_of_an_unknown_model_is_measured_without_an_estimate() -> None:
    with serving(ServerPlan(chat_only=True, model="my/own-model", owner="me")) as url:
        reply = call("measure", "--endpoint", url + "/v1", "--concurrency", "1")
    assert reply.code == 0, reply.err
    assert "no estimate beside it" in reply.err
    assert [row[4:] for row in reply.tsv()[1:]] == [["", ""]] * 3


@pytest.mark.parametrize("plan", [ServerPlan(is_strict=True), ServerPlan(hangs_up=True)])
def test_strict_servers_and_those_that_hang_up_are_measured(plan: ServerPlan) -> None:
    with serving(plan) as url:
        reply = call("measure", "--endpoint", url, "--concurrency", "1", "--verify", CLAIM, "--no-keep", "--json")
    assert reply.code == 0, reply.err
    answer = reply.json()
    assert answer["levels"][0]["measured"]["tokens_out"] == 24
    assert len([body for body in plan.bodies if "ignore_eos" not in body]) == (5 if plan.is_strict else 0)
    prompts = [tuple(body["prompt"]) for body in plan.bodies if body["max_tokens"] > 2]
    assert len(set(prompts)) == len(prompts)


def test_another_machine_is_loaded_only_with_yes_and_a_budget() -> None:
    refused = assert_refused_json(call("measure", "--endpoint", "https://example.invalid", "--json"), 2)
    assert refused["kind"] == "not-confirmed"
    assert "85 requests with 43,520 input tokens" in refused["message"]
    assert "--yes" in refused["hint"]


def test_the_key_comes_from_the_environment_and_is_sent_in_the_clear_to_this_machine_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WHICHGPU_ENDPOINT_KEY", "secret-7")
    plan = ServerPlan()
    with serving(plan) as url:
        reply = call("measure", "--endpoint", url, "--concurrency", "1", "--verify", CLAIM, "--json")
    assert set(plan.keys) == {"Bearer secret-7"}
    stored = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "secret-7" not in reply.out + reply.err + stored
    refused = assert_refused_json(call("measure", "--endpoint", "http://example.invalid", "--yes", "--json"), 2)
    assert refused["kind"] == "key-in-clear"


HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
MODELS = b'HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{"data":[{"id":"llama"}]}'


@contextmanager
def slow_server(first: bytes, drip: bytes) -> Iterator[str]:
    """Serve every connection with `first`, then with the bytes of `drip` one by one for ever; with neither it stays silent."""
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(first)
            for byte in itertools.cycle(drip) if drip else ():
                if ended.wait(0.02):
                    return
                connection.sendall(bytes([byte]))
            ended.wait()

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("first", "drip"),
    [(b"", b""), (b"", b"X"), (HEADERS, b" "), (MODELS, b"HTTP/1.1 200 OK"), (HEADERS, b"data: {}\n\n")],
    ids=["silent", "dripping headers", "dripping body", "a list of models, then dripping", "an endless stream"],
)
def test_a_server_that_never_ends_its_answer_is_left_at_the_time_limit(
    first: bytes, drip: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "GRACE_SECONDS", 0.1)
    with slow_server(first, drip) as url, pytest.raises(NoAnswer) as failed:
        endpoint.measure_endpoint(endpoint.EndpointQuestion(url, (2,), seconds=0.2))
    assert failed.value.kind == "endpoint-failed"


@pytest.mark.parametrize("plan", [ServerPlan(status=503), ServerPlan(garbage=b"data: {\n\n\x00\xff"), ServerPlan(status=400)])
def test_a_server_that_fails_is_an_error_with_the_reason(plan: ServerPlan) -> None:
    with serving(plan) as url:
        refused = assert_refused_json(call("measure", "--endpoint", url, "--concurrency", "2", "--json"), 1)
    assert refused["kind"] == "endpoint-failed"
    assert url in refused["message"]


@pytest.mark.parametrize(
    "argv",
    [
        ("--endpoint", "ftp://127.0.0.1"),
        ("--endpoint", "http://user:pw@127.0.0.1"),
        ("--endpoint", "http://127.0.0.1:99999"),
        ("--endpoint", "http://[::1"),
        ("--endpoint", ""),
        ("--endpoint", "http://127.0.0.1:9", "--concurrency", "0"),
        ("--endpoint", "http://127.0.0.1:9", "--concurrency", "1,1025"),
        ("--endpoint", "http://127.0.0.1:9", "--concurrency", "1,2,3,4,5,6,7,8,9"),
        ("--endpoint", "http://127.0.0.1:9", "--verify", "estimate train gpt2"),
        ("--endpoint", "http://127.0.0.1:9", "--share", "x.json"),
        ("--concurrency", "4"),
        ("--yes",),
    ],
)
def test_wrong_requests_are_refused(argv: tuple[str, ...]) -> None:
    assert_refused(call("measure", *argv), 2)


def test_no_server_at_the_address_is_an_error() -> None:
    assert assert_refused_json(call("measure", "--endpoint", "http://127.0.0.1:9", "--json"), 1)["kind"] == "endpoint-failed"
