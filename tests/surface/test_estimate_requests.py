"""`estimate --requests`: one JSON object a line in, one a line out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.surface.cli import COMMAND, assert_refused, call, environment
from whichgpu.api.workloads.remarks import MAX_LINE_BYTES
from whichgpu.api.workloads.stream import estimate_requests
from whichgpu.base.parallel import process_pool
from whichgpu.surface.commands import line_reader as lines
from whichgpu.surface.commands import request_lines as many
from whichgpu.workload.workload import FIELDS

GOOD = {"id": "a", "task": "decode", "model": "llama-3.1-8b", "gpu": "H200 SXM", "batch": 4, "seq_in": 2048}
CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 131072, "rope_scaling": None,
    "tie_word_embeddings": True,
}  # fmt: skip


def estimate_lines(tmp_path: Path, *lines: str | bytes | dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    path = tmp_path / "requests.jsonl"
    texts = [
        line if isinstance(line, bytes) else (json.dumps(line) if isinstance(line, dict) else line).encode() for line in lines
    ]
    path.write_bytes(b"\n".join(texts))
    reply = call("estimate", "--requests", str(path))
    return reply.code, [json.loads(line) for line in reply.out.splitlines()]


def test_replies_are_in_order_with_the_contract_s_fields(tmp_path: Path) -> None:
    code, replies = estimate_lines(tmp_path, GOOD, {**GOOD, "id": 7, "task": "train", "model": CONFIG, "gpu": None})
    assert code == 0
    assert [reply["id"] for reply in replies] == ["a", 7]
    first, second = replies
    assert {"id", "ok", "request", "memory", "memory_device", "memory_parts", "fits", "warnings", "basis", "sources"} <= set(
        first
    )
    assert set(FIELDS) <= set(first["request"])
    assert first["request"]["precision"] == "bf16"
    assert "precision" in first["request"]["defaults"]
    assert "batch" not in first["request"]["defaults"]
    assert first["fits"] == "fits"
    assert "fits" not in second
    assert second["request"]["model"] == CONFIG
    assert {"time", "time_device", "time_host", "throughput", "bound", "tier"} <= set(first)
    assert not {"time", "throughput"} & set(second)  # no GPU was named


def test_a_bad_line_does_not_cost_the_others(tmp_path: Path) -> None:
    lines: list[str | bytes | dict[str, Any]] = [
        GOOD, "{not json", "", b"\xff\xfe", "[1]", {**GOOD, "batch": -1}, {**GOOD, "model": "nonesuch"}, {**GOOD, "gpu": "H100"},
        {"id": 3}, {**GOOD, "model": {**CONFIG, "num_attention_heads": 0}}, {**GOOD, "id": "z"},
    ]  # fmt: skip
    code, replies = estimate_lines(tmp_path, *lines)
    assert code == 0
    assert [reply["ok"] for reply in replies] == [True, *[False] * 8, True]
    assert replies[-1]["id"] == "z"
    for reply in replies[1:-1]:
        assert set(reply) == {"id", "ok", "line", "error"}
        several = {"fields"} if reply["line"] == 9 else set()  # task and model are both missing
        assert set(reply["error"]) == {"kind", "message", "hint", "choices"} | several
        assert reply["error"]["message"]
        assert reply["error"]["hint"]
    assert [reply["line"] for reply in replies[1:-1]] == [2, 4, 5, 6, 7, 8, 9, 10]
    assert "batch" in replies[4]["error"]["message"]
    assert "num_attention_heads" in replies[8]["error"]["message"]
    assert "H100 SXM" in replies[6]["error"]["choices"]


def test_all_bad_is_a_failure_and_none_at_all_too(tmp_path: Path) -> None:
    code, replies = estimate_lines(tmp_path, "nonsense")
    assert code == 2
    assert replies[0]["ok"] is False
    empty = tmp_path / "empty"
    empty.write_text("\n\n")
    assert_refused(call("estimate", "--requests", str(empty)), 2)
    assert_refused(call("estimate", "--requests", str(tmp_path / "absent")), 2)
    assert_refused(call("estimate", "--requests", str(tmp_path)), 2)


def test_an_endless_line_is_refused_and_passed_over(tmp_path: Path) -> None:
    code, replies = estimate_lines(tmp_path, json.dumps({**GOOD, "model": "x" * (3 * MAX_LINE_BYTES)}), GOOD)
    assert code == 0
    assert [reply["ok"] for reply in replies] == [False, True]
    assert replies[0]["error"]["kind"] == "line-too-long"


def test_replies_stream_as_requests_come() -> None:
    with subprocess.Popen(
        [*COMMAND, "estimate", "--requests", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for id in range(3):
            child.stdin.write(json.dumps({**GOOD, "id": id}).encode() + b"\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["id"] == id
        child.stdin.close()
        assert child.wait(timeout=30) == 0


def test_the_echo_of_a_request_gives_the_same_answer(tmp_path: Path) -> None:
    _, (first,) = estimate_lines(tmp_path, GOOD)
    _, (again,) = estimate_lines(tmp_path, first["request"])
    assert again["memory"] == first["memory"]
    assert again["request"]["defaults"] == []


@pytest.mark.parametrize("task", ["train", "finetune", "serve", "batch", "prefill", "decode", "forward", "embed"])
def test_every_task_is_answered(tmp_path: Path, task: str) -> None:
    code, (reply,) = estimate_lines(tmp_path, {"task": task, "model": "llama-3.2-1b"})
    assert code == 0, reply
    assert reply["memory"]["value"] > 2 * 10**9


@pytest.mark.parametrize(
    ("source", "bound", "reason"),
    [
        ("/dev/zero", "MAX_SKIPPED_BYTES", "line 1 of /dev/zero does not end"),
        ("/dev/urandom", "MAX_INVALID_LINES", "none of the first 100 lines"),
    ],
)
def test_endless_input_is_refused_with_a_reason(source: str, bound: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless line, and endless lines that are no requests."""
    monkeypatch.setattr(lines, bound, {"MAX_SKIPPED_BYTES": 4 * MAX_LINE_BYTES, "MAX_INVALID_LINES": 100}[bound])
    reply = call("estimate", "--requests", source)
    assert reply.code == 2
    assert f"error: {reason}" in reply.err
    assert 'hint: one JSON object a line: {"task"' in reply.err
    assert all(json.loads(line)["ok"] is False for line in reply.out.splitlines())


