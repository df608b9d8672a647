"""One input fed to a target: parsed or refused with our error, in time, without excessive memory or numpy warnings."""

from __future__ import annotations

import resource
import signal
import traceback
import warnings
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.fuzz.target import Rude, Target, refusal
from whichgpu.base.errors import WhichGpuError

MAX_GROWTH_KIB = 192 << 10  # the process may grow by this much for one input
WAITING = 15.0  # times the processor time allowed: what waits without computing is stopped, too


class TooLong(BaseException):
    """Raised inside what takes too long; no `except Exception` stops it."""


@dataclass(frozen=True)
class Finding:
    """A failure caused by an input; `where` distinguishes bugs."""

    target: str
    data: bytes
    what: str
    where: str


def judge(target: Target, data: bytes) -> tuple[Hashable, Finding | None]:
    """What came of an input, and what is wrong with that."""
    before = _resident()
    try:
        with _limited(target.seconds), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # numpy's, of what is no number any more
            try:
                outcome = target.feed(data)
            except WhichGpuError as error:
                outcome = refusal(error)
    except TooLong as problem:
        return None, Finding(target.name, data, f"more than {target.seconds:g} s", _place(problem))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:
        return None, Finding(target.name, data, f"{type(problem).__name__}: {problem}"[:300], _place(problem))
    grown = _peak() - before
    if grown > MAX_GROWTH_KIB:
        return outcome, Finding(target.name, data, f"{grown >> 10} MiB of memory", f"memory of {outcome}")
    return outcome, None


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Stops what uses the processor longer than that, or the clock many times longer: a busy machine is no fault of the input."""

    def stop(*_: object) -> None:
        raise TooLong

    handlers = {kind: signal.signal(kind, stop) for kind in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds * WAITING)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind, handler in handlers.items():
            signal.signal(kind, signal.SIG_DFL if handler is None else handler)


def _resident() -> int:
    """KiB in use now, after which the peak is reset if the system can (Linux)."""
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _peak()


def _peak() -> int:
    """KiB at most in use since."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _place(problem: BaseException) -> str:
    """The innermost line of ours that a fault passed through; of a rude refusal what it says, since all come from one line."""
    if isinstance(problem, Rude):
        return f"Rude {problem}"[:120]
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if "/whichgpu/" in frame.filename] or frames
    return f"{type(problem).__name__} {ours[-1].filename.rpartition('/whichgpu/')[2]}:{ours[-1].lineno}" if ours else "?"
