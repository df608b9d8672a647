"""One sweep of plans gives one table: in process, on two processes, on a Ray of its own, and on a cluster that is there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.parallel.ray_cluster import check_ray

RAY = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (pip install 'whichgpu[plan-ray]')")
ASKED = "plan llama-3.1-8b --trace requests.csv --rate 5/s --gpu L4,A10G,L40S --no-simulate --as-of 2026-10-01 --json".split()
SWEEP = "rate=2/s,5/s,20/s"
SOURCE = str(Path(sys.modules["whichgpu"].__file__ or "").parents[1])
START = "from ray.scripts.scripts import main; main()"


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose home has a token of Ray's, as a cluster once started for a run leaves it."""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0" * 64)
    rows = "".join(f"{at},{100 + at % 7 * 90},{50 + at % 5 * 60}\n" for at in range(200))
    (tmp_path / "requests.csv").write_text("time,prompt,output\n" + rows)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**environment, "HOME": str(tmp_path), "PYTHONPATH": SOURCE}


def curve(home: dict[str, str], *more: str, sweep: str = SWEEP) -> Any:
    """The sweep's table from a separate process, without any cache of another run."""
    import json

    folder = Path(home["HOME"])
    environment = {**home, "XDG_CACHE_HOME": str(folder / f"cache{len(list(folder.iterdir()))}")}
    command = [sys.executable, "-m", "whichgpu", *ASKED, "--sweep", sweep, *more]
    run = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)["curve"]


@pytest.fixture
def head(home: dict[str, str]) -> Iterator[str]:
    """A cluster started by another user on this machine, in its own folder; it requires the token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = Path("/tmp") / f"ray-{os.getpid()}"  # its sockets' names may not be long
    started = f"start --head --port {port} --node-ip-address 127.0.0.1 --num-cpus 2 --include-dashboard false --block"
    command = [sys.executable, "-c", START, *started.split(), "--temp-dir", str(folder)]
    elsewhere = {**home, "PYTHONPATH": ""}
    log = Path(home["HOME"]) / "ray.log"
    with log.open("w") as file:
        run = subprocess.Popen(command, env=elsewhere, cwd="/", stdout=file, stderr=file, start_new_session=True)
    try:
        end = time.monotonic() + 120
        while "runtime started" not in log.read_text() and time.monotonic() < end:
            assert run.poll() is None, log.read_text()
            time.sleep(0.5)
        yield f"127.0.0.1:{port}"
    finally:
        run.send_signal(signal.SIGTERM)  # which ends what it started
        run.wait(60)
        subprocess.run(["rm", "-rf", str(folder)], check=False)


@RAY
@pytest.mark.long
def test_sweep_gives_the_same_table_locally_and_on_a_cluster(home: dict[str, str], head: str) -> None:
    here = curve(home)
    assert [one["value"] for one in here] == [2.0, 5.0, 20.0]
    assert all(one["cost_per_hour"] for one in here)
    assert curve(home, "--jobs", "2") == here
    assert curve(home, "--ray", "local") == here
    assert curve(home, "--ray", head) == here


@RAY
@pytest.mark.long
def test_a_hundred_scenarios_give_the_same_plans_on_ray(home: dict[str, str]) -> None:
    rates = "rate=" + ",".join(f"{rate / 2:g}/s" for rate in range(1, 101))
    here = curve(home, sweep=rates)
    assert len(here) == 100
    assert all(one["cost_per_hour"] for one in here)
    assert curve(home, "--jobs", "2", sweep=rates) == here
    assert curve(home, "--ray", "local", sweep=rates) == here


@RAY
def test_unreachable_cluster_address_is_refused_at_once() -> None:
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))  # bound, but not listening
        with pytest.raises(NoAnswer, match="no Ray cluster responds"):
            check_ray(f"127.0.0.1:{connection.getsockname()[1]}")


@pytest.mark.parametrize("port", ["99999", "0", "\u00b2", "9" * 5000])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(UsageError, match="wants auto, local or an address"):
        check_ray("127.0.0.1:" + port)
