"""How many examples a property is tried on: as many as given in `make test`, ten times as many in `make test-long`."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("WHICHGPU_EXAMPLES", "1"))


def examples(count: int) -> int:
    """Return the number of examples of a property that `make test` tries on `count` of them."""
    return count * TIMES
