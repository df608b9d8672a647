"""Types of the values that Python callers pass, as editors show them.

A number is in the base unit (bytes, seconds, requests a second); a text carries its unit as on the command line ("80GiB",
"50ms", "5/s"). Several names are a list or a comma-separated text. None means not given.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from os import PathLike
from typing import Any

from whichgpu.base.money import Money

NameList = str | Sequence[str]
ModelName = str | Mapping[str, Any]  # a name, or the content of a config.json
Size = int | str  # bytes, or 80GiB
Duration = float | str  # seconds, or 50ms
Rate = float | str  # per second, or 120/min
Bandwidth = int | str  # bytes per second, or 2TB/s
Price = str | Money  # 2usd/h, 500usd
CountSpan = int | str | tuple[int, int]  # 8, "1..8", (1, 8)
Day = str | date
FilePath = str | PathLike[str]
Histogram = str | Mapping[int, float]  # weights by number of tokens
Count = int | str  # 300, or 300B
