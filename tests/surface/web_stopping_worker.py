"""A worker that sends the server's group of processes a signal as it starts, and then starts as usual or never gets ready."""

from __future__ import annotations

import os
import signal
import time

from whichgpu.surface.web.server.worker import main

if __name__ == "__main__":
    os.killpg(os.getpgid(os.getppid()), signal.Signals[os.environ["STOP_SIGNAL"]])
    if os.environ["STOP_WORKER"] == "ready":
        main()
    else:
        time.sleep(600)
