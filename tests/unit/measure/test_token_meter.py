"""Tokens of a running engine: added up between readings and over restarts; a server without the counters is an error."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.measure.endpoint.address import Address, parse_address
from whichgpu.measure.endpoint.token_meter import EngineTokens, TokenMeter

VLLM = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="a"}} {0}
vllm:prompt_tokens_total{{engine="1",model_name="a"}} 10.0
vllm:generation_tokens_total{{engine="0",model_name="a"}} {1}
vllm:request_prompt_tokens_sum{{engine="0",model_name="a"}} 5.0
"""
SGLANG = 'sglang:prompt_tokens_total{{model_name="a"}} {0}\nsglang:generation_tokens_total{{model_name="a"}} {1}\n'


class Engine(ThreadingHTTPServer):
    """A server whose metrics a test sets; None closes the connection without an answer."""

    metrics: str | None = ""

    @property
    def address(self) -> Address:
        return parse_address(f"http://127.0.0.1:{self.server_address[1]}")


class Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        if self.server.metrics is None:
            return
        is_metrics = self.path == "/metrics"
        self.send_response(200 if is_metrics else 404)
        self.end_headers()
        self.wfile.write(self.server.metrics.encode() if is_metrics else b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(("text", "name"), [(VLLM, "vllm"), (SGLANG, "sglang")])
def test_tokens_since_the_start_are_added_up_over_restarts_and_silence(engine: Engine, text: str, name: str) -> None:
    engine.metrics = text.format(1000, 200)
    meter = TokenMeter(engine.address)
    assert meter.read() == EngineTokens(name, 0.0, 0.0, True)
    engine.metrics = text.format(1500, 260)
    assert meter.read() == EngineTokens(name, 500.0, 60.0, True)
    engine.metrics = None
    assert meter.read() == EngineTokens(name, 500.0, 60.0, False)
    engine.metrics = text.format(20, 5)  # restarted
    restarted = meter.read()
    assert (restarted.output_tokens, restarted.is_answering) == (65.0, True)
    assert restarted.input_tokens == 500 + (30 if name == "vllm" else 20)


@pytest.mark.parametrize(
    "text",
    ["", "up 1\n", "vllm:prompt_tokens_total 3\n", "vllm:prompts 3\nvllm:generation_tokens 4\n", "<html>\n", "a b c d e\n"],
)
def test_a_server_without_the_counters_is_an_error_that_names_them(engine: Engine, text: str) -> None:
    engine.metrics = text
    with pytest.raises(UsageError):
        TokenMeter(engine.address)


def test_a_server_that_does_not_answer_is_an_error(engine: Engine) -> None:
    engine.metrics = None
    with pytest.raises(NoAnswer):
        TokenMeter(engine.address)
    with pytest.raises(NoAnswer):
        TokenMeter(parse_address(f"{engine.address.url}/other"))
