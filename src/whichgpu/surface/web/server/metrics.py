"""Counts of the server's work for monitoring, in the text format of Prometheus."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whichgpu.surface.web.rest.endpoints import BY_PATH, PREFIX
from whichgpu.surface.web.views import PAGES, START

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKET_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # Upper ends of the histogram's buckets.
JOBS, OTHER = "jobs", "other"
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Requests by route and status, and how long their responses took."""

    def __init__(self) -> None:
        self.requests: Counter[Labels] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._total_seconds: Counter[str] = Counter()

    def add(self, route: str, status: int, seconds: float) -> None:
        """Count one response."""
        self.requests[("route", route), ("status", str(status))] += 1
        counts = self._seconds.setdefault(route, [0] * (len(BUCKET_SECONDS) + 1))
        counts[bisect_left(BUCKET_SECONDS, seconds)] += 1
        self._total_seconds[route] += seconds  # type: ignore[assignment]

    def text(self, gauges: Mapping[str, float | Mapping[str, int]]) -> str:
        """Return all counts and the given present values (`gauges`) in the text format of Prometheus."""
        lines = [*_head("whichgpu_http_requests_total", "counter")]
        lines += [f"whichgpu_http_requests_total{_labels(labels)} {count}" for labels, count in sorted(self.requests.items())]
        lines += [*_head("whichgpu_http_request_seconds", "histogram"), *self._histogram()]
        for name, value in gauges.items():
            lines += _head(f"whichgpu_{name}", "counter" if name.endswith("_total") else "gauge")
            values = {(): value} if not isinstance(value, Mapping) else {(("state", key),): n for key, n in value.items()}
            lines += [f"whichgpu_{name}{_labels(labels)} {number:.15g}" for labels, number in values.items()]
        return "\n".join(lines) + "\n"

    def _histogram(self) -> Iterable[str]:
        name = "whichgpu_http_request_seconds"
        for route, counts in sorted(self._seconds.items()):
            cumulative = 0
            for end, count in zip((*map("{:g}".format, BUCKET_SECONDS), "+Inf"), counts, strict=True):
                cumulative += count
                yield f"{name}_bucket{_labels((('route', route), ('le', end)))} {cumulative}"
            yield f"{name}_sum{_labels((('route', route),))} {self._total_seconds[route]:.6f}"
            yield f"{name}_count{_labels((('route', route),))} {cumulative}"


class RequestMeter:
    """ASGI middleware that counts every response with its route, status and time."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), 500

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self._metrics.add(route_of(scope["path"]), status, time.monotonic() - start)


def route_of(path: str) -> str:
    """Return the name under which requests of a URL's path are counted, one of few.

    >>> [route_of(path) for path in ("/", "/gpus.csv", "/gpu/t4", "/api/v1/fit.csv", "/api/v1/jobs/x", "/static/a.css", "/x")]
    ['/', '/gpus', '/gpu', '/api/v1/fit', '/api/v1/jobs', '/static', 'other']
    """
    if path.startswith(f"{PREFIX}/"):
        name = path.removeprefix(f"{PREFIX}/").removesuffix(".csv")
        endpoint = name if name in BY_PATH else JOBS if name.startswith(JOBS) else ""
        return f"{PREFIX}/{endpoint}" if endpoint else OTHER
    first = path.split("/")[1].partition(".")[0]
    is_known = first in (*PAGES, "static", "assets", "metrics", "healthz", "readyz", "docs") and first != START
    return "/" if path == "/" else f"/{first}" if is_known else OTHER


def _head(name: str, kind: str) -> tuple[str, ...]:
    return (f"# TYPE {name} {kind}",)


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
