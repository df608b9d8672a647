"""`--emit TARGET` on fit, estimate, recommend and plan: files in place of tables, and in the JSON of every surface."""

from __future__ import annotations

from typing import Any

import pytest

import whichgpu
from tests.surface.cli import call
from whichgpu.api.context import Context
from whichgpu.api.launch.emit import with_launch_files


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("fit", "llama-3.1-8b", "--gpu", "H100 SXM", "--batch", "8"), ("--max-num-seqs=8", "--max-model-len=5120")),
        (("estimate", "serve", "llama-3.1-70b", "--gpu", "H100 SXM", "--gpus", "4", "--tp", "4"), ("--tensor-parallel-size=4",)),
        pytest.param(
            ("recommend", "serve", "llama-3.1-8b", "--rate", "2/s", "--as-of", "2026-10-01"),
            ("--gpu-memory-utilization=0.92",),
            marks=pytest.mark.long,
        ),
        (("plan", "llama-3.1-8b", "--rate", "2/s", "--no-curve", "--no-simulate", "--as-of", "2026-10-01"), ("--max-num-seqs=",)),
    ],
)
@pytest.mark.sweep(3)
def test_every_verb_prints_a_vllm_line_with_its_estimate(argv: tuple[str, ...], words: tuple[str, ...]) -> None:
    reply = call(*argv, "--emit", "vllm")
    assert reply.code == 0, reply.err
    *head, line = reply.out.splitlines()
    published = argv[0] in ("plan", "recommend")  # They choose int8 and fp8, in which the catalog lists checkpoints.
    assert line.startswith(f"vllm serve {'RedHatAI/Meta-' if published else 'meta-llama/'}Llama-3.1-")
    assert published != ("--dtype=" in line or "--quantization=" in line)
    assert any(one.startswith("# Checkpoint: RedHatAI/") for one in head) == published
    assert any(one.startswith("# Context: ") for one in head)
    assert all(word in line for word in words)
    assert head[0] == "#!/bin/sh"
    assert all(one.startswith("#") for one in head)
    assert any("Estimate:" in one for one in head)
    assert any("whichgpu" in one and "20" in one for one in head)
    document = call(*argv, "--emit", "vllm", "--json").json()
    assert document["emitted"]["vllm.sh"].splitlines()[-1] == line
    assert "emitted" in call(*argv, "--json").json()


def test_lengths_that_vary_leave_the_longest_request_to_the_engine() -> None:
    argv = ("estimate", "serve", "llama-3.1-8b", "--gpu", "H100 SXM", "--rate", "2/s", "--count", "50", "--out-spread", "0.5")
    assert "--max-model-len" not in call(*argv, "--emit", "vllm").out


@pytest.mark.parametrize(("word", "target"), [("sbatch", "slurm"), ("k8s", "kubernetes"), ("ollama-modelfile", "ollama")])
def test_words_that_people_type_are_targets(word: str, target: str) -> None:
    argv = ("estimate", "decode", "llama-3.1-8b", "--gpu", "H100 SXM", "--emit")
    assert call(*argv, word).out == call(*argv, target).out != ""


def test_python_callers_get_the_files() -> None:
    answer = whichgpu.estimate("serve", "llama-3.1-8b", gpu="H100 SXM", max_sequences=32, emit="sglang")
    assert "--max-running-requests=32" in answer.emitted["sglang.sh"]
    assert "The estimate is for vllm" in answer.emitted["sglang.sh"]
    assert "--mem-fraction-static" not in answer.emitted["sglang.sh"]


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("estimate", "train", "resnet50", "--gpu", "T4", "--emit", "vllm"), 2),
        (("estimate", "train", "resnet50", "--gpu", "T4", "--emit", "megatron"), 2),
        (("estimate", "serve", "llama-3.1-8b", "--gpu", "T4", "--emit", "torchrun"), 2),
        (("plan", "llama-3.1-8b", "--rate", "2/s", "--no-curve", "--no-simulate", "--emit", "torchrun"), 2),
        (("fit", "resnet50", "--gpu", "T4", "--emit", "vllm"), 2),
        (("estimate", "batch", "sdxl", "--gpu", "T4", "--emit", "vllm"), 2),
        (("estimate", "forward", "sdxl", "--gpu", "T4", "--emit", "diffusers"), 2),
        (("estimate", "batch", "sdxl", "--gpu", "T4", "--precision", "nvfp4", "--emit", "diffusers"), 2),
        (("estimate", "serve", "llama-3.1-8b", "--emit", "vllm"), 2),
        (("estimate", "serve", "llama-3.1-8b", "--gpu", "T4", "--emit", "nomad"), 2),
        (("fit", "llama-3.1-405b", "--gpu", "T4", "--emit", "vllm"), 1),
        (("estimate", "serve", "llama-3.1-405b", "--gpu", "T4", "--emit", "vllm"), 1),
        (("estimate", "batch", "flux", "--gpu", "T4", "--emit", "docker"), 1),
    ],
)
def test_what_cannot_be_launched_is_an_error_and_prints_no_command(argv: tuple[str, ...], code: int) -> None:
    reply = call(*argv)
    assert reply.code == code
    assert "vllm serve" not in reply.out
    assert "error:" in reply.err


