"""What every verb is asked with beside its request: the catalog, the day, and who follows a long answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date

from whichgpu.catalog.store import Catalog


@dataclass(frozen=True, slots=True)
class Context:
    """One question's surroundings. `spell` names a field of the request in errors: as a flag, or as it is."""

    catalog: Catalog = field(default_factory=Catalog)
    as_of: date | None = None
    today: date = field(default_factory=date.today)
    spell: Callable[[str], str] = str
    progress: Callable[[str, float], None] | None = None  # stage and share done
    is_whole: bool = True  # whether all of an answer is wanted, remedies for GPUs nobody named among it
