"""Emitted files of forty answers pass the parsers and schemas of the tools they are for, and a mutation of one fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import whichgpu
from whichgpu.api.context import Context
from whichgpu.api.launch.emit import launch_files_by_target
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.serve_command import serve_words, shell_line
from whichgpu.workload.decoding.offload import Offload
from whichgpu.workload.decoding.speculative import METHODS, Speculative

CHECKER, ENGINE_CHECKER = (Path(__file__).with_name(name) for name in ("emitted_check.py", "engine_check.py"))
WITH_DEPENDENCIES = ("kubernetes-validate==1.37.0", "dstack==0.22.5", "awscli==1.46.2")
ALONE = ("skypilot==0.14.1", "google-cloud-aiplatform==2.7.0")  # Their schemas and names need none of their dependencies.
# Tools whose own argument parsers check the lines; they need torch, but few of their other dependencies.
TOOLS = ("vllm==0.33.0", "sglang==0.5.23", "torchtitan==0.3.0", "accelerate==1.15.0")
TORCH = ("torch==2.13.0", "numpy", "psutil", "pyyaml", "packaging", "huggingface-hub", "safetensors", "tqdm")
PARSING = (
    *("pydantic", "msgspec", "regex", "cbor2", "transformers==5.19.0", "aiohttp", "cloudpickle", "pyzmq", "gguf", "cachetools"),
    *("blake3", "openai", "prometheus-client", "fastapi", "uvicorn", "py-cpuinfo", "pillow", "requests"),
    *("tyro", "spmd_types==0.2.3", "torchdata", "torch_checkpointing", "einops", "datasets", "tensorboard"),
)
DAY = "2026-10-01"
TARGETS = (
    *("kubernetes", "karpenter", "dstack", "skypilot", "slurm", "docker", "cloud-cli"),
    *("vllm", "sglang", "torchrun", "accelerate"),
)

QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        ("recommend", {"task": "serve", "model": model, "rate": rate, "as_of": DAY, **more})
        for model in ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "qwen3-32b")
        for rate, more in (
            ("2/s", {}),
            ("5/s", {"provider": "aws"}),
            ("3/s", {"provider": "gcp"}),
            ("2/s", {"term": "spot", "sellers": "any"}),
        )
    ),
    *(
        ("recommend", {"task": "batch", "model": model, "samples": 100_000, "as_of": DAY})
        for model in ("llama-3.1-8b", "qwen3-32b")
    ),
    *(
        ("recommend", {"task": "finetune", "model": model, "samples": 2000, "as_of": DAY, **more})
        for model in ("llama-3.1-8b", "llama-3.1-70b")
        for more in ({}, {"lora_rank": 16}, {"provider": "aws"}, {"provider": "azure"})
    ),
    *(
        ("recommend", {"task": "train", "model": model, "samples": 1_000_000, "as_of": DAY})
        for model in ("resnet50", "bert-large")
    ),
    *(
        ("estimate", {"task": "serve", "model": "llama-3.1-8b", "gpu": gpu, "as_of": DAY})
        for gpu in ("H100 SXM", "L4", "MI300X", "A100-SXM-80GB")
    ),
    *(
        ("recommend", {"task": "images", "model": model, "samples": 1000, "as_of": DAY, **more})
        for model in ("sdxl", "flux.1-dev", "wan2.1-14b")
        for more in ({"provider": "aws"}, {"provider": "gcp", "term": "spot"})
    ),
    ("estimate", {"task": "batch", "model": "qwen-image", "gpu": "H100 SXM", "gpus": 16, "nodes": 2, "batch": 16, "as_of": DAY}),
    ("estimate", {"task": "train", "model": "llama-3.1-8b", "gpu": "H100 SXM", "gpus": 16, "nodes": 2, "zero": 3, "as_of": DAY}),
    (
        "estimate",
        {
            "task": "train",
            "model": "llama-3.1-70b",
            "gpu": "H100 SXM",
            "gpus": 32,
            "nodes": 4,
            "tp": 8,
            "pp": 4,
            "batch": 64,
            "micro_batch": 1,
            "tokens": 1e9,
            "as_of": DAY,
        },
    ),
    ("estimate", {"task": "train", "model": "resnet50", "gpu": "MI300X", "gpus": 8, "batch": 2048, "as_of": DAY}),
    ("estimate", {"task": "serve", "model": "llama-3.1-405b", "gpu": "H100 SXM", "gpus": 16, "nodes": 2, "as_of": DAY}),
    *(("estimate", {"task": task, "model": "llama-3.1-8b", "gpu": "L4", "as_of": DAY}) for task in ("prefill", "decode")),
    ("estimate", {"task": "embed", "model": "bge-large", "gpu": "L4", "samples": 1000, "as_of": DAY}),
    ("recommend", {"task": "embed", "model": "bge-large", "samples": 1_000_000, "provider": "azure", "as_of": DAY}),
    ("recommend", {"task": "serve", "model": "llama-3.2-1b", "gpu": "T4", "provider": "gcp", "rate": "1/s", "as_of": DAY}),
    ("recommend", {"task": "rerank", "model": "bge-reranker-large", "samples": 1_000_000, "as_of": DAY}),
    ("recommend", {"task": "chat", "model": "llama-3.1-8b", "provider": "runpod", "as_of": DAY}),
    ("recommend", {"task": "transcribe", "model": "whisper-large-v3", "rate": "1/s", "as_of": DAY}),
    *(("fit", {"model": model, "gpu": "H100 SXM"}) for model in ("llama-3.1-8b", "mistral-7b", "qwen2.5-7b")),
    *(
        ("plan", {"what": model, "rate": "3/s", "curve": False, "simulate": False, "as_of": DAY, **more})
        for model in ("llama-3.1-8b", "llama-3.1-70b")
        for more in ({}, {"provider": "aws"}, {"provider": "gcp"})
    ),
)


# Every option of a replica: ranks of all kinds, precisions, several nodes, prefill and decode workers, speculative decoding.
LAYOUTS = [
    LaunchOptions(
        "g",
        "Qwen/Qwen3-30B-A3B",
        1,
        "h100-sxm",
        16,
        2,
        64,
        4096,
        8192,
        dtype,
        0.9,
        "",
        "",
        "",
        False,
        kv_dtype=kv,
        nodes=nodes,
        pipeline_parallel_size=2,
        data_parallel_size=4,
        expert_parallel_size=8,
        role=role,
        speculative=speculative,
    )
    for dtype, kv in (("bf16", "fp8"), ("fp16", "bf16"), ("fp8", "fp16"), ("fp32", None))
    for nodes, role in ((1, "both"), (2, "both"), (1, "prefill"), (1, "decode"))
    for speculative in (None, *(Speculative(method, "a/draft" if method == "draft" else "", 3) for method in METHODS))
]
LAYOUTS += [replace(LAYOUTS[0], offload=Offload(layers=12), layers=48, host_weight_bytes=10**10)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the files of every target for every answer."""
    folder = tmp_path_factory.mktemp("emitted")
    for number, (verb, request) in enumerate(QUESTIONS):
        try:
            answer = getattr(whichgpu, verb)(**request)
        except whichgpu.NoAnswer:
            continue
        for target, texts in launch_files_by_target(answer, request, Context(as_of=date.fromisoformat(DAY))).items():
            for name, text in texts.items():
                path = folder / target / f"{number:02}-{name}"
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for engine in ("vllm", "sglang"):
        lines = [shell_line(serve_words(options, engine, 8000)) for options in LAYOUTS]
        (folder / engine / "99-layouts.sh").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the tools' parsers."""
    venv = tmp_path_factory.mktemp("parsers")
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=300)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    for packages in (("--no-deps", *ALONE), WITH_DEPENDENCIES):
        done = subprocess.run([*pip, *packages], capture_output=True, text=True, timeout=1200, check=False)
        if done.returncode:
            pytest.skip(f"no package index with {packages}: {done.stderr.strip()[-200:]}")
    return venv / "bin" / "python"


