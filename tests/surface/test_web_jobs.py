"""Long questions as jobs: followed, cancelled, fed with files; and the limits of all that."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.surface.cli import call
from tests.surface.web import Got, Server

SERVE = {"command": "estimate", "task": "serve", "model": "llama-3.1-8b", "gpu": "H100 SXM", "rate": "5/s"}
LONG = {**SERVE, "count": 2_000_000}


def started(server: Server, job: dict[str, Any]) -> dict[str, Any]:
    reply = server.post("/api/v1/jobs", job, x_whichgpu="1")
    assert reply.status == 202, reply.text
    document = reply.json()
    assert reply.headers["location"] == document["url"]
    assert isinstance(document, dict)
    return document


def over(server: Server, job: dict[str, Any], seconds: float = 60) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while job["state"] in ("queued", "running") and time.monotonic() < end:
        time.sleep(0.1)
        job = server.get(job["url"]).json()
    return job


def cancel(server: Server, job: dict[str, Any]) -> Got:
    return server.get(job["url"], "DELETE", x_whichgpu="1")


def test_a_job_is_followed_to_its_end_and_its_result_is_the_commands(server: Server) -> None:
    job = started(server, SERVE)
    assert server.get(job["events"], "HEAD").status == 405
    events = [block.splitlines() for block in server.get(job["events"]).text.strip().split("\n\n")]
    names = [lines[0].removeprefix("event: ") for lines in events if lines[0].startswith("event")]
    document = [json.loads(lines[1].removeprefix("data: ")) for lines in events if lines[0].startswith("event")]
    assert names[-1] == "done"
    assert set(names[:-1]) == {"progress"}
    shares = [job["done"] for job in document]
    assert shares == sorted(shares)
    assert len({share for share in shares if 0 < share < 1}) >= 3
    result = server.get(document[-1]["result"])
    reply = call("estimate", "serve", "llama-3.1-8b", "--gpu", "H100 SXM", "--rate", "5/s", "--json")
    assert result.json() == reply.json()


def test_a_running_job_is_cancelled_and_its_process_ends(server: Server) -> None:
    before = set(server.workers())
    job = started(server, LONG)
    end = time.monotonic() + 20
    while server.get(job["url"]).json()["state"] != "running" and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)
    server.answers_others()
    assert cancel(server, job).json()["state"] == "cancelled"
    assert server.get(f"{job['url']}/result").error["kind"] == "job-cancelled"
    assert "event: cancelled" in server.get(job["events"]).text
    while set(server.workers()) - before and time.monotonic() < end:
        time.sleep(0.05)
    assert set(server.workers()) <= before


def test_many_requests_are_answered_as_the_command_answers_them(server: Server) -> None:
    requests = [
        {"id": "a", "task": "decode", "model": "llama-3.1-8b", "gpu": "H100 SXM", "batch": 2},
        {"id": "b", "task": "decode", "model": "/etc/passwd", "gpu": "H100 SXM"},
        {"id": "c", "task": "nothing", "model": "bert-large"},
        {"id": "d", "task": "forward", "model": "resnet50", "gpu": "T4", "batch": 8},
        7,
    ]
    job = over(server, started(server, {"command": "estimate", "requests": requests}))
    assert job["state"] == "done"
    lines = [json.loads(line) for line in server.get(f"{job['url']}/result").text.splitlines()]
    assert [line["ok"] for line in lines] == [True, False, False, True, False]
    assert [line.get("id") for line in lines] == ["a", "b", "c", "d", None]
    assert lines[1]["error"]["kind"] == "model-not-allowed"
    alone = server.post("/api/v1/estimate", {name: value for name, value in requests[3].items() if name != "id"})  # type: ignore[attr-defined]
    assert alone.json()["time"] == lines[3]["time"]


def test_a_trace_is_sent_and_served(server: Server) -> None:
    rows = "\n".join(f"{n * 0.5},{200 + n % 50},{20 + n % 9}" for n in range(200))
    trace = f"time,prompt,output\n{rows}\n".encode()
    sent = server.get("/api/v1/uploads", "POST", trace, content_type="text/csv", x_whichgpu="1")
    assert (sent.status, sent.json()["bytes"]) == (201, len(trace))
    job = {name: value for name, value in SERVE.items() if name != "rate"}
    document = over(server, started(server, {**job, "trace": sent.json()["id"]}))
    assert document["state"] == "done", server.get(f"{document['url']}/result").text
    assert server.get(f"{document['url']}/result").json()["serving"]["load"]["requests"] == 200


@pytest.mark.parametrize(
    "job",
    [
        {}, [], {"command": "web"}, {"command": "measure"}, {"command": ["estimate"]}, {"command": "estimate", "nothing": 1},
        {**SERVE, "trace": "/etc/passwd"}, {**SERVE, "trace": "../x"}, {**SERVE, "plot": "/tmp/x.svg"},
        {**SERVE, "model": "/etc/passwd"}, {"command": "estimate", "requests": []},
        {**SERVE, "requests": "file"}, {"command": "estimate", "requests": {}},
    ],
)  # fmt: skip
def test_invalid_job_is_refused_at_once(server: Server, job: Any) -> None:
    reply = server.post("/api/v1/jobs", job, x_whichgpu="1")
    assert reply.status in (400, 404), reply.text
    assert reply.error


def test_a_job_that_fails_says_why(server: Server) -> None:
    job = over(server, started(server, {**SERVE, "gpu": "A100"}))
    assert job["state"] == "failed"
    assert server.get(f"{job['url']}/result").error["kind"] == "ambiguous-gpu"
    assert server.get("/api/v1/jobs/nothing").error["kind"] == "job"


def test_jobs_per_client_are_limited(small: Server) -> None:
    jobs = [started(small, LONG) for _ in range(3)]
    many = small.post("/api/v1/jobs", LONG, x_whichgpu="1")
    assert (many.status, many.error["kind"]) == (429, "many-jobs")
    assert small.get(f"{jobs[2]['url']}/result").error["kind"] == "job-unfinished"
    for job in jobs:
        assert cancel(small, job).status == 200
    again = started(small, LONG)
    cancel(small, again)


def test_files_are_bounded_in_size_and_number(small: Server) -> None:
    def send(data: bytes, kind: str = "text/csv", **headers: Any) -> Got:
        return small.get("/api/v1/uploads", "POST", data, content_type=kind, x_whichgpu="1", **headers)

    assert send(b"x" * (2 << 20)).error["kind"] == "too-large"
    assert send(b"PK\x03\x04", "application/zip").error["kind"] == "upload-type"
    assert send(b"x", content_encoding="gzip").error["kind"] == "encoding"
    sent = [send(b"a,b\n") for _ in range(4)]  # one more than the limit: the oldest is dropped
    assert [one.status for one in sent] == [201] * 4
    job = {name: value for name, value in SERVE.items() if name != "rate"}
    first = small.post("/api/v1/jobs", {**job, "trace": sent[0].json()["id"]}, x_whichgpu="1")
    assert (first.status, first.error["kind"]) == (404, "upload")
