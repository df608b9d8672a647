"""The loop: a target's corpus, then inputs drawn by hypothesis and mutated from what was seen, until the time is over."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.judging import Finding, judge
from tests.fuzz.mutating import mutated
from tests.fuzz.target import Target

CORPUS = Path(__file__).parent / "corpus"
BATCH = 100  # inputs drawn at a time
MAX_POOL = 4000
_QUIET = settings(
    max_examples=BATCH, database=None, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
)


class _Over(Exception):
    pass


@dataclass
class Run:
    """What a target has been through."""

    target: Target
    inputs: int = 0
    seconds: float = 0.0
    outcomes: set[Hashable] = field(default_factory=set)
    findings: dict[str, Finding] = field(default_factory=dict)
    pool: list[bytes] = field(default_factory=list)

    def feed(self, data: bytes) -> None:
        """Judge an input; one with a new outcome is saved for mutation."""
        outcome, finding = judge(self.target, data)
        self.inputs += 1
        if finding is not None:
            self.findings.setdefault(finding.where, finding)
        elif outcome not in self.outcomes and len(self.pool) < MAX_POOL:
            self.outcomes.add(outcome)
            self.pool.append(data)


def corpus(name: str) -> list[bytes]:
    """The saved inputs of a target, sorted by name."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*")) if path.is_file()]


def run(target: Target, seconds: float, number: int = 0) -> Run:
    """Feed a target for so long; `number` seeds what is drawn."""
    start = time.monotonic()
    run = Run(target)
    for data in corpus(target.name):
        run.feed(data)
        run.pool.append(data)
    random, rounds = Random(f"{target.name} {number}"), 0
    while time.monotonic() - start < seconds:
        rounds += 1
        _run_until_over(run, number * 1_000_003 + rounds, start + seconds)
        for _ in range(4 * BATCH):
            if time.monotonic() - start >= seconds:
                break
            run.feed(mutated(random, run.pool or [b""], target.words))
    run.seconds = time.monotonic() - start
    return run


def _run_until_over(run: Run, number: int, until: float) -> None:
    @seed(number)
    @_QUIET
    @given(run.target.draw)
    def go(data: bytes) -> None:
        if time.monotonic() >= until:
            raise _Over
        run.feed(data)

    try:
        go()
    except _Over:
        return


def keep(finding: Finding) -> Path:
    """Write an input that broke something into the corpus."""
    folder = CORPUS / finding.target
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*"):
        if file.read_bytes() == finding.data:
            return file
    path = folder / f"found-{hashlib.sha256(finding.data).hexdigest()[:10]}"
    path.write_bytes(finding.data)
    return path
