"""A worker that starts quickly: echoes requests, reports progress, kills itself with the requested signal, or never ends."""

from __future__ import annotations

import os
import sys

from whichgpu.surface.web.server.frames import pack_frame, read_frame

if __name__ == "__main__":
    out = sys.stdout.buffer
    read_frame(sys.stdin.buffer)
    out.write(pack_frame({"ready": os.getpid()}))
    out.flush()
    while (question := read_frame(sys.stdin.buffer)) is not None:
        if "signal" in question:
            os.kill(os.getpid(), question["signal"])
        if "progress" in question:
            out.write(pack_frame({"progress": question["progress"]}))
            out.flush()
        while "spin" in question:  # It uses a CPU, or waits for one.
            pass
        out.write(pack_frame({"answer": question, "bytes": 0}))
        out.flush()
