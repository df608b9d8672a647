"""A server with little patience and workers that can be made to misbehave, for the tests of what it survives."""

from __future__ import annotations

import sys
from typing import Any

from whichgpu.surface.web.server.gate import AccessRules, host_names
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.serve import serve
from whichgpu.surface.web.server.service import Service

SMALL: dict[str, Any] = {
    "head_seconds": 1.5, "body_seconds": 1.5, "idle_seconds": 2, "unread_seconds": 1.5, "answer_seconds": 3.0,
    "worker_bytes": 512 << 20, "worker_address_bytes": 1 << 30, "client_waiting": 6, "client_jobs": 3, "cache_bytes": 1 << 20,
    "upload_bytes": 1 << 20, "uploads": 3,
}  # fmt: skip
if __name__ == "__main__":
    kinds = {name: float if "seconds" in name else int for name in Limits.__struct_fields__}
    words = dict(word.split("=") for word in sys.argv[1:])
    token, count = words.pop("token", None), int(words.pop("workers", "2"))
    catalog = words.pop("catalog", None)
    settings = {name: kinds[name](value) for name, value in words.items()}
    service = Service(
        Limits(**(SMALL | settings)), count, module="tests.surface.web_bad_worker", warm=(), catalog=catalog, draws=False
    )
    serve(
        "127.0.0.1", 0, service, AccessRules(host_names("127.0.0.1"), token), lambda url: print(url, file=sys.stderr, flush=True)
    )
