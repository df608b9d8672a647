"""All limits of the server; values are assumed, for a small shared machine."""

from __future__ import annotations

import msgspec

KIB, MIB = 1 << 10, 1 << 20


class Limits(msgspec.Struct, frozen=True):
    """Limits of the server: bytes or seconds if the name says so, else counts."""

    # Limits of one HTTP request.
    head_bytes: int = 32 * KIB  # request line and all headers
    body_bytes: int = 1 * MIB
    upload_bytes: int = 64 * MIB
    head_seconds: float = 10.0  # time to receive the request line and headers
    body_seconds: float = 15.0
    upload_seconds: float = 120.0
    idle_seconds: float = 15.0  # time a connection may stay open without a request
    unread_seconds: float = 20.0  # time a client may take to read more of its answer
    answer_seconds: float = 20.0  # time to compute one answer
    picture_seconds: float = 120.0  # time to draw a chart as SVG, or to build the chart script
    queue_seconds: float = 60.0  # time a question may wait for a worker
    costly_queue_seconds: float = 300.0  # the same for a costly question, which others overtake

    # Limits of one client address.
    client_waiting: int = 128  # questions being computed or queued
    client_jobs: int = 8  # unfinished jobs
    client_streams: int = 16  # open streams of job events

    # Limits of all clients together.
    waiting: int = 512  # queued questions
    connections: int = 8192  # open connections; fewer if the system allows fewer file descriptors
    streams: int = 128
    jobs: int = 64  # jobs stored, finished ones included
    jobs_running: int = 1
    job_seconds: float = 600.0
    job_kept_seconds: float = 3600.0
    uploads: int = 16
    uploads_bytes: int = 256 * MIB

    # Limits of memory.
    cache_bytes: int = 64 * MIB
    cache_entries: int = 4096
    answer_bytes: int = 32 * MIB  # size of one reply of a worker
    worker_bytes: int = 768 * MIB  # memory above which a worker is replaced after its answer
    worker_address_bytes: int = 4096 * MIB  # address space of a worker process
    worker_answers: int = 20_000  # number of answers after which a worker is replaced