@pytest.mark.parametrize(
    "argv",
    [
        ("fit", "llama-3.1-8b", "--task", "finetune", "--gpu", "H100 SXM", "--lora-rank", "16"),
        ("estimate", "train", "resnet50", "--gpu", "T4", "--batch", "64"),
        ("recommend", "finetune", "llama-3.1-8b", "--samples", "1000", "--as-of", "2026-10-01"),
    ],
)
@pytest.mark.sweep(3)
def test_training_is_launched_with_its_batch_and_estimate(argv: tuple[str, ...]) -> None:
    reply = call(*argv, "--emit", "torchrun")
    assert reply.code == 0, reply.err
    *head, line = reply.out.splitlines()
    assert line.startswith("torchrun --nnodes=1 --nproc-per-node=")
    assert any("Estimate: batch" in one for one in head)
    files = call(*argv, "--emit", "deepspeed", "--json").json()["emitted"]
    assert set(files) == {"deepspeed.sh", "deepspeed.json"}


@pytest.mark.parametrize(
    "argv",
    [
        ("fit", "sdxl", "--gpu", "L4"),
        ("estimate", "batch", "sdxl", "--gpu", "L4", "--denoising-steps", "30"),
        pytest.param(("recommend", "images", "sdxl", "--samples", "1000", "--as-of", "2026-10-01"), marks=pytest.mark.long),
    ],
)
def test_pictures_are_made_with_a_script_alone_or_in_a_container(argv: tuple[str, ...]) -> None:
    reply = call(*argv, "--emit", "diffusers")
    assert reply.code == 0, reply.err
    assert "StableDiffusionXLPipeline.from_pretrained(" in reply.out
    assert ("num_inference_steps=30," in reply.out) == ("--denoising-steps" in argv)
    assert reply.out.startswith("# whichgpu ")
    assert "# Estimate: " in reply.out
    docker = call(*argv, "--emit", "docker").out
    assert "docker run" in docker
    assert "cat > generate.py" in docker


@pytest.mark.parametrize("target", ["docker", "kubernetes", "dstack"])
def test_training_runs_in_containers_on_nodes_named_as_the_tool_does(target: str) -> None:
    argv = ("estimate", "train", "resnet50", "--gpu", "H100 SXM", "--gpus", "16", "--nodes", "2", "--batch", "4096")
    text = call(*argv, "--emit", target).out
    assert "torchrun --nnodes=2 --nproc-per-node=8" in text
    assert "H100 SXM:" not in text
    assert ("H100:8" in text) == (target == "dstack")


def test_the_length_of_a_run_is_in_every_training_file() -> None:
    request: dict[str, Any] = {"gpu": "H100 SXM", "gpus": 8, "zero": 3, "batch": 64, "micro_batch": 1, "tokens": 10**9}
    answer = whichgpu.estimate("train", "llama-3.1-8b", **request)
    steps = 7630  # 1e9 tokens in batches of 64 samples of 2048 tokens, rounded up
    words = {
        "torchrun": f"--max_steps={steps}",
        "accelerate": f"--max_steps={steps}",
        "deepspeed": f"--max_steps={steps}",
        "torchtitan": f"--training.steps={steps}",
        "megatron": f"--train-iters={steps}",
        "slurm": f"--max_steps={steps}",
    }
    texts = {
        target: "".join(with_launch_files(answer, {**request, "emit": target}, Context()).emitted.values()) for target in words
    }
    assert {target for target, word in words.items() if word not in texts[target]} == set()
    hours, minutes, _ = (int(part) for part in texts["slurm"].partition("--time=")[2].split("\n")[0].split(":"))
    assert answer.run is not None
    start = 60 * (60 * hours + minutes) - answer.run.time.high
    assert 600 <= start < 660  # Start-up is in the limit, which comes from the upper end of the range.
