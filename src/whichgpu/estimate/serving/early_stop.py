"""Early end of simulations whose objectives can no longer hold, since too many of their requests have already missed one."""

from __future__ import annotations

from math import inf

import msgspec
import numpy as np

from whichgpu.estimate.serving.scheduler import RequestLog

CHECKED_ARRIVALS = 32  # arrivals from one check to the next; a check takes about as long as one of them


class MissLimit(msgspec.Struct, frozen=True):
    """Limits of a request in seconds, and how many requests from number `start` on may exceed one."""

    start: int
    allowed: float
    ttft_max: float
    tpot_max: float
    latency_max: float

    @staticmethod
    def of(
        requests: int,
        start: int,
        percentile: float,
        ttft_max: float | None = None,
        tpot_max: float | None = None,
        latency_max: float | None = None,
    ) -> MissLimit:
        """Return the limit for a simulation of `requests` requests, those before `start` not counted; None is no limit."""
        limits = (inf if limit is None else limit for limit in (ttft_max, tpot_max, latency_max))
        return MissLimit(start, (requests - start) * (1.0 - percentile / 100.0) * (1.0 + 1e-9), *limits)

    def exceeded(self, log: RequestLog, now: float, outside: float) -> bool:
        """Whether too many requests have missed a limit for good; `outside` is a request's latency outside the steps."""
        arrived, first, finished = (np.array(column[self.start :]) for column in (log.arrived, log.first, log.finished))
        spans = np.maximum(1, np.array(log.outputs[self.start :]) - 1)
        missed = np.where(first < 0.0, now, first) + outside - arrived > self.ttft_max
        if self.tpot_max < inf:
            missed |= (finished >= 0.0) & (finished - first > self.tpot_max * spans)
        if self.latency_max < inf:
            missed |= np.where(finished < 0.0, now, finished) + outside - arrived > self.latency_max
        refused = sum(1 for number in log.refused if number >= self.start and missed[number - self.start])
        return int(missed.sum()) - refused > self.allowed
