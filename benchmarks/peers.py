"""Answers of other tools to the same five questions: their commands, run if they are installed.

    python -m benchmarks.peers FOLDER

FOLDER holds a virtual environment for each (`FOLDER/skypilot`, `FOLDER/gpuhunt`, …); docs/evidence/comparison.md has the results.
Each command gets ten minutes; its last output lines are printed with its exit code. Nothing here is needed to use whichgpu.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 600  # seconds until a command is stopped
OUTPUT_LINES = 12  # last lines of a command's output to print
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "hidden_act": "silu", "bos_token_id": 128000, "eos_token_id": 128001,
}  # fmt: skip
SIZES = {
    "llama-3.1-70b": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
    "llama-3.1-8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
}
QUESTIONS = {
    "serve": "serve llama-3.1-70b at 5 requests/s, 1,000 tokens in, 300 out, at most 50 ms a token: which GPUs, at what cost",
    "finetune": "fine-tune llama-3.1-8b with LoRA on 100 million tokens: which GPU, how much memory, how long",
    "vision": "train ResNet-50 on ImageNet for 90 epochs: which GPU, how long, at what cost",
    "buy": "the best card to buy for training under 1,000 dollars",
    "past": "the same training on one GPU of AWS, as of 2021-05-16",
}
PEERS = ("skypilot", "gpuhunt", "accelerate", "llm-analysis", "llmfit", "whichllm")
WEIGHTS = """
from accelerate import init_empty_weights
from accelerate.utils import calculate_maximum_sizes
from transformers import AutoConfig, AutoModelForCausalLM
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("{folder}"))
print(calculate_maximum_sizes(model)[0] / 2**30, "GiB of weights")
"""
OFFERS = "import gpuhunt; print(gpuhunt.query(gpu_name=['H100'], min_gpu_count=8)[:2])"


@dataclass(frozen=True, slots=True)
class Run:
    """One command of another tool for one question."""

    peer: str
    question: str
    argv: tuple[str, ...]


def runs(folder: Path) -> Iterator[Run]:
    """Every command; tools without an answer to a question are left out of it."""
    models = {name: config_of(folder, name) for name in SIZES}
    big, small = models["llama-3.1-70b"], models["llama-3.1-8b"]
    tool = {
        name: str(folder / name / "bin") for name in ("skypilot", "gpuhunt", "accelerate", "llm-analysis", "llmfit", "whichllm")
    }
    aic = str(folder / "aiconfigurator" / "bin" / "aiconfigurator")
    yield Run("skypilot", "serve", (f"{tool['skypilot']}/sky", "show-gpus", "H100:8"))
    yield Run("skypilot", "serve", (f"{tool['skypilot']}/sky", "api", "stop"))  # it leaves a server running
    yield Run("gpuhunt", "serve", (f"{tool['gpuhunt']}/python", "-c", OFFERS))
    yield Run("accelerate", "serve", (f"{tool['accelerate']}/accelerate", "estimate-memory", "meta-llama/Llama-3.1-70B"))
    for question, path in (("serve", big), ("finetune", small)):
        yield Run("accelerate", question, (f"{tool['accelerate']}/python", "-c", WEIGHTS.format(folder=path.parent)))
    analysis = (f"{tool['llm-analysis']}/python", "-m", "llm_analysis.analysis")
    served = ("--tp_size=4", "--batch_size_per_gpu=48", "--seq_len=1000", "--num_tokens_to_generate=300")
    shapes = {name: analysed(folder, name) for name in SIZES}
    yield Run("llm-analysis", "serve", (*analysis, "infer", f"--model_name={shapes['llama-3.1-70b']}",
              "--gpu_name=h100-sxm-80gb", *served, "--flops_efficiency=0.7", "--hbm_memory_efficiency=0.9"))  # fmt: skip
    yield Run("llm-analysis", "finetune", (*analysis, "train", f"--model_name={shapes['llama-3.1-8b']}",
              "--gpu_name=a100-sxm-80gb", "--total_num_tokens=100000000", "--total_num_gpus=8", "--dp_size=8", "--ds_zero=3",
              "--batch_size_per_gpu=1", "--seq_len=2048", "--flops_efficiency=0.5"))  # fmt: skip
    for system in ("h100_sxm", "b200_sxm"):
        yield Run("aiconfigurator", "serve", (aic, "cli", "default", "--model-path", str(big.parent), "--system", system,
                  "--backend", "vllm", "--isl", "1000", "--osl", "300", "--ttft", "2000", "--tpot", "50",
                  "--target-request-rate", "5", "--serving-mode", "agg", "--top-n", "1", "--no-color"))  # fmt: skip
    for name, question, context in (("70B", "serve", "1300"), ("8B", "finetune", "2048")):
        model = f"meta-llama/Llama-3.1-{name}-Instruct"
        yield Run("llmfit", question, (f"{tool['llmfit']}/llmfit", "plan", model, "--context", context))
    yield Run("whichllm", "serve", (f"{tool['whichllm']}/whichllm", "plan", "llama 3.1 70b"))


def config_of(folder: Path, name: str) -> Path:
    """Write a config.json as in a model's repository and return its path."""
    path = folder / "models" / name / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**LLAMA, **SIZES[name]}))
    return path


def analysed(folder: Path, name: str) -> Path:
    """Write the same model in llm-analysis's format and return its name."""
    size = SIZES[name]
    path = folder / "models" / f"{name}.json"
    output_of = {
        "name": name, "num_layers": size["num_hidden_layers"], "n_head": size["num_attention_heads"],
        "hidden_dim": size["hidden_size"], "vocab_size": 128256, "max_seq_len": 131072, "num_key_value_heads": 8,
        "ffn_embed_dim": size["intermediate_size"], "expansion_ratio": 3.5, "model_type": "llama",
    }  # fmt: skip
    path.write_text(json.dumps(output_of))
    return path


def output_of(run: Run) -> tuple[int | str, str]:
    """Exit code and last lines of a command."""
    if not Path(run.argv[0]).exists():
        return "-", "not installed"
    try:
        done = subprocess.run(run.argv, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return "-", f"no answer within {TIMEOUT} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return done.returncode, "\n".join(lines[-OUTPUT_LINES:])


def main(argv: list[str]) -> int:
    """Run all commands and print their results."""
    folder = Path(argv[0]) if argv else Path("peers")
    for question, words in QUESTIONS.items():
        print(f"\n## {question}: {words}")
        for run in (one for one in runs(folder) if one.question == question):
            code, lines = output_of(run)
            print(f"\n[{run.peer}] exit {code}: {' '.join(run.argv)[:200]}\n{lines}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
