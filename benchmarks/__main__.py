"""Run every benchmark and print one table; exit 1 where a goal is missed."""

from __future__ import annotations

import sys

from benchmarks import prices, start, watch


def main() -> int:
    results = [*start.results(), *prices.results(), *watch.results()]
    print("\t".join(("benchmark", "median", "best", "goal", "met")))
    for result in results:
        met = "yes" if result.median <= result.goal else "NO"
        cells = (f"{value * 1000:.3g} {result.unit}" for value in (result.median, result.best, result.goal))
        print("\t".join((result.name, *cells, met)))
    return 0 if all(result.median <= result.goal for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
