"""Serve the pages with time limits that a busy machine does not reach; the argument is the number of workers."""

from __future__ import annotations

import sys

from whichgpu.surface.web.server.gate import AccessRules, host_names
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.serve import serve
from whichgpu.surface.web.server.service import Service

PATIENT = Limits(answer_seconds=300, picture_seconds=300, queue_seconds=600, costly_queue_seconds=600)

if __name__ == "__main__":
    service, rules = Service(PATIENT, int(sys.argv[1])), AccessRules(host_names("127.0.0.1"))
    serve("127.0.0.1", 0, service, rules, lambda url: print(url, file=sys.stderr, flush=True))
