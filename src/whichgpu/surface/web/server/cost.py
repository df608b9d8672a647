"""Estimate of the seconds that a question will take to compute, before a worker begins with it.

Questions are grouped by what they ask for: endpoint or page, task, and whether a load is simulated. The estimate of a group is a
moving average of the seconds that its answers took, and at first the value of a table; groups that are costly there stay so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qs

from whichgpu.surface.web.rest.endpoints import BY_PATH
from whichgpu.surface.web.server.frames import Question
from whichgpu.surface.web.views import PAGES

COSTLY_SECONDS = 0.5  # From this estimate on, a question waits behind all others.
WEIGHT = 0.3  # Weight of the newest answer in the moving average (assumed).
# Seconds of the groups that take longest, measured on one core on 2026-11-17; others are cheap until they are measured.
FIRST_SECONDS: Mapping[str, float] = {"recommend": 1.0, "plan": 2.0, "start": 3.0, "gpu": 1.2, "model": 0.6}
SIMULATED_SECONDS = 0.5  # The first estimate for a server whose requests are simulated.
OTHER = "other"
# Words of which groups are made; any other text of a client makes no group of its own.
NAMES = frozenset((*BY_PATH, *PAGES, "requests", "check", "schema", "reference", "script"))
TASKS = frozenset("train finetune serve batch prefill decode forward chat images".split())
SIMULATION_FIELDS = ("rate", "trace", "sweep", "count", "hourly")
_TASK = re.compile(rb'"task"\s*:\s*"([a-z-]{1,20})"')
MAX_SCANNED_BYTES = 1 << 14  # Bytes of a body in which the task is looked for.


class CostEstimates:
    """Estimated seconds of questions, learned from the answers computed so far."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def seconds(self, question: Question) -> float:
        """Return the seconds that a question is expected to take."""
        group = group_of(question)
        return self._seconds.get(group, _first_estimate(group))

    def is_costly(self, question: Question) -> bool:
        """Whether a question is to wait behind cheaper ones: as estimated, or as its group is in the table.

        Quick answers to some questions of such a group say nothing about the next, which must not take the last free worker.
        """
        return max(self.seconds(question), _first_estimate(group_of(question))) >= COSTLY_SECONDS

    def add(self, question: Question, seconds: float, is_refusal: bool = False) -> None:
        """Learn from the seconds that an answer took; a quick refusal says nothing about the seconds of answers."""
        group = group_of(question)
        if is_refusal and seconds < self.seconds(question):
            return
        before = self._seconds.get(group, seconds)
        self._seconds[group] = before + WEIGHT * (seconds - before)


def group_of(question: Question) -> str:
    """Return the name of the group of questions whose answers take about as long as this one's.

    >>> group_of({"kind": "rest", "endpoint": "estimate", "query": "task=serve&rate=5/s&gpu=T4"})
    'estimate serve simulated'
    >>> group_of({"kind": "rest", "endpoint": "recommend", "body": b'{"task": "train"}'})
    'recommend train'
    """
    name = str(question.get("endpoint") or question.get("name") or question.get("kind") or "")
    if name not in NAMES:
        return OTHER
    if question.get("hurry") or question.get("refusal"):  # Either page leaves out what takes long.
        return f"{name} hurry"
    fields, body = _fields(question), bytes(question.get("body") or b"")[:MAX_SCANNED_BYTES]
    match = _TASK.search(body)
    task = match[1].decode() if match else fields.get("task", "")
    words = [name, task if task in TASKS else ""]
    if any(field in fields or f'"{field}"'.encode() in body for field in SIMULATION_FIELDS):
        words.append("simulated")
    return " ".join(filter(None, words))


def _fields(question: Question) -> dict[str, str]:
    try:
        return {name: values[-1] for name, values in parse_qs(question.get("query") or "", max_num_fields=200).items()}
    except ValueError:  # The worker will refuse it.
        return {}


def _first_estimate(group: str) -> float:
    name, *words = group.split(" ")
    if "hurry" in words:
        return 0.0
    seconds = FIRST_SECONDS.get(name, 0.0)
    return max(seconds, SIMULATED_SECONDS) if "simulated" in words else seconds
