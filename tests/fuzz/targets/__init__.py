"""All targets by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import files, models, traffic, web, words

TARGETS: dict[str, Target] = {target.name: target for room in (words, models, traffic, files, web) for target in room.TARGETS}
