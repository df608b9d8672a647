"""Run every benchmark of the tool's own speed and print one table; exit 1 where a goal is missed."""

from __future__ import annotations

import sys
from itertools import chain

from benchmarks import layouts, prices, recommend, serving, speed_grid, start, watch

if __name__ == "__main__":
    rooms = (start, speed_grid, layouts, recommend, serving, prices, watch)
    sys.exit(start.table(chain.from_iterable(room.results() for room in rooms)))
