"""Measured rows that are faster than their physical floors, by source and GPU, with the reason where one is known.

    PYTHONPATH=src:tools python -m benchmarks.floors        # groups
    PYTHONPATH=src:tools python -m benchmarks.floors rows   # and each row

Floors are bytes over bandwidth, FLOPs over peak, and bytes sent over links. Exits 1 if a group is not as `floor_exceptions.csv`
says.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

from calibration.measured_floors import FloorException, RowFloor, exceptions, row_floors, too_fast, unexplained

from whichgpu.catalog.evidence import measurements
from whichgpu.catalog.store import Catalog


def table(found: Sequence[RowFloor], each: bool) -> Iterator[str]:
    """Yield a line for every group of rows below their floors and, if `each`, one for every row of it."""
    known = {(one.source, one.gpu, one.family): one for one in exceptions()}
    groups: dict[tuple[str, str, str], list[RowFloor]] = defaultdict(list)
    for one in too_fast(found):
        groups[one.group].append(one)
    yield f"{len(found)} rows have a floor, {sum(map(len, groups.values()))} are faster than it by more than 2%"
    for group, rows in sorted(groups.items()):
        yield f"{' '.join(group):55}{len(rows):4} rows, floor up to {rows[0].ratio:.2f} of the time: {_reason(known.get(group))}"
        if each:
            yield from (f"    line {one.row.row}: {one.row.seconds:.4g} s, floor {one.seconds:.4g} s" for one in rows)


def _reason(exception: FloorException | None) -> str:
    return f"{exception.cause}. {exception.reason}" if exception else "unknown"


def main() -> int:
    """Print the groups; 1 if one has more or fewer rows below their floors than the exceptions."""
    found = list(row_floors(measurements(), Catalog()))
    print("\n".join(table(found, each="rows" in sys.argv[1:])))
    problems = unexplained(found)
    print("\n".join(problems), file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
