"""A worker process: it answers one question at a time, and can be killed at any moment.

Reads frames from standard input and writes frames to standard output: `ready`, then for each question any number of `progress`
and one `answer`. Anything else printed goes to standard error.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from whichgpu.base.messages import language
from whichgpu.surface.web.command_replies import (
    HttpReply,
    Progress,
    error_reply,
    forget_catalogs,
    internal_error,
    use_catalog_folder,
)
from whichgpu.surface.web.model_guard import allow_models
from whichgpu.surface.web.server.frames import Question, pack_frame, read_frame

MIN_PACKED_BYTES = 1024  # Shorter answers are not compressed.
COMPRESSION_LEVEL = 5  # Level of gzip, 1 to 9 (assumed balance of time and size).
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
DIE_WITH_PARENT = 1  # Number of the Linux option PR_SET_PDEATHSIG.


def main() -> None:
    """Run a worker process: answer the server's questions until it closes the pipe."""
    settings = read_frame(sys.stdin.buffer)
    if settings is None:
        return
    with _own_output() as out:
        _limit_process(settings)
        allow_models(settings.get("allowed", ()))
        use_catalog_folder(settings.get("catalog"))
        warm_answers = [encoded(_answer(question, out)) for question in settings.get("warm", ())]
        gc.collect()
        gc.freeze()  # Loaded data stays in memory; scanning it again would slow every answer.
        gc.set_threshold(50_000, 20, 100)
        out.write(pack_frame({"ready": os.getpid(), "answers": warm_answers}))
        out.flush()
        stamp = settings.get("stamp")  # Stamp of the data from which the warm-up answers were computed.
        while (question := read_frame(sys.stdin.buffer)) is not None:
            if question.get("stamp") != stamp:
                stamp = question.get("stamp")
                forget_catalogs()
            start = time.process_time()
            answer = encoded(_answer_at_priority(question, out), question.get("lang"))
            answer["seconds"] = time.process_time() - start  # A busy machine makes no question costlier.
            out.write(pack_frame({"answer": answer, "bytes": _resident()}))
            out.flush()


@contextlib.contextmanager
def _own_output() -> Any:
    """Context that yields standard output for messages to the server only; other prints go to standard error."""
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        yield out


def _limit_process(settings: dict[str, Any]) -> None:
    """Make the process exit with the server and be killed first if memory runs out; limit its memory and priority."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The server handles Ctrl-C.
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    if max_bytes := settings.get("address_bytes"):
        with contextlib.suppress(OSError, ValueError, ImportError):
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    if niceness := settings.get("nice"):
        with contextlib.suppress(OSError, AttributeError):
            os.nice(niceness)


def _answer(question: dict[str, Any], out: BinaryIO) -> HttpReply:
    def progress(done: float) -> None:
        out.write(pack_frame({"progress": done}))
        out.flush()

    return compute(question, progress)


def _answer_at_priority(question: dict[str, Any], out: BinaryIO) -> HttpReply:
    """Return the reply to a question; one with a niceness is computed in a thread of lower priority, beside cheaper ones.

    A thread, since a process that has lowered its priority may not raise it again.
    """
    niceness = question.pop("nice", 0)
    if not niceness:
        return _answer(question, out)
    with ThreadPoolExecutor(1, initializer=_lower_priority, initargs=(niceness,)) as thread:
        return thread.submit(_answer, question, out).result()


def _lower_priority(niceness: int) -> None:
    """Raise the niceness of this thread; on Linux each thread has its own."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.nice(niceness)


def compute(question: Question, progress: Progress | None = None) -> HttpReply:
    """Return the HTTP reply to a question; an unexpected exception is an internal error, on a page one with a sentence."""
    reader_language = language(question.get("lang", "en"))
    try:
        from whichgpu.surface.web.worker_answers import ANSWERS  # Imported here: it is slow to load.

        return ANSWERS[question["kind"]](question, reader_language, progress)
    except Exception as problem:
        if os.environ.get("WHICHGPU_DEBUG"):
            import traceback

            traceback.print_exc()
        error = internal_error(problem)
        if question["kind"] == "page":
            from whichgpu.surface.web.rendering import error_page

            return error_page(error, question["ending"], reader_language, query=question["query"])
        return error_reply(error, reader_language)


def encoded(reply: HttpReply, lang: str | None = None) -> dict[str, Any]:
    """Return an HTTP reply as a dict: body compressed once for all clients, with an entity tag of content and language."""
    from hashlib import blake2b
    from zlib import compress

    headers = {**({"Content-Language": lang} if lang else {}), **reply.headers}
    tag = blake2b(reply.body, digest_size=12, key=headers.get("Content-Language", "").encode()).hexdigest()
    is_packed = len(reply.body) >= MIN_PACKED_BYTES and not reply.content_type.startswith("image/png")
    body = compress(reply.body, COMPRESSION_LEVEL, wbits=31) if is_packed else reply.body
    return {
        "status": reply.status, "content": reply.content_type, "body": body, "packed": is_packed, "tag": tag, "headers": headers,
        "plain_bytes": len(reply.body),
    }  # fmt: skip


def _resident() -> int:
    """Return the resident memory of this process in bytes; 0 if the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    main()
