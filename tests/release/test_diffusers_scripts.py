"""Emitted scripts name classes, arguments and parts that diffusers has, and one makes pictures with random weights on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whichgpu
from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.diffusers_script import PRECISIONS

CHECKER = Path(__file__).with_name("diffusers_check.py")
PACKAGES = (
    *("diffusers==0.42.1", "torch==2.13.0", "transformers==5.19.0", "accelerate==1.15.0", "torchao==0.18.0", "bitsandbytes"),
    *("numpy", "pillow", "imageio", "imageio-ffmpeg", "sentencepiece", "ftfy"),
)
MODELS = tuple(row.id for row in Catalog().models if row.kind == "diffusion")
# Precisions, guidance, offloading and engines beside the defaults.
OTHERS: tuple[dict[str, Any], ...] = (
    *({"precision": precision} for precision in PRECISIONS),
    {"guidance": True},
    {"guidance": False},
    {"offload": "parts"},
    {"engine": "pytorch-compile"},
    {"gpus": 4, "batch": 8},
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with diffusers."""
    venv = tmp_path_factory.mktemp("diffusers")
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=300)
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        pytest.skip(f"no package index with diffusers: {done.stderr.strip()[-200:]}")
    return venv / "bin" / "python"


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the scripts of every diffusion model, and of some with other options."""
    folder = tmp_path_factory.mktemp("scripts")
    questions = [(model, dict[str, Any]()) for model in MODELS]
    questions += [(model, more) for model in ("sdxl", "flux.1-dev", "qwen-image", "wan2.2-a14b") for more in OTHERS]
    for number, (model, more) in enumerate(questions):
        answer = whichgpu.estimate(**{"task": "batch", "model": model, "gpu": "B300", "emit": "diffusers", **more})
        (folder / f"{number:03}-{model}.py").write_text(answer.emitted["generate.py"], encoding="utf-8")
    return folder


def check(python: Path, folder: Path) -> dict[str, dict[str, Any]]:
    done = subprocess.run([str(python), str(CHECKER), str(folder)], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    results: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return results


@pytest.mark.long
def test_scripts_of_every_model_use_what_diffusers_has(python: Path, scripts: Path) -> None:
    results = check(python, scripts)
    assert {name: one["problem"] for name, one in results.items() if one["problem"]} == {}
    assert len(results) == len(MODELS) + 4 * len(OTHERS)


@pytest.mark.long
def test_a_wrong_word_in_a_script_is_noticed(python: Path, scripts: Path, tmp_path: Path) -> None:
    changes = (
        ("num_inference_steps=", "steps="),
        ("Pipeline.from_pretrained", "Pipelines.from_pretrained"),
        ("torch.float16", "torch.half16"),
        ("pipeline.unet", "pipeline.transformer"),
        ("quant_mapping=", "mapping="),
        ('"transformer_2":', '"transformer_3":'),
        ("enable_model_cpu_offload(gpu_id=", "enable_model_cpu_offload(gpu="),
        (".frames", ".videos"),
        ("negative_prompt=", "negative_prompts="),
        ("width=832", "width=833"),
        ("[RANK::RANKS]", "[RANKS::RANKS]"),
    )
    for number, (old, new) in enumerate(changes):
        text = next(text for one in sorted(scripts.iterdir()) if old in (text := one.read_text(encoding="utf-8")))
        (tmp_path / f"{number}.py").write_text(text.replace(old, new), encoding="utf-8")
    results = check(python, tmp_path)
    assert {name for name, one in results.items() if one["problem"]} == {f"{number}.py" for number in range(len(changes))}


@pytest.mark.long
def test_a_script_makes_pictures_with_random_weights(python: Path, tmp_path: Path) -> None:
    weights = tmp_path / "tiny"
    subprocess.run([str(python), str(CHECKER), "--tiny", str(weights)], check=True, timeout=600)
    request: dict[str, Any] = {"task": "batch", "model": "sd-1.5", "gpu": "T4", "image": 64, "denoising_steps": 2, "batch": 2}
    script = whichgpu.estimate(**request, precision="fp32", emit="diffusers").emitted["generate.py"]
    (tmp_path / "generate.py").write_text(script, encoding="utf-8")
    (tmp_path / "prompts.txt").write_text("a b\nc d\ne f\n", encoding="utf-8")
    environment = os.environ | {"MODEL": str(weights), "CUDA_VISIBLE_DEVICES": ""}
    for rank in ("0", "1"):  # as torchrun starts them on two GPUs
        ranks = {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank}
        subprocess.run([str(python), "generate.py"], cwd=tmp_path, env=environment | ranks, check=True, timeout=600)
    pictures = sorted((tmp_path / "output").iterdir())
    assert [one.name for one in pictures] == ["00000.png", "00001.png", "00002.png"]
    assert all(one.read_bytes().startswith(b"\x89PNG") for one in pictures)
