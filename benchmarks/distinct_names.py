"""Growth with distinct machine names: `offers` and `recommend` in new processes on stores of 10,000 names and more.

`python -m benchmarks.distinct_names [ROWS…]` prints processor seconds, which other programs on the machine hardly change.
"""

from __future__ import annotations

import csv
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.start import ROOT

ROWS = (10_000, 100_000, 1_000_000)  # The last takes two minutes to import.
MACHINES = (
    ("H100 SXM", 1, 3.0), ("L4", 1, 0.8), ("A10G", 1, 1.2), ("T4", 1, 0.5), ("H100 SXM", 8, 26.0), ("A100 SXM 80GB", 8, 18.0),
    ("L40S", 4, 8.0),
)  # fmt: skip
COMMANDS = (("offers", "--gpu", "H100 SXM", "--limit", "5"), ("recommend", "serve", "llama3.1-8b"))


def write_list(path: Path, rows: int) -> None:
    """Write a price list in which every row has a machine name of its own."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow("provider instance region gpu gpus term price".split())
        for row in range(rows):
            gpu, gpus, price = MACHINES[row % len(MACHINES)]
            amount = price * (1 + row % 997 / 2000)
            writer.writerow(("colo", f"machine-{row}", f"region-{row % 50}", gpu, gpus, "on-demand", f"{amount:.4f}"))


def seconds(*words: str, folder: Path) -> float:
    """Return the processor seconds of a command in a new process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "WHICHGPU_DATA": str(folder)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [sys.executable, "-P", "-m", "whichgpu", *words]
    subprocess.run(argv, check=True, capture_output=True, env=environment, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the processor seconds of the import and of each command by number of rows."""
    print("\t".join(("rows", "import", *(command[0] for command in COMMANDS))))
    for rows in map(int, sys.argv[1:] or ROWS):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_list(folder / "prices.csv", rows)
            taken = [seconds("catalog", "import", str(folder / "prices.csv"), folder=folder)]
            taken += [seconds(*command, folder=folder) for command in COMMANDS]
            print("\t".join((f"{rows:,}", *(f"{one:.2f} s" for one in taken))), flush=True)


if __name__ == "__main__":
    main()
