"""A worker that hangs, dies, or eats memory when it gets a GPU of that name."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from whichgpu.surface.web import worker_answers as answering
from whichgpu.surface.web.server import worker

_rest = answering.ANSWERS["rest"]


def _misbehave(question: Any, language: Any, progress: Any) -> Any:
    query = question.get("query", "")
    if "name=spin" in query:
        while True:
            pass
    if "name=die" in query:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "name=eat" in query:
        blocks = []
        while True:
            blocks.append(np.empty(128 << 20, np.uint8))
    if "name=noise" in query:
        print("something a library prints", flush=True)
    if "name=slow" in query:
        time.sleep(1)
    return _rest(question, language, progress)


answering.ANSWERS["rest"] = _misbehave
if __name__ == "__main__":
    worker.main()
