"""A worker that writes to the file in OPENED_LOG whatever it opens, lists, runs or connects to beyond its own code and caches."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

OWN_FOLDERS = tuple(
    os.path.realpath(folder)
    for folder in (sys.prefix, sys.base_prefix, "/proc", "/sys", "/dev", "/usr", "/etc/localtime", *sys.path)
    if folder
)
OPENING = ("open", "os.listdir", "os.scandir", "glob.glob")
RUNNING = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "socket.getaddrinfo")


def watch(log: int, allowed: tuple[str, ...]) -> None:
    """Write every access outside the allowed folders to the file descriptor `log`, from now on."""

    def note(event: str, args: tuple[Any, ...]) -> None:
        if event in RUNNING:
            os.write(log, f"{event} {args!r}\n".encode())
        elif event in OPENING and args and isinstance(args[0], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(args[0]))
            if not path.startswith(allowed):
                os.write(log, f"{event} {path}\n".encode())

    sys.addaudithook(note)


if __name__ == "__main__":
    from whichgpu.surface.web.server import worker

    caches = tuple(os.environ[f"XDG_{kind}_HOME"] for kind in ("CACHE", "DATA", "CONFIG"))
    uploads = os.path.join(os.environ["TMPDIR"], "whichgpu-")
    file = Path(os.environ["OPENED_LOG"])
    watch(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), (*OWN_FOLDERS, *caches, uploads))
    worker.main()
