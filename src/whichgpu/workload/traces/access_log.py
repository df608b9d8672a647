"""Arrival times of inference requests from a web server's access log in the common or combined format.

Only successful calls of endpoints that generate count. Such a log has no token counts; the request gives the lengths. Its times
are whole seconds: the requests of one second are spread evenly over it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

import numpy as np

from whichgpu.base.messages import msg
from whichgpu.workload.traces.lines import wrong

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Last parts of the addresses of OpenAI-compatible, Anthropic's, SGLang's and TGI's generation endpoints.
GENERATING = re.compile(r"/(completions|responses|messages|generate|generate_stream)/?(\?.*)?$")
_LINE = re.compile(
    r'\S+ \S+ .*?\[(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)\] "(\S+) (\S+)[^"]*" (\d{3}) .*'
)


def is_access_log(line: str) -> bool:
    """Return whether a line is one of an access log."""
    return _LINE.fullmatch(line.strip() + " ") is not None


def logged_times(name: str, first: int, lines: Iterable[str]) -> array[float]:
    """Return the seconds at which requests arrived, from the first one on; servers may log them out of order."""
    seconds = []
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip() + " ")
        if match is None or match[2] not in MONTHS:
            raise wrong(name, number, msg("trace.not-log"))
        day, month, year, hour, minute, second, sign, zone_hours, zone_minutes, method, path, status = match.groups()
        if method != "POST" or not GENERATING.search(path) or not status.startswith("2"):
            continue
        offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
        try:
            zone = timezone(offset if sign == "+" else -offset)
            moment = datetime(int(year), MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), tzinfo=zone)
        except ValueError as problem:
            raise wrong(name, number, msg("trace.not-log")) from problem
        seconds.append(moment.timestamp())
    if not seconds:
        raise wrong(name, first, msg("trace.log-no-requests"))
    values, counts = np.unique(np.array(seconds), return_counts=True)
    within = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    times = np.repeat(values, counts) + within
    return array("d", (times - times[0]).tolist())
