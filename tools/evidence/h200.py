"""Measured steps of one H200, as requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from evidence.names import family, table
from whichgpu.catalog.evidence import Kind, Measurement

_OPTIMIZERS = {"sgdm": "sgd-momentum"}
_GPU = "h200-sxm"
_YEAR = 2026
LLAMA_CPP_MICRO_BATCH = 512  # tokens; llama-bench's default (n_ubatch)


def lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every line."""
    with file.open() as stream:
        for number, line in enumerate(stream, start=1):
            yield number, json.loads(line)


def _measured(source: str, number: int, kind: Kind, milliseconds: float, model: str, **request: Any) -> Measurement:
    fields = {"task": kind, "model": model, "gpu": _GPU, "gpus": 1, "year": _YEAR, **request}
    kept = {key: value for key, value in fields.items() if value is not None}
    return Measurement(source, _GPU, kept, milliseconds / 1e3, kind, "high", family(model), number)


def training(source: str, number: int, row: Mapping[str, Any], milliseconds: float, engine: str) -> Measurement:
    """A training step; vision models run channels-last at 224 px."""
    vision = row.get("seq") is None and not row["model"].startswith("mlp")
    return _measured(
        source,
        number,
        "train",
        milliseconds,
        row["model"].replace("mlp-", "mlp:"),
        precision=row["precision"],
        batch=row["batch"],
        seq_in=row.get("seq"),
        image=224 if vision else None,
        memory_format="channels_last" if vision else None,
        optimizer=_OPTIMIZERS.get(row["opt"], row["opt"]),
        checkpointing="full" if row.get("ckpt") else None,
        lora_rank=row.get("lora"),
        engine=engine,
    )


def _forward(source: str, number: int, row: Mapping[str, Any]) -> Iterator[Measurement]:
    bert = row["model"].startswith("bert")
    common = {
        "precision": "fp32-default" if row["precision"] == "fp32" else row["precision"],
        "batch": row["batch"],
        "seq_in": row.get("seq"),
        "image": None if bert else 224,
        "memory_format": None if bert else "channels_last",
    }
    yield _measured(f"{source}-eager", number, "forward", row["eager_ms"], row["model"], engine="pytorch", **common)
    if not bert and row.get("graph_ms"):  # BERT's graph picked a slow attention kernel
        yield _measured(f"{source}-graph", number, "forward", row["graph_ms"], row["model"], engine="cuda-graphs", **common)


def _inference(source: str, number: int, row: Mapping[str, Any]) -> Measurement:
    kind: Kind = row["task"]
    return _measured(
        source,
        number,
        kind,
        row["ms"],
        row["model"],
        precision=row["precision"],
        batch=row["batch"],
        seq_in=row["context"] if kind == "decode" else row["seq"],
        engine="cuda-graphs" if kind == "decode" else "pytorch-compile",
    )


# Models of the serving engine as the catalog names them, and flags of rows that do not measure a step: they include the
# compilation of kernels, or routing skewed by random weights.
_ENGINE_MODELS = {
    "llama31-8b": "llama-3.1-8b",
    "llama31-8b-fp8": "llama-3.1-8b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "gpt-oss-20b": "gpt-oss-20b",
    "deepseek-v2-lite": "deepseek-v2-lite",
}
_ENGINE_FLAGS = {"uneven-runs", "jit", "jit-tail", "routing-skewed", "routing-doubtful"}


def engine_steps(folder: Path) -> Iterator[Measurement]:
    """Decode steps and prefills of vLLM 0.26; host-bound prefills are reproducible and used, although flagged as uneven."""
    precisions: dict[str, str] = {}
    for number, row in lines(folder / "vllm.jsonl"):
        model, kind = row["model"], row["task"]
        if kind == "model":
            precisions[model] = row["precision"]
        if kind not in ("decode", "prefill") or (_ENGINE_FLAGS & set(row["flags"]) and "host-bound" not in row["flags"]):
            continue
        yield _measured(
            "h200-vllm",
            number,
            kind,
            row["ms"],
            _ENGINE_MODELS[model],
            precision=precisions[model],
            kv_precision="bf16",
            batch=row["batch"],
            seq_in=row["context"] if kind == "decode" else row["seq"],
            engine="vllm",
        )


def more_engine_steps() -> Iterator[Measurement]:
    """Steps of vLLM 0.26 on further models, measured later in the same way as those of `engine_steps` (h200_vllm.csv).

    `left_out` is the reason why a row measures something else: compilation of kernels, or routing by random weights.
    """
    for number, row in enumerate(table("h200_vllm"), start=2):
        if not row["left_out"]:
            kind: Kind = "decode" if row["task"] == "decode" else "prefill"
            yield _measured(
                "h200-vllm-2",
                number,
                kind,
                float(row["ms"]),
                row["model"],
                precision=row["precision"],
                kv_precision=row["kv_precision"],
                batch=int(row["batch"]),
                seq_in=int(row["tokens"]),
                engine="vllm",
            )


def llama_cpp_steps() -> Iterator[Measurement]:
    """Steps of llama.cpp of September 2026 (v0.5.0) with random weights, by llama-bench and llama-batched-bench."""
    for number, row in enumerate(table("h200_llama_cpp"), start=2):
        measured = _measured(
            "h200-llama.cpp",
            number,
            "decode" if row["task"] == "decode" else "prefill",
            float(row["ms"]),
            row["model"],
            precision=row["precision"],
            batch=int(row["batch"]),
            seq_in=int(row["tokens"]),
            engine="llama.cpp",
        )
        cached = int(row["cached_tokens"])
        yield replace(measured, cached_tokens=cached, micro_batch_tokens=LLAMA_CPP_MICRO_BATCH if cached else 0)


def measured_on_h200(folder: Path) -> tuple[list[Measurement], int]:
    """Every step measured on the H200, and the number of rows that are errors."""
    rows: list[Measurement] = []
    errors = 0
    for number, row in lines(folder / "train.jsonl"):
        if "step_ms" in row:
            rows.append(training("h200-train", number, row, row["step_ms"], "pytorch"))
        else:
            errors += 1
    for number, row in lines(folder / "infer.jsonl"):
        if row["task"] == "forward":
            rows.extend(_forward("h200-forward", number, row))
        else:
            rows.append(_inference(f"h200-{row['task']}", number, row))
    for number, row in lines(folder / "quant_moe.jsonl"):
        if row["task"] == "train":
            rows.append(training("h200-compiled", number, row, row["ms"], row["engine"]))
        else:
            rows.append(_inference("h200-quant" if row["moe"] is None else "h200-moe", number, row))
    rows.extend((*engine_steps(folder), *more_engine_steps(), *llama_cpp_steps()))
    return rows, errors
