"""Run every benchmark of the tool's own speed and print one table; exit 1 where a goal is missed."""

from __future__ import annotations

import sys
from itertools import chain

from benchmarks import prices, speed_grid, start, watch

if __name__ == "__main__":
    sys.exit(start.table(chain(start.results(), speed_grid.results(), prices.results(), watch.results())))
