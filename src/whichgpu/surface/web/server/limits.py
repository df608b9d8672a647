"""All limits of the server; values are assumed, for a small shared machine."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the server: sizes in bytes, times in seconds, else counts."""

    # one request
    head_bytes: int = 32 * KIB  # request line and headers together
    body_bytes: int = 1 * MIB
    upload_bytes: int = 64 * MIB
    head_seconds: float = 10.0  # from waiting for the first byte to the end of the headers
    body_seconds: float = 15.0
    upload_seconds: float = 120.0
    idle_seconds: float = 15.0  # of an open connection between requests
    unread_seconds: float = 20.0  # while the client does not read its answer
    answer_seconds: float = 20.0  # one computation
    picture_seconds: float = 120.0  # one chart as SVG, or building the chart script
    queue_seconds: float = 60.0  # waiting for a worker

    # one client address
    client_waiting: int = 128  # computations running or queued
    client_jobs: int = 8  # jobs not yet done
    client_streams: int = 16  # of job events

    # all together
    waiting: int = 512  # computations queued
    connections: int = 8192  # fewer where the system allows fewer file descriptors
    streams: int = 128
    jobs: int = 64  # known, finished ones included
    jobs_running: int = 1
    job_seconds: float = 600.0
    job_kept_seconds: float = 3600.0
    uploads: int = 16
    uploads_bytes: int = 256 * MIB

    # memory
    cache_bytes: int = 64 * MIB
    cache_entries: int = 4096
    answer_bytes: int = 32 * MIB  # of one reply of a worker
    worker_bytes: int = 768 * MIB  # a larger worker is replaced after its answer
    worker_address_bytes: int = 4096 * MIB  # limit of a worker's address space
    worker_answers: int = 20_000  # after which a worker is replaced
