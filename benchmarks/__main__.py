"""Run every benchmark and print one table; exit 1 where a goal is missed."""

from __future__ import annotations

import sys

from benchmarks import start, watch


def main() -> int:
    results = [*start.results(), *watch.results()]
    print("\t".join(("benchmark", "median", "best", "goal", "met")))
    for result in results:
        met = "yes" if result.median <= result.goal else "NO"
        print(f"{result.name}\t{result.median * 1000:.3g} ms\t{result.best * 1000:.3g} ms\t{result.goal * 1000:.0f} ms\t{met}")
    return 0 if all(result.median <= result.goal for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