def check(python: Path, folder: Path) -> dict[str, dict[str, Any]]:
    done = subprocess.run([str(python), str(CHECKER), str(folder)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return results


@pytest.mark.long
def test_files_of_forty_answers_pass_the_tools_own_parsers(files: Path, checker: Path) -> None:
    results = check(checker, files)
    assert {name: one["problem"] for name, one in results.items() if one["problem"]} == {}
    answers = {name.partition("/")[2][:2] for name in results}
    assert len(answers) >= 40, "questions without an answer or file"
    assert {(verb, request.get("task", "")) for number, (verb, request) in enumerate(QUESTIONS) if f"{number:02}" in answers} == {
        (verb, request.get("task", "")) for verb, request in QUESTIONS
    }
    checked = Counter(name.partition("/")[0] for name, one in results.items() if one["checked"])
    assert all(checked[target] >= 5 for target in TARGETS), checked


@pytest.fixture(scope="module")
def parsers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with engines and training tools, enough of each to parse its command line."""
    venv = tmp_path_factory.mktemp("engines")
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=300)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    for packages in ((*TORCH, *PARSING), ("--no-deps", *TOOLS)):
        done = subprocess.run([*pip, *packages], capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode:
            pytest.skip(f"no package index with {packages}: {done.stderr.strip()[-200:]}")
    return venv / "bin" / "python"


def parsed(python: Path, tool: str, folder: Path) -> dict[str, dict[str, Any]]:
    words = [str(python), str(ENGINE_CHECKER), tool, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    results: dict[str, dict[str, Any]] = json.loads(done.stdout)["results"]
    return results


@pytest.mark.long
@pytest.mark.parametrize(
    ("tool", "minimum"),
    [("vllm", 25), ("sglang", 25), ("accelerate", 10), ("torchrun", 10), ("deepspeed", 10), ("torchtitan", 5)],
)
def test_lines_pass_the_argument_parsers_of_engines_and_trainers(files: Path, parsers: Path, tool: str, minimum: int) -> None:
    results = parsed(parsers, tool, files)
    assert {name: one["problem"] for name, one in results.items() if one["problem"]} == {}
    assert len(results) >= minimum
    assert all(one["checked"] for one in results.values())


WRONG_WORDS = {
    "vllm": (
        ("--tensor-parallel-size=", "--tensor-parallel="),
        ("--max-model-len=", "--max-model-len=x"),
        ("--dtype=", "--dtype=x"),
        ("--speculative-config.method=", "--speculative-config.method=x"),
        ("--speculative-config.num_speculative_tokens=", "--speculative-config.tokens="),
    ),
    "sglang": (
        ("--tp-size=", "--tp="),
        ("--context-length=", "--context-length=x"),
        ("--mem-fraction-static=", "--mem-fraction="),
        ("--speculative-algorithm=", "--speculative-algorithm=x"),
        ("--speculative-num-steps=", "--speculative-steps="),
    ),
    "accelerate": (("--config_file=", "--config-path="), ("--per_device_train_batch_size=", "--per_device_batch_size=")),
    "torchrun": (
        ("--nproc-per-node=", "--nproc-per-host="),
        ("--optim=adamw", "--optim=xadamw"),
        ("--fsdp_config={", "--fsdp_configs={"),
        ("reshard_after_forward", "reshard_after"),
    ),
    "deepspeed": (
        ("--gradient_accumulation_steps=", "--accumulation_steps="),
        ("deepspeed --num_gpus", "deepspeed --num_nodes=2 --num_gpus"),
    ),
    "torchtitan": (("_batch_size=", "_batchsize="), ("activation_checkpoint:", "activation_checkpoint:x")),
}


@pytest.mark.long
@pytest.mark.parametrize("tool", WRONG_WORDS)
def test_a_wrong_word_in_a_line_is_noticed(files: Path, parsers: Path, tmp_path: Path, tool: str) -> None:
    for number, (old, new) in enumerate(WRONG_WORDS[tool]):
        original = next(one for one in sorted((files / tool).glob("*.sh")) if old in one.read_text(encoding="utf-8"))
        path = tmp_path / tool / f"{number}-{original.name}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(original.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        for config in original.parent.glob(f"{original.name[:2]}*.yaml"):
            path.with_suffix(".yaml").write_text(config.read_text(encoding="utf-8"), encoding="utf-8")
    results = parsed(parsers, tool, tmp_path)
    assert {name.partition("-")[0] for name, one in results.items() if one["problem"]} == {
        f"{tool}/{number}" for number in range(len(WRONG_WORDS[tool]))
    }


MUTATIONS = {
    "kubernetes": (
        ("containers:", "container:"),
        ('"}, "limits": {"', '"}, "limit": {"'),
        ("replicas:", "replica:"),
        ("completionMode:", "completionModes:"),
        ("restartPolicy:", "restart:"),
        ("subdomain:", "domain:"),
        ("publishNotReadyAddresses:", "publishNotReady:"),
        ("accessModes:", "accessMode:"),
        ("configMap", "configmap"),
        ("leaderWorkerTemplate:", "workerTemplate:"),
        ('gke-accelerator: "nvidia-', 'gke-accelerator: "nvidia-x'),
    ),
    "karpenter": (
        ("backoffLimit:", "backoff:"),
        ("nodeClassRef:", "nodeClass:"),
        ('"operator": "In"', '"operator": "Is"'),
        ('"values": ["g', '"values": ["x'),
        ("limits:", "limit:"),
    ),
    "dstack": (
        ("type:", "typ:"),
        ("resources:", "resource:"),
        ('type: "task"', 'type: "job"'),
        ("files:", "file:"),
        ('gpu: "', 'gpu: "X'),
        (":80GB:", ":81GB:"),
    ),
    "cloud-cli": (
        ("--instance-type=", "--machine-type="),
        ("--instance-type=", "--instance-type=x"),
        ("MarketType=spot", "MarketTyp=spot"),
        ("VolumeSize=", "VolumeSize=x"),
        ("type=nvidia-", "type=nvidia-x"),
    ),
    "skypilot": (
        ("accelerators:", "accelerator:"),
        ("readiness_probe:", "readyness_probe:"),
        ("run:", "runs:"),
        ("workdir:", "work:"),
        ("num_nodes:", "nodes:"),
    ),
    "slurm": (("--time=", "--tiem="), ("--nodes=", "--nodse=")),
}


@pytest.mark.long
def test_a_mutation_of_a_template_is_noticed(files: Path, checker: Path, tmp_path: Path) -> None:
    expected = set()
    for target, changes in MUTATIONS.items():
        for number, (old, new) in enumerate(changes):
            original = next(one for one in sorted((files / target).iterdir()) if old in one.read_text(encoding="utf-8"))
            path = tmp_path / target / f"{number}-{original.name}"
            path.parent.mkdir(exist_ok=True)
            path.write_text(original.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
            expected.add(str(path.relative_to(tmp_path)))
    results = check(checker, tmp_path)
    assert {name for name, one in results.items() if one["problem"]} == expected
