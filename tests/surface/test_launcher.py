"""The launcher's environment: it recovers from any interruption, and never removes what it did not make."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def environment(venv: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    settings = os.environ | {"WHICHGPU_VENV": str(venv), "PIP_NO_INDEX": "1"} | variables
    return subprocess.run(
        [ROOT / "tools" / "environment", "run"],
        env=settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,  # a signal to the group of processes reaches no other
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell cannot trap what was ignored at its start
    )


# A Python whose `-m venv` writes the first parts of an environment and is then interrupted with all that runs for it, as Ctrl-C
# does; without INTERRUPT it makes the whole. Its pip installs nothing and succeeds.
FAKE_PYTHON = """#!/bin/sh
case "$*" in *"-m venv"*) ;; *) exit 0 ;; esac
for folder in "$@"; do :; done
echo "$folder" >> "$CALLS"
parts=${PARTS:-9}
[ "$parts" -ge 1 ] && mkdir -p "$folder/bin" && echo home >"$folder/pyvenv.cfg"
[ "$parts" -ge 2 ] && cp "$PIP" "$folder/bin/python"
[ -z "${INTERRUPT:-}" ] || { kill -"$INTERRUPT" 0; sleep 30; }
[ ! -e "$folder/left-over" ]
"""


# The environment's Python: its `pip install` leaves half a package behind if it is interrupted.
FAKE_PIP = """#!/bin/sh
case "$*" in *"pip install"*"$AT"*) ;; *) exit 0 ;; esac
[ -z "${INTERRUPT_PIP:-}" ] || { touch "$WHICHGPU_VENV/left-over"; kill -"$INTERRUPT_PIP" 0; sleep 30; }
"""


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    python = tmp_path / "python3"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    pip = tmp_path / "pip"
    pip.write_text(FAKE_PIP)
    pip.chmod(0o755)
    return {"PYTHON": str(python), "PIP": str(pip), "CALLS": str(tmp_path / "calls"), "AT": ""}


@pytest.mark.parametrize("parts", ["0", "1", "2"])
@pytest.mark.parametrize("stop", ["INT", "TERM", "KILL"])
def test_a_first_run_that_was_interrupted_is_made_good_by_the_next(
    tmp_path: Path, fake: dict[str, str], parts: str, stop: str
) -> None:
    venv = tmp_path / "venv"
    stopped = environment(venv, **fake, PARTS=parts, INTERRUPT=stop)
    assert stopped.returncode in ({"INT": (130, -2), "TERM": (143, -15), "KILL": (-9,)}[stop])
    assert "error" not in stopped.stderr
    assert not (venv / ".ready-run").exists()
    if (venv / "bin").exists():
        (venv / "left-over").touch()
    whole = environment(venv, **fake)
    assert (whole.returncode, "error" in whole.stderr) == (0, False), whole.stderr
    assert (venv / ".ready-run").exists()
    assert len((tmp_path / "calls").read_text().split()) == 2  # half an environment is not built upon


@pytest.mark.parametrize("at", ["--require-hashes", "--editable"])
@pytest.mark.parametrize("stop", ["INT", "TERM", "KILL"])
def test_packages_that_were_installed_half_are_installed_again(tmp_path: Path, fake: dict[str, str], at: str, stop: str) -> None:
    venv = tmp_path / "venv"
    stopped = environment(venv, **(fake | {"AT": at}), INTERRUPT_PIP=stop)
    assert stopped.returncode in ({"INT": (130, -2), "TERM": (143, -15), "KILL": (-9,)}[stop])
    assert (venv / "left-over").exists()
    whole = environment(venv, **fake)
    assert (whole.returncode, "error" in whole.stderr) == (0, False), whole.stderr
    assert not (venv / "left-over").exists()
    assert (venv / ".ready-run").exists()
    assert not (venv / ".making").exists()
    assert environment(venv, **fake).stderr == ""  # a complete environment is not made again


def test_foreign_environment_is_not_modified(tmp_path: Path, fake: dict[str, str]) -> None:
    venv = tmp_path / "mine"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text("#!/bin/sh\nexit 0\n")
    (venv / "bin" / "python").chmod(0o755)
    assert environment(venv, **fake).returncode == 0
    assert not (venv / ".whichgpu").exists()
    (venv / "bin" / "python").unlink()  # it breaks, and with it the stamp of being ready counts for nothing
    result = environment(venv, **fake)
    assert result.returncode == 3
    assert "was not made by whichgpu" in result.stderr
    assert (venv / "bin").is_dir()


def test_foreign_folder_is_not_modified(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    result = environment(tmp_path / "mine")
    assert result.returncode == 3
    assert "was not made by whichgpu" in result.stderr
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert environment(tmp_path / "file").returncode == 3
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize(
    ("stderr", "hint"),
    [
        ("ERROR: No matching distribution found for numpy==2.9", "constraints.txt pins"),
        ("Failed to establish a new connection\nERROR: No matching distribution found for numpy==2.9", "needs a package index"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: something else", "pip says above"),
    ],
)
def test_hint_quotes_the_pip_error(tmp_path: Path, stderr: str, hint: str) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".whichgpu").touch()
    (tmp_path / "said").write_text(stderr)
    pip = venv / "bin" / "python"
    pip.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exit 0 ;; esac\ncat {tmp_path}/said >&2\nexit 1\n')
    pip.chmod(0o755)
    result = environment(venv)
    assert result.returncode == 3
    assert stderr in result.stderr
    assert hint in result.stderr.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    result = environment(tmp_path / "venv")
    assert result.returncode == 3
    assert "cannot be written" in result.stderr
