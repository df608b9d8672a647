"""`whichgpu web` whose first worker sends the server's group of processes a signal while it starts, as Ctrl-C does."""

from __future__ import annotations

import sys
from functools import partial

from whichgpu.__main__ import main
from whichgpu.surface.web.server import service

if __name__ == "__main__":
    service.Service = partial(service.Service, module="tests.surface.web_stopping_worker", draws=False)  # type: ignore[assignment, misc]
    sys.exit(main())
