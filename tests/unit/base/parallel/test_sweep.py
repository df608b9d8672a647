"""One function over many items, the same wherever it runs, and nothing finished is lost or done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from whichgpu.base.disk_cache import ResultCache, content_hash
from whichgpu.base.errors import DataError, NoAnswer, UsageError
from whichgpu.base.parallel.sweep import Progress, SweepInterrupted, item_seed, run_sweep

CALLS: list[object] = []


@dataclass(frozen=True)
class Case:
    name: str
    size: int


@dataclass(frozen=True)
class Draw:
    name: str
    mean: float


def draw_mean(case: Case, seed: int) -> Draw:
    CALLS.append(case)
    return Draw(case.name, float(np.random.default_rng(seed).normal(size=case.size).mean()))


def stopped(case: Case, seed: int) -> Draw:
    if case.name == "2":
        raise KeyboardInterrupt
    return draw_mean(case, seed)


def failing(case: Case, seed: int) -> Draw:
    if case.name == "2":
        raise ArithmeticError("no such thing")
    return draw_mean(case, seed)


def dying(case: Case, seed: int) -> Draw:
    if case.name == "2":
        os._exit(9)
    return draw_mean(case, seed)


def unhurried(case: Case, seed: int) -> Draw:
    time.sleep(float(os.environ.get("UNHURRIED", "0")))
    return draw_mean(case, seed)


CASES = [Case(str(number), 10 + number) for number in range(6)]


def keeping(folder: Path) -> ResultCache:
    return ResultCache(folder, Draw)


def test_parallel_results_equal_serial_results() -> None:
    assert run_sweep(draw_mean, CASES, jobs=2, seed=3) == run_sweep(draw_mean, CASES, seed=3)
    assert run_sweep(draw_mean, CASES, seed=3) != run_sweep(draw_mean, CASES, seed=4)


def test_seed_of_an_item_does_not_depend_on_other_items() -> None:
    whole = run_sweep(draw_mean, CASES)
    assert run_sweep(draw_mean, CASES[3:]) == whole[3:]
    assert run_sweep(draw_mean, CASES[::-1]) == whole[::-1]
    assert len({item_seed(0, case) for case in CASES}) == len(CASES)


def test_finished_items_are_not_repeated(tmp_path: Path) -> None:
    first = run_sweep(draw_mean, CASES[:4], keep=keeping(tmp_path))
    CALLS.clear()
    progress: list[Progress] = []
    whole = run_sweep(draw_mean, CASES, keep=keeping(tmp_path), progress=progress.append)
    assert CASES[4:] == CALLS
    assert whole[:4] == first
    assert whole == run_sweep(draw_mean, CASES)
    assert [(one.done, one.total, one.cached) for one in progress] == [(4, 6, 4), (5, 6, 4), (6, 6, 4)]


def test_another_seed_stamp_or_function_is_another_result(tmp_path: Path) -> None:
    run_sweep(draw_mean, CASES, keep=keeping(tmp_path))
    CALLS.clear()
    run_sweep(draw_mean, CASES[:1], keep=keeping(tmp_path), seed=1)
    run_sweep(draw_mean, CASES[:1], keep=ResultCache(tmp_path, Draw, "other data"))
    run_sweep(failing, CASES[:1], keep=keeping(tmp_path))
    assert len(CALLS) == 3


def test_ctrl_c_keeps_finished_items(tmp_path: Path) -> None:
    with pytest.raises(SweepInterrupted) as caught:
        run_sweep(stopped, CASES, keep=keeping(tmp_path))
    assert sorted(caught.value.finished) == [0, 1]
    assert caught.value.total == len(CASES)
    keep = keeping(tmp_path)
    name = f"{stopped.__module__}.stopped"
    assert [keep.read(keep.name(name, case, item_seed(0, case)))[0] for case in CASES] == [True, True, *[False] * 4]


def test_error_of_an_item_is_raised_unchanged_and_keeps_finished_results(tmp_path: Path) -> None:
    for jobs in (1, 2):
        with pytest.raises(ArithmeticError, match="no such thing"):
            run_sweep(failing, CASES, keep=keeping(tmp_path / str(jobs)), jobs=jobs)
    CALLS.clear()
    with pytest.raises(ArithmeticError):
        run_sweep(failing, CASES, keep=keeping(tmp_path / "1"))
    assert CALLS == []


def test_killed_worker_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="was killed"):
        run_sweep(dying, CASES, keep=keeping(tmp_path), jobs=2)


def test_damaged_file_is_set_aside_and_recomputed(tmp_path: Path) -> None:
    whole = run_sweep(draw_mean, CASES, keep=keeping(tmp_path))
    files = sorted(tmp_path.rglob("*.json"))
    files[0].write_bytes(files[0].read_bytes()[:-4])
    files[1].write_bytes(b"\xff\x00")
    files[2].write_text(files[3].read_text())  # a sound file under another's name
    CALLS.clear()
    assert run_sweep(draw_mean, CASES, keep=keeping(tmp_path)) == whole
    assert len(CALLS) == 3
    assert len(list(tmp_path.rglob("*.damaged"))) == 3
    assert not list(tmp_path.rglob(".*"))


def test_result_changed_by_serialisation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="come back"):
        ResultCache(tmp_path, Draw).write(content_hash(1), Draw("a", float("nan")))


def test_remaining_seconds_follow_this_run_s_pace() -> None:
    times = iter(range(0, 100, 2))
    progress: list[Progress] = []
    run_sweep(draw_mean, CASES[:3], progress=progress.append, clock=lambda: float(next(times)))
    assert [one.seconds_left for one in progress] == [None, 4.0, 2.0, 0.0]


def test_no_items_and_no_processes() -> None:
    assert run_sweep(draw_mean, []) == []
    with pytest.raises(UsageError, match="at least one"):
        run_sweep(draw_mean, CASES, jobs=0)


def test_without_ray_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="not installed"):
        run_sweep(draw_mean, CASES, ray="local")


def test_unwritable_folder_raises_an_error(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        (tmp_path / "file").write_text("")
        folder = tmp_path / "file"
    else:
        folder = tmp_path / "shut"
        folder.mkdir(mode=0o500)
    with pytest.raises(DataError, match="cannot be stored"):
        run_sweep(draw_mean, CASES, keep=keeping(folder))


STOPPABLE = """
from pathlib import Path
from test_sweep import CASES, SweepInterrupted, keeping, run_sweep, unhurried
if __name__ == "__main__":
    try:
        run_sweep(unhurried, CASES, jobs=2, keep=keeping(Path({folder!r})), progress=lambda told: print(told.done, flush=True))
    except SweepInterrupted as stopped:
        print("stopped", len(stopped.finished), flush=True)
"""


def test_ctrl_c_during_parallel_work_keeps_finished_items_and_resumes(tmp_path: Path) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(STOPPABLE.format(folder=str(tmp_path / "kept")))
    source = Path(sys.modules["whichgpu"].__file__ or "").parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(Path(__file__).parent))), "UNHURRIED": "1"}
    run = subprocess.Popen(
        [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert run.stdout is not None
    while (line := run.stdout.readline()) and line.strip() != "2":
        pass
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all of them
    rest = run.communicate(timeout=60)[0]
    assert run.returncode == 0
    finished = int(rest.rpartition("stopped")[2])
    assert 2 <= finished < len(CASES)
    assert len(list((tmp_path / "kept").rglob("*.json"))) == finished
    progress: list[Progress] = []
    whole = run_sweep(unhurried, CASES, keep=keeping(tmp_path / "kept"), progress=progress.append)
    assert progress[0].done == finished
    assert whole == run_sweep(draw_mean, CASES)
