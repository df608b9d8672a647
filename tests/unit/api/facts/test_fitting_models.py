"""`models --fits` lists what a card runs; `models --local` lists the models on this disk, which are also found by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import whichgpu as wg
from whichgpu.workload.model_files.local import find_local, local_models

TINY = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
        "vocab_size": 1000}  # fmt: skip


def test_a_small_card_runs_small_models_in_full_precision_and_larger_ones_quantised() -> None:
    answer = wg.models(["llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "resnet50"], fits="RTX 3060 12GB")
    rows = {row.id: row for row in answer.models}
    assert list(rows) == ["llama-3.1-8b", "llama-3.2-1b"]  # the largest first; 70B does not fit, ResNet writes no text
    assert (rows["llama-3.1-8b"].precision, rows["llama-3.2-1b"].precision) == ("q8_0", "bf16")
    small = rows["llama-3.2-1b"].throughput
    assert small is not None
    assert small.low < small.value < small.high
    assert rows["llama-3.2-1b"].needed is not None


def test_a_card_sold_with_several_memories_is_the_one_launched_first() -> None:
    assert wg.models(["llama-3.2-1b"], fits="RTX 3060").gpu_name == "RTX 3060 12GB"
    with pytest.raises(wg.UsageError, match="several GPUs"):
        wg.models(["llama-3.2-1b"], fits="Ampere")


def test_models_of_hugging_face_and_ollama_are_found_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "hub" / "models--org--tiny" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(TINY))
    manifest = tmp_path / "ollama" / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "1b"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:12"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    (tmp_path / "ollama" / "blobs").mkdir()
    (tmp_path / "ollama" / "blobs" / "sha256-12").write_bytes(b"GGUF")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [(one.name, one.place) for one in local_models()] == [("hf:org/tiny", "huggingface"), ("tiny:1b", "ollama")]
    assert find_local("org/tiny") == snapshot / "config.json"
    assert find_local("other") is None
    first, second = wg.models(local=True).local
    assert (first.name, second.parameters) == ("hf:org/tiny", None)  # The blob is no whole GGUF file.
    assert first.parameters is not None
    assert wg.estimate("decode", "org/tiny", gpu="RTX 4090").time is not None
