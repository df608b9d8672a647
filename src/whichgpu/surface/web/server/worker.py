"""A worker process: answers one question at a time, and can be killed at any moment without harm to the others.

Reads frames from standard input and writes frames to standard output: `ready`, then for each question any number of
`progress` and one `answer`. Whatever else is printed goes to standard error.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from typing import Any, BinaryIO

from whichgpu.base.messages import Language, language
from whichgpu.surface.web.command_replies import HttpReply, forget, internal, use
from whichgpu.surface.web.model_guard import allow
from whichgpu.surface.web.server.frames import packed, read_frame

SMALLEST_PACKED = 1024  # bytes; shorter answers are not compressed
LEVEL = 5
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Answer until the server closes the pipe."""
    settings = read_frame(sys.stdin.buffer)
    if settings is None:
        return
    with _own_output() as out:
        _bound(settings)
        allow(settings.get("allowed", ()))
        use(settings.get("catalog"))
        warmed = [_sent(_answer(question, out)) for question in settings.get("warm", ())]
        gc.collect()
        gc.freeze()  # what is loaded stays; looking through it again and again would cost every answer
        gc.set_threshold(50_000, 20, 100)
        out.write(packed({"ready": os.getpid(), "answers": warmed}))
        out.flush()
        stamp = settings.get("stamp")  # of the data the warm answers rest on
        while (question := read_frame(sys.stdin.buffer)) is not None:
            if question.get("stamp") != stamp:
                stamp = question.get("stamp")
                forget()
            told = _answer(question, out)
            out.write(packed({"answer": _sent(told, question.get("lang")), "bytes": _resident()}))
            out.flush()


@contextlib.contextmanager
def _own_output() -> Any:
    """The pipe for frames alone; prints of anything else go to standard error."""
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        yield out


def _bound(settings: dict[str, Any]) -> None:
    """Die with the server, be the first to go when memory runs out, and never ask for more than allowed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to handle
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    if most := settings.get("address_bytes"):
        with contextlib.suppress(OSError, ValueError, ImportError):
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if kinder := settings.get("nice"):
        with contextlib.suppress(OSError, AttributeError):
            os.nice(kinder)


def _answer(question: dict[str, Any], out: BinaryIO) -> HttpReply:
    speech = language(question.get("lang", "en"))

    def progress(done: float) -> None:
        out.write(packed({"progress": done}))
        out.flush()

    try:
        return _answered(question, speech, progress)
    except Exception as problem:
        if os.environ.get("WHICHGPU_DEBUG"):
            import traceback

            traceback.print_exc()
        return internal(problem, speech)


def _answered(question: dict[str, Any], speech: Language, progress: Any) -> HttpReply:
    from whichgpu.surface.web.worker_answers import ANSWERS  # loads much, and is timed by whoever waits for `ready`

    return ANSWERS[question["kind"]](question, speech, progress)


def _sent(told: HttpReply, lang: str | None = None) -> dict[str, Any]:
    """Compressed here, where there is a processor to spare, and once for all who ask; each language has tags of its own."""
    from hashlib import blake2b
    from zlib import compress

    headers = {**({"Content-Language": lang} if lang else {}), **told.headers}
    tag = blake2b(told.body, digest_size=12, key=headers.get("Content-Language", "").encode()).hexdigest()
    is_packed = len(told.body) >= SMALLEST_PACKED and not told.content.startswith("image/png")
    body = compress(told.body, LEVEL, wbits=31) if is_packed else told.body
    return {
        "status": told.status, "content": told.content, "body": body, "packed": is_packed, "tag": tag, "headers": headers,
        "plain_bytes": len(told.body),
    }  # fmt: skip


def _resident() -> int:
    """Bytes of memory in use now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    main()