def test_bad_lines_of_a_file_never_make_it_give_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_INVALID_LINES", 10)
    code, replies = estimate_lines(tmp_path, *["nonsense"] * 100, GOOD)
    assert code == 0
    assert len(replies) == 101


def test_lines_read_together_are_answered_to_the_bit_as_if_alone() -> None:
    """Requests that differ in the GPU alone share one evaluation; a bad one among them has its own error."""
    models = [
        ("decode", "llama-3.2-1b"),
        ("serve", "llama-3.2-1b"),
        ("train", "bert-large"),
        ("forward", "vit_b_16"),
        ("train", "resnet18"),
    ]
    gpus = ["H200 SXM", "T4", "RTX 4090", "MI300X", "TPU v4", "V100 SXM 16GB", "A100", "nonesuch"]
    requests = [
        {"id": f"{task} {gpu}", "task": task, "model": model, "gpu": gpu, "batch": 4} for task, model in models for gpu in gpus
    ]
    texts = [b"{bad", *(json.dumps(request).encode() for request in requests)]
    alone, joined = (list(estimate_requests(texts, together=together)) for together in (1, 100))
    assert [reply.answer for reply in alone] == [reply.answer for reply in joined]
    assert [(reply.line, reply.id, str(reply.error)) for reply in alone] == [
        (reply.line, reply.id, str(reply.error)) for reply in joined
    ]
    assert sum(reply.answer is not None for reply in joined) == 30


def a_long_file(tmp_path: Path) -> tuple[Path, int]:
    """Requests of several models, one of them a configuration, with bad and blank lines between."""
    models: list[Any] = ["llama-3.2-1b", "resnet18", "bert-large", "nonesuch", CONFIG]
    tasks = ("decode", "forward", "forward", "forward", "decode")
    requests = [{**GOOD, "id": n, "model": models[n % 5], "batch": n, "task": tasks[n % 5]} for n in range(40)]
    texts = [json.dumps(one) for one in requests]
    texts[7:7] = ["{not json", "", "[1]"]
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(texts))
    return path, len(texts) - 1


@pytest.mark.long
def test_a_long_file_on_several_processes_is_answered_to_the_bit_as_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lines_asked = a_long_file(tmp_path)
    alone = call("--lang", "ko", "estimate", "--requests", str(path))
    monkeypatch.setattr(many, "MIN_POOL_LINES", 10)
    monkeypatch.setattr(many, "cores", lambda: 2)
    outputs: list[int] = []
    run = process_pool.ProcessPool.run

    def counted(self: process_pool.ProcessPool, function: Any, items: list[Any]) -> Any:
        outputs.append(len(items))
        return run(self, function, items)

    monkeypatch.setattr(process_pool.ProcessPool, "run", counted)
    spread = call("--lang", "ko", "estimate", "--requests", str(path))
    assert spread == alone
    assert outputs
    assert outputs[0] >= 5  # a part for each model
    assert len(spread.out.splitlines()) == lines_asked
    monkeypatch.setattr(many, "cores", lambda: 1)
    assert call("--lang", "ko", "estimate", "--requests", str(path)) == alone
    assert len(outputs) == 1


def test_lines_of_one_model_are_distributed_over_processes() -> None:
    lines_asked = [(n, json.dumps({**GOOD, "id": n}).encode()) for n in range(1, 101)] + [
        (101, b"{bad"),
        (102, b'{"model":{"a":1}}'),
    ]
    parts = many._by_model(lines_asked, 25)
    assert [len(part) for part in parts] == [25, 25, 25, 25, 1, 1]
    assert sorted(line for part in parts for line in part) == lines_asked


def test_without_worker_processes_the_work_is_serial(monkeypatch: pytest.MonkeyPatch) -> None:
    import multiprocessing

    class Without:
        def Lock(self) -> None:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(multiprocessing, "get_context", lambda _: Without())
    assert process_pool.cores() == 1


def test_a_pipe_without_a_writer_is_reported(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [*COMMAND, "estimate", "--requests", str(pipe)], stdout=-1, stderr=-1, text=True, env=environment()
    )
    assert process.stderr is not None
    assert process.stderr.readline() == f"waiting until another program writes to the pipe {pipe}\n"
    pipe.write_text(json.dumps(GOOD) + "\n")
    out, _ = process.communicate(timeout=120)
    assert json.loads(out)["ok"]
