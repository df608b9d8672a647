"""Start-up and catalog: help, import, a cold answer, the tables, and the cost of the launcher."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPILED = Path(tempfile.gettempdir()) / f"whichgpu-benchmarks-{os.getuid()}"
RUNS = 9


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds of repeated runs against a goal."""

    name: str
    median: float
    best: float
    goal: float
    unit: str = "ms"  # unit of a thousandth of the value


def timed(name: str, goal: float, action: Callable[[], object], runs: int = RUNS) -> Result:
    """Median and best seconds of several runs after a warm-up run."""
    action()
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return Result(name, statistics.median(seconds), min(seconds), goal)


def table(results: Iterable[Result]) -> int:
    """Print results as they come; exit status 1 if a goal is missed."""
    missed = 0
    print("\t".join(("benchmark", "median", "best", "goal", "met")))
    for result in results:
        met = result.median <= result.goal
        missed += not met
        cells = (f"{value * 1000:.3g} {result.unit}" for value in (result.median, result.best, result.goal))
        print("\t".join((result.name, *cells, "yes" if met else "NO")), flush=True)
    return 1 if missed else 0


def process(*argv: str, **variables: str) -> Callable[[], object]:
    """Function that runs a command of this checkout in a new process, with modules compiled as in an installation."""
    rest = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # The process starts in another folder, so a relative search path would let it import another copy of the package.
    environment = {**rest, "PYTHONPATH": str(ROOT / "src"), "PYTHONPYCACHEPREFIX": str(COMPILED), **variables}

    def run() -> None:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd="/", env=environment)
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)} exits {done.returncode}: {(done.stderr or done.stdout)[-500:]}")

    return run


def installed_bytes() -> int:
    """Bytes of the package and its required dependencies, without bytecode."""
    sys.path.insert(0, str(ROOT / "tools"))
    from supply.closure import closure

    files = [path.locate() for one in closure().values() for path in one.files or () if path.suffix != ".pyc"]
    own = [path for path in (ROOT / "src").rglob("*") if path.suffix != ".pyc"]
    return sum(os.stat(path).st_size for path in (*files, *own) if os.path.isfile(path))


def _load() -> object:
    from whichgpu.catalog.store import Catalog

    catalog = Catalog()
    return catalog.gpus, catalog.instances, catalog.cpus, catalog.regions, catalog.providers, catalog.sources


def _search() -> object:
    from whichgpu.catalog.evidence_search.search import EvidenceFilter, search_evidence

    return search_evidence(EvidenceFilter(words=("h100", "llama", "tp=4")), {})


def results() -> Iterator[Result]:
    """Each benchmark in turn."""
    python, launcher = sys.executable, str(ROOT / "whichgpu")
    bare = timed("python -m whichgpu --version", 0.2, process(python, "-P", "-m", "whichgpu", "--version"))
    launched = timed("./whichgpu --version", 0.25, process(launcher, "--version"))
    yield timed("whichgpu --help", 0.2, process(python, "-P", "-m", "whichgpu", "--help"))
    yield timed("import whichgpu", 0.1, process(python, "-c", "import whichgpu"))
    size = installed_bytes() / 1e9
    yield Result("installed, without extras", size, size, 0.12, "MB")  # in GB, so that a thousandth is a MB
    yield Result("launcher, second call, adds", max(0.0, launched.median - bare.median), 0.0, 0.05)
    yield timed("load the whole catalog", 0.05, _load)
    yield timed("search all measurements", 0.05, _search)
    yield timed("whichgpu gpus --json, cold process", 0.4, process(python, "-P", "-m", "whichgpu", "gpus", "--json"))
    yield timed("whichgpu fit llama-3.1-8b, cold process", 0.4, process(python, "-P", "-m", "whichgpu", "fit", "llama-3.1-8b"))
    yield timed("whichgpu catalog check", 1.0, process(python, "-P", "-m", "whichgpu", "catalog", "check"))
