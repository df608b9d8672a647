"""`watch` as a process and on a terminal: ended by signals, with a closed pipe, redrawn, with keyboard input."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surface.cli import ROOT
from tests.surface.metered import fake, variables


def started(*argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        fake("H200", "watch", *argv), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables(), cwd=ROOT
    )


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ending_it_gives_a_summary(sent: signal.Signals) -> None:
    with started("--every", "0.2s", "--price", "2usd/h") as child:
        assert child.stdout is not None
        for _ in range(3):
            child.stdout.readline()
        child.send_signal(sent)
        err = child.communicate(timeout=30)[1]
    assert child.returncode == 0
    assert "USD, of it" in err
    assert "Traceback" not in err


def test_interrupt_during_a_countdown_runs_no_command(tmp_path: Path) -> None:
    path = tmp_path / "ran"
    with started("--every", "0.2s", "--idle", "1s", "--countdown", "60s", "--then", f"touch '{path}'", "--json") as child:
        assert child.stdout is not None
        for line in child.stdout:
            if json.loads(line)["countdown_seconds"] is not None:
                break
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=30)
    assert child.returncode == 0
    assert not path.exists()


def test_closed_pipe_ends_watch_quietly() -> None:
    line = f"'{sys.executable}' -m tests.fake_gpus H200 watch --every 0.2s | head -2"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=variables(), cwd=ROOT, timeout=60, check=False
    )
    assert len(done.stdout.splitlines()) == 2
    assert "Traceback" not in done.stderr


def on_terminal(*argv: str, typed: bytes = b"", until: str = "", names: str = "H200,T4_HOT", **changes: str) -> str:
    """What a terminal shows, with something typed into it once it shows `until`."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        fake(names, "watch", *argv),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=variables(**({"TERM": "xterm", "COLUMNS": "100"} | changes)),
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: _own_terminal(follower),
    ) as child:
        os.close(follower)
        screen = b""
        while True:
            try:
                screen += os.read(leader, 65536)
            except OSError:
                break
            if typed and until.encode() in screen:
                os.write(leader, typed)
                typed = b""
        child.wait(timeout=30)
    os.close(leader)
    return screen.decode()


def _own_terminal(descriptor: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


def test_on_a_terminal_a_block_is_drawn_over() -> None:
    screen = on_terminal("--every", "0.3s", "--for", "1s", "--price", "2usd/h")
    assert "H200 SXM" in screen
    assert "\x1b[4F\x1b[J" in screen
    assert "idle" in screen
    assert "Traceback" not in screen
    assert max(len(line) for line in re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", screen).splitlines()) <= 110


@pytest.mark.long
def test_on_a_terminal_a_verdict_is_wrapped_not_cut_and_the_block_never_taller_than_the_screen() -> None:
    screen = on_terminal("--every", "0.2s", "--for", "1.2s", "--explain", names="RTX_3060_X4", COLUMNS="60", LINES="24")
    last = re.sub(r"\s+", " ", screen.rpartition("\x1b[J")[2])
    assert "look at doctor for a link narrower than it could be." in last
    small = on_terminal("--every", "0.2s", "--for", "1.2s", "--explain", names="RTX_3060_X4", COLUMNS="40", LINES="6")
    assert set(re.findall(r"\x1b\[(\d+)F", small)) <= {"1", "2", "3", "4", "5"}


def test_on_a_terminal_the_line_is_drawn_over() -> None:
    screen = on_terminal("--every", "0.3s", "--for", "1s", "--line")
    assert screen.count("\r2 GPUs") >= 3


@pytest.mark.long
def test_enter_key_is_read_on_a_real_terminal(tmp_path: Path) -> None:
    path = tmp_path / "ran"
    argv = ["--every", "0.2s", "--idle", "1s", "--countdown", "30s", "--then", f"touch '{path}'", "--for", "4s"]
    screen = on_terminal(*argv, typed=b"\n", until="the command runs in", names="H200")
    assert "Stopped: the command is not run" in screen
    assert not path.exists()


def test_a_dumb_terminal_gets_rows() -> None:
    screen = on_terminal("--every", "0.3s", "--for", "1s", TERM="dumb")
    assert "\x1b" not in screen
