"""A typed client made from the OpenAPI document by an independent generator (openapi-python-client) gets typed answers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.surface.web import Server
from whichgpu.base.messages import english
from whichgpu.surface.web.rest.openapi import document

# What a program does with the client: an answer, an error and a model's fields, each of its own type.
PROGRAM = """
import sys
from made.client import Client
from made.api.fit import fit
from made.api.gpus import gpus
from made.api.recommend import recommend
from made.models import FitAnswer, Gpu, RecommendAnswer, Refusal

client = Client(base_url=sys.argv[1])
t4 = gpus.sync(client=client, name=["T4"]).gpus[0]
assert isinstance(t4, Gpu) and t4.memory_label == "16 GB", t4
answer = fit.sync(client=client, model="llama-3.1-8b", gpu=["RTX 4090"])
assert isinstance(answer, FitAnswer) and answer.gpus[0].fits in ("fits", "tight"), answer
problem = gpus.sync(client=client, name=["H101"])
assert isinstance(problem, Refusal) and problem.error.kind == "unknown-gpu", problem
best = recommend.sync(client=client, task="train", model="resnet50", samples="1000000", epochs="1")
assert isinstance(best, RecommendAnswer) and float(best.answer.cost.amount) > 0, best
print("ok")
"""


def generator() -> str | None:
    path = Path(sys.executable).with_name("openapi-python-client")
    return str(path) if path.is_file() else shutil.which("openapi-python-client")


@pytest.mark.long
def test_a_generated_client_gets_typed_answers_and_errors(server: Server, tmp_path: Path) -> None:
    command = generator()
    if command is None:
        pytest.skip("openapi-python-client is not installed")
    schema, program = tmp_path / "openapi.json", tmp_path / "program.py"
    schema.write_bytes(server.get("/api/v1/openapi.json").body)
    program.write_text(PROGRAM)
    generated = subprocess.run(
        [command, "generate", "--path", str(schema), "--meta", "none", "--output-path", str(tmp_path / "made")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert generated.returncode == 0, generated.stdout[-3000:]
    # The body of an upload is a file, which the generator does not make functions for.
    assert [line for line in (generated.stdout + generated.stderr).splitlines() if line.startswith("WARNING")] == [
        "WARNING parsing POST /api/v1/uploads within jobs. Endpoint will not be generated."
    ]
    interpreter = Path(command).resolve().with_name("python")
    run = subprocess.run(
        [str(interpreter if interpreter.exists() else sys.executable), str(program), f"http://127.0.0.1:{server.port}"],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert run.stdout == "ok\n", run.stderr[-3000:]


def parts(value: Any) -> list[dict[str, Any]]:
    """Every object within a JSON value."""
    if isinstance(value, list):
        return [part for item in value for part in parts(item)]
    return [value, *(part for item in value.values() for part in parts(item))] if isinstance(value, dict) else []


def test_every_reference_has_a_target_and_every_array_says_of_what() -> None:
    """Without these, generators leave types out silently."""
    schema = document(english())
    for part in parts({"paths": schema["paths"], "schemas": schema["components"]["schemas"]}):
        if part.get("type") == "array":
            assert "items" in part, part
        if isinstance(part.get("$ref"), str):
            target: Any = schema
            for step in part["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            assert target, part
