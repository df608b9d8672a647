"""Ten minutes of requests made from the schema find no fault of the server (schemathesis)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surface.web import Server

SECONDS = int(os.environ.get("SCHEMA_SECONDS", "600"))
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.long
def test_requests_generated_from_the_schema_never_give_a_server_error(server: Server, tmp_path: Path) -> None:
    path = Path(sys.executable).with_name("schemathesis")
    command = str(path) if path.is_file() else shutil.which("schemathesis")
    if command is None:
        pytest.skip("schemathesis is not installed")
    # The cases made from the schema's bounds are ten thousands and would leave no time for the others: they are drawn instead.
    done = subprocess.run(
        [command, "run", f"http://127.0.0.1:{server.port}/api/v1/openapi.json", "--max-time", str(SECONDS), "-c", CHECKS,
         "--phases", "examples,fuzzing,stateful", "--continue-on-failure", "--request-timeout", "60",
         "--suppress-health-check", "all", "--no-color"],
        capture_output=True, text=True, cwd=tmp_path, timeout=SECONDS + 300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    server.answers_others()
