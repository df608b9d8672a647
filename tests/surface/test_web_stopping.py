"""A server that is stopped while it starts ends at once and quietly, with the exit code of the signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
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
