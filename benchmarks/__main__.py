"""Run every benchmark of the tool's own speed and print one table; exit status 1 if a goal is missed."""

from __future__ import annotations

import sys
from itertools import chain

from benchmarks import fleet, layouts, pages, plan, prices, recommend, serving, speed_grid, start, watch, web_load

if __name__ == "__main__":
    rooms = (start, speed_grid, layouts, recommend, plan, serving, fleet, prices, watch, web_load, pages)
    sys.exit(start.table(chain.from_iterable(room.results() for room in rooms)))
