"""`python -m tests.fuzz [TARGET …] [--minutes N] [--seed N] [--atheris]`: exit 1 after a failure; failing inputs are saved."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from pathlib import Path

from tests.fuzz.running import Run, keep, run

MEMORY = "/dev/shm"  # files that need no disk are written much faster
ROOM = 6 << 30  # bytes of address space: beyond it memory ends for this process, not for the machine


def main() -> int:
    """Run the targets one after another and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each target")
    parser.add_argument("--seed", type=int, default=None, help="of what is drawn; a new one each time where none is given")
    parser.add_argument("--atheris", action="store_true", help="guided by coverage, where atheris is installed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whichgpu-fuzz-", dir=MEMORY if os.path.isdir(MEMORY) else None) as home:
        _alone(Path(home))
        if options.atheris:
            from tests.fuzz.guided import guided

            return guided(options.targets[0], options.minutes * 60)
        from tests.fuzz.targets import TARGETS

        for name in options.targets:
            if name not in TARGETS:
                parser.error(f"no target {name!r}; there are: {', '.join(TARGETS)}")
        number = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
        print("target\tminutes\tinputs\toutcomes\tfindings", flush=True)
        runs = [_report(run(TARGETS[name], options.minutes * 60, number)) for name in options.targets or TARGETS]
    return 1 if any(one.findings for one in runs) else 0


def _alone(home: Path) -> None:
    """Nothing of the user's own is read or written, and memory has an end."""
    for name, folder in (("XDG_CACHE_HOME", "cache"), ("XDG_CONFIG_HOME", "config"), ("XDG_DATA_HOME", "data"), ("HOME", "home")):
        os.environ[name] = str(home / folder)
    os.environ["HF_HUB_OFFLINE"] = "1"
    tempfile.tempdir = str(home)
    os.chdir(home)
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _report(run: Run) -> Run:
    cells = (run.target.name, f"{run.seconds / 60:.1f}", run.inputs, len(run.outcomes), len(run.findings))
    print(*cells, sep="\t", flush=True)
    for finding in run.findings.values():
        print(f"  {finding.where}: {finding.what} -> {keep(finding)}", flush=True)
    return run


if __name__ == "__main__":
    sys.exit(main())
