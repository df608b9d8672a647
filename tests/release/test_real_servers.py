"""`measure --endpoint` against real servers on the CPU: those of llama.cpp and of transformers, with random weights."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.surface.cli import call

PROGRAM = Path(__file__).with_name("real_servers.py")
PACKAGES = {
    "llama.cpp": ("xllamacpp==2026.10.11549", "gguf==0.19.0", "numpy"),
    "transformers": ("transformers[serving]==5.19.0", "torch==2.13.0", "accelerate", "requests"),
}
START_SECONDS = 180  # Longest start of a server: imports on a slow machine (assumed).
TOKENS_IN, TOKENS_OUT = 64, 16
CLAIM = f"estimate serve llama-3.1-8b --gpu h200-sxm --seq-in {TOKENS_IN} --seq-out {TOKENS_OUT}"


@pytest.fixture(scope="module", params=PACKAGES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Name and address of a server that runs in an environment of its own."""
    folder = tmp_path_factory.mktemp("server")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=300)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES[request.param]]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        pytest.skip(f"no package index with {PACKAGES[request.param]}: {done.stderr.strip()[-200:]}")
    (folder / "model").mkdir()
    with running(python, request.param, folder) as url:
        yield request.param, url


@contextmanager
def running(python: Path, name: str, folder: Path) -> Iterator[str]:
    """Yield the address of a server once it lists its model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, log = f"http://127.0.0.1:{port}", folder / "log"
    words = [str(python), str(PROGRAM), name, str(folder / "model"), str(port)]
    with log.open("wb") as output, subprocess.Popen(words, stdout=output, stderr=output) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not answers(url):
                assert process.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.5)
            yield url
        finally:
            process.kill()


def answers(url: str) -> bool:
    """Whether a server lists its models."""
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.mark.long
def test_a_real_server_is_measured_beside_the_estimate(server: tuple[str, str]) -> None:
    name, url = server
    reply = call("measure", "--endpoint", url, "--concurrency", "1,2", "--verify", CLAIM, "--json")
    assert reply.code == 0, reply.err
    answer = reply.json()
    assert [level["measured"]["concurrency"] for level in answer["levels"]] == [1, 2]
    for level in answer["levels"]:
        measured = level["measured"]
        assert measured["tokens_in"] == pytest.approx(TOKENS_IN, abs=2)  # One more where the server adds a first token.
        assert 2 <= measured["tokens_out"] <= TOKENS_OUT
        assert 0 < measured["ttft"]["seconds"] < 60
        assert 0 < measured["tpot"]["seconds"] < 60
        assert level["tpot"]["low"] < level["tpot"]["value"] < level["tpot"]["high"]
        # No more tokens arrive in a second than requests at once get, each at its own pace.
        assert 0 < measured["throughput"] < 2 * measured["concurrency"] / measured["tpot"]["seconds"]
    if name == "llama.cpp":  # It takes token ids and forced lengths, and names itself.
        assert (measured["tokens_in"], measured["tokens_out"]) == (TOKENS_IN, TOKENS_OUT)
        assert answer["served"]["owner"] == "llamacpp"
    assert Path(answer["path"]).stem.rpartition("-")[2] in call("measure", "--records").out


@pytest.mark.long
def test_latencies_grow_with_the_prompt(server: tuple[str, str]) -> None:
    _, url = server
    claims = [f"estimate serve llama-3.1-8b --gpu h200-sxm --seq-in {length} --seq-out 4" for length in (16, 1500)]
    words = ("measure", "--endpoint", url, "--concurrency", "1", "--no-keep", "--json", "--verify")
    replies = [call(*words, claim) for claim in claims]
    short, long = (reply.json()["levels"][0]["measured"]["ttft"]["seconds"] for reply in replies)
    assert long > short
