"""`tools/mutation --help`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from mutating.record import PACKAGES, ROOT, TESTS, read, record, write

HELP = """\
Puts small faults into estimate and price, one at a time, and asks whether the tests that run the changed line notice.

Faults are cosmic-ray's (operators, comparisons, numbers, conditions, loops, decorators, exceptions). Places are drawn by chance,
all alike; at a place one fault. Left out, as no test can or should tell: types, arguments of decorators (slots, frozen, sizes of
memories), removing @cache, strict= of zip, the bare * of a signature, and changes of an operator into one of another kind, which
only raise.
Tests are those of make test that answer in one process; which of them runs which line is recorded first (--record FILE keeps it).
Each fault is asked tests of its lines for --seconds in all, different ones and fast ones first: a fault that only others would
notice counts as survived, and so does one no test runs. A fault that makes them
take three times as long and 20 seconds more is a timeout, which counts as noticed."""


def interval(hits: int, total: int) -> tuple[float, float]:
    """95% interval of a share (Wilson).

    >>> [round(end, 3) for end in interval(80, 100)]
    [0.711, 0.867]
    """
    z = 1.96
    middle = (hits + z * z / 2) / (total + z * z)
    half = z / (total + z * z) * (hits * (total - hits) / total + z * z / 4) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def main(arguments: list[str] | None = None) -> int:
    """Record, draw, judge, print; 1 where a package stays below --least."""
    parser = argparse.ArgumentParser(
        prog="tools/mutation", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", default=PACKAGES, metavar="PACKAGE", help="estimate, price; both unless named")
    parser.add_argument("--count", type=int, default=200, help="faults of each package (default 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--skip", type=int, default=0, help="leave out so many first: a sample apart from an earlier one of the seed"
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="processor seconds of tests asked for each fault (default 20)"
    )
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--record", type=Path, help="file in which to keep, or find, which test runs which line")
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 where a smaller share was noticed")
    given = parser.parse_args(arguments)
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        kept = given.record or Path(folder) / "record.json"
        if not kept.exists():
            recorded(kept)
        known = read(kept)
    from mutating.judge import KILLED, TIMEOUT, judged, prepare
    from mutating.mutants import drawn

    prepare()
    low = False
    for package in given.packages:
        mutants, places = drawn(package, given.count, given.skip, given.seed)
        told: Counter[str] = Counter()
        for number, (mutant, found, seconds) in enumerate(judged(mutants, known, given.seconds, given.processes), 1):
            told[found] += 1
            print(f"{number:4} {found:12} {seconds:6.1f} s  {mutant}", flush=True)
        noticed, total = told[KILLED] + told[TIMEOUT], len(mutants)
        first, last = interval(noticed, total)
        counts = ", ".join(f"{count} {word}" for word, count in sorted(told.items()))
        print(f"{package}: {noticed / total:.1%} of {total} faults noticed (95%: {first:.1%} to {last:.1%}): {counts}")
        print(f"    of {places} places, seed {given.seed}, after {given.skip}; {given.seconds:g} seconds of tests each")
        low |= noticed / total < given.least
    return int(low)


def recorded(path: Path) -> None:
    """Record in a process of its own: this one is to import nothing of the packages."""
    pid = os.fork()
    if not pid:
        try:
            write(record(TESTS), path)
        finally:
            os._exit(0 if path.exists() else 1)
    if os.waitpid(pid, 0)[1]:
        sys.exit("the tests could not be recorded")
