"""A server that is stopped, while it starts or at any later moment, ends soon and quietly, with the exit code of the signal."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from http.client import HTTPException
from pathlib import Path
from threading import Thread, current_thread
from typing import Any
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MOMENTS, MAX_MOMENT_SECONDS = 20, 12.0  # Random moments after the start at which a server is terminated.
STOP_SECONDS = 5.0  # Seconds within which it ends.
STOPPING = Path(__file__).with_name("web_stopping.py")


@pytest.mark.parametrize("worker", ["ready", "never"])
@pytest.mark.parametrize(("sent", "code"), [("SIGTERM", -signal.SIGTERM), ("SIGINT", 130)])
def test_a_signal_while_starting_ends_it_quietly(tmp_path: Path, sent: str, code: int, worker: str) -> None:
    pytest.importorskip("starlette", reason="the page needs the web extra")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WHICHGPU_")}
    environ |= {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("DATA", "CONFIG")}
    environ |= {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))), "STOP_SIGNAL": sent, "STOP_WORKER": worker}
    ended = subprocess.run(
        [sys.executable, str(STOPPING), "web", "--port", "0", "--workers", "2"],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        start_new_session=True,  # the signal reaches the group of the server alone
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")


def test_an_interruption_before_the_first_words_are_read_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    from whichgpu.__main__ import main
    from whichgpu.surface.cli import main as module

    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "main", interrupted)
    assert main() == 130


@pytest.mark.long
def test_a_termination_at_any_moment_ends_it_quietly_within_seconds(tmp_path: Path) -> None:
    chance = random.Random(32)
    moments = [chance.uniform(0.0, MAX_MOMENT_SECONDS) for _ in range(MOMENTS)]
    problems = []
    for moment in moments:
        words = [sys.executable, "-m", "whichgpu", "web", "--port", "0", "--workers", "2"]
        variables = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
        with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=variables, text=True) as server:
            asking = Thread(target=_ask, args=(server,), daemon=True)
            asking.start()
            time.sleep(moment)
            server.terminate()
            start = time.monotonic()
            try:
                code = server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                code = None
            seconds = time.monotonic() - start
            asking.join(10)
            printed = "".join(getattr(asking, "lines", []))
        if code not in (0, -signal.SIGTERM) or seconds > STOP_SECONDS or "Traceback" in printed:
            problems.append((round(moment, 2), code, round(seconds, 1), printed[-500:]))
    assert problems == []


def _ask(server: subprocess.Popen[str]) -> None:
    """Read what a server prints, and ask it one costly question as soon as it listens."""
    thread: Any = current_thread()
    thread.lines = []
    assert server.stderr is not None
    for line in server.stderr:
        thread.lines.append(line)
        if match := re.search(r"http://[0-9.]+:\d+", line):
            Thread(target=_fetch, args=(f"{match[0]}/plan?rate=7/s",), daemon=True).start()


def _fetch(url: str) -> None:
    with contextlib.suppress(OSError, HTTPException), urlopen(url, timeout=60):
        pass
