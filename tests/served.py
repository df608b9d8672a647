"""A small OpenAI-compatible server for tests: streams completions at a given pace from a thread of this process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import msgspec


class ServerPlan(msgspec.Struct):
    """How a test's server behaves, and what it received."""

    ttft: float = 0.004  # seconds before the first token
    tpot: float = 0.002  # seconds between tokens
    model: str = "meta-llama/Llama-3.1-8B"
    owner: str = "vllm"
    takes_ids: bool = True
    chat_only: bool = False
    is_strict: bool = False  # refuses fields that the API does not have
    hangs_up: bool = False  # closes the connection after each answer without a word
    status: int = 200  # status of every completion
    garbage: bytes = b""  # sent instead of events
    max_tokens: int = 10**6
    bodies: list[dict[str, Any]] = []
    keys: list[str | None] = []


@contextmanager
def serving(plan: ServerPlan) -> Iterator[str]:
    """Yield the URL of a server that follows a plan."""
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def reply(self, status: int, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self.reply(200, {"data": [{"id": plan.model, "owned_by": plan.owner, "max_model_len": 4096}]})
            elif self.path == "/version":
                self.reply(200, {"version": "0.26.0"})
            else:
                self.reply(404, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                plan.bodies.append(body)
                plan.keys.append(self.headers.get("Authorization"))
            is_chat = self.path.endswith("/chat/completions")
            if plan.status != 200:
                self.reply(plan.status, {"error": {"message": "overloaded"}})
            elif plan.chat_only and not is_chat:
                self.reply(404, {})
            elif plan.is_strict and "ignore_eos" in body:
                self.reply(422, {"detail": "unexpected field ignore_eos"})
            elif isinstance(body.get("prompt"), list) and not plan.takes_ids:
                self.reply(400, {"error": {"message": "prompt must be a string"}})
            else:
                self.stream(body, is_chat)
                self.close_connection = plan.hangs_up

        def stream(self, body: dict[str, Any], is_chat: bool) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if plan.garbage:
                self.chunk(plan.garbage)
                self.chunk(b"")
                return
            count = min(body["max_tokens"], plan.max_tokens)
            if is_chat:
                self.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
            time.sleep(plan.ttft)
            for place in range(count):
                if place:
                    time.sleep(plan.tpot)
                self.event({"choices": [{"delta": {"content": "x"}} if is_chat else {"text": "x", "finish_reason": None}]})
            prompt = body.get("prompt") or body["messages"][0]["content"]
            tokens = len(prompt) if isinstance(prompt, list) else len(prompt.split())
            self.event({"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": count}})
            self.chunk(b"data: [DONE]\n\n")
            self.chunk(b"")

        def event(self, document: Any) -> None:
            self.chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

        def chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
