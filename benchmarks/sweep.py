"""Time of sweeps of 100 scenarios of `plan`: in this process, in a process pool, and on Ray (extra `plan-ray`).

    python -m benchmarks.sweep [WORKERS]

One question has 39 buckets of lengths, so that a scenario takes about half a second; of the other, with one bucket, it takes
some hundredths, and the start of other processes may take longer than they save. Each run is a command
of its own with no cache of another; all must give the same costs. Ray's time includes the start of its cluster. Wall time
depends on the cores that are free, so the processor seconds of this process and its children are printed too (Ray's workers
are not among them).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

QUESTIONS = {
    "drawn lengths": "plan llama-3.1-70b --in 1155 --in-spread 0.8 --out 211 --out-spread 0.8 --ttft 1s --tpot 50ms",
    "one length": "plan llama-3.1-8b --in 1000 --out 250 --ttft 1s --tpot 50ms --gpu L4,A10G,L40S,A100,H100",
}
MUST_GAIN = next(iter(QUESTIONS))  # Of this question several processes must be faster than one.
SETTINGS = "--no-simulate --as-of 2026-10-01 --json --rate 5/s"
SCENARIOS = 100
SOURCE = Path(__file__).resolve().parents[1] / "src"


def sweep(question: str, *flags: str) -> tuple[float, float, list[Any]]:
    """Return wall seconds, processor seconds and the costs of all scenarios of one run with these flags."""
    rates = "rate=" + ",".join(f"{rate / 2:g}/s" for rate in range(1, SCENARIOS + 1))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_CACHE_HOME": folder, "HOME": folder}
        command = [sys.executable, "-m", "whichgpu", *question.split(), *SETTINGS.split(), "--sweep", rates, *flags]
        start, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return seconds, processor, json.loads(run.stdout)["curve"]


def main(workers: int) -> int:
    """Print each run's seconds; return 1 if costs differ, or if several processes are not faster where they must be."""
    places = {"one process": (), f"{workers} processes": ("--jobs", str(workers))}
    if find_spec("ray") is not None:
        places["Ray on this machine"] = ("--ray", "local")
    good = True
    for title, question in QUESTIONS.items():
        seconds, curves = {}, {}
        for name, flags in places.items():
            seconds[name], processor, curves[name] = sweep(question, *flags)
            print(f"{title}\t{name}\t{seconds[name]:.1f} s\t{processor:.1f} processor s", flush=True)
        first = next(iter(places))
        same = all(one == curves[first] for one in curves.values())
        faster = all(seconds[name] < seconds[first] for name in places if name != first)
        print(title, "the same costs" if same else "the costs differ", "faster" if faster else "not faster", sep=", ")
        good &= same and (faster or title != MUST_GAIN)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else os.cpu_count() or 1))
