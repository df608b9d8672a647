"""Measure real vLLM servers with `whichgpu measure --endpoint` on this machine's GPU, random weights: one JSON line per load.

    PYTHONPATH=src python tools/endpoint_check.py --out served.jsonl [--site FOLDER_OF_VLLM] [--models llama-3.1-8b,qwen3-30b-a3b]

Needs vLLM (on the path, or in the folder of --site) and no network: configs are those published with the models, the tokenizer
has one made-up word per id. Servers listen on 127.0.0.1 and are stopped at the end.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

COMMON = {"hidden_act": "silu", "initializer_range": 0.02, "torch_dtype": "bfloat16", "tie_word_embeddings": False}
CONFIGS: dict[str, dict[str, Any]] = {
    # https://huggingface.co/meta-llama/Llama-3.1-8B/blob/main/config.json
    "llama-3.1-8b": COMMON | {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-05,
        "max_position_embeddings": 131072, "rope_theta": 500000.0, "bos_token_id": 128000, "eos_token_id": 128001,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    },
    # https://huggingface.co/Qwen/Qwen3-30B-A3B/blob/main/config.json
    "qwen3-30b-a3b": COMMON | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
        "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
        "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "rms_norm_eps": 1e-06, "max_position_embeddings": 40960,
        "rope_theta": 1000000.0, "bos_token_id": 151643, "eos_token_id": 151645,
    },
}  # fmt: skip
LOADS = ((128, 128), (1024, 128), (2048, 512))  # Input and output tokens of a request.
CONCURRENCY = "1,8,32"
START_SECONDS = 300.0  # Longest start of a server: compilation and capture of CUDA graphs (measured: 50 to 130).


def write_model(name: str, folder: Path) -> Path:
    """Write config and tokenizer of a model to a folder, and return it."""
    config = CONFIGS[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    words = {f"t{id}": id for id in range(config["vocab_size"])}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "t0"}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    tokenizer = {"version": "1.0", **empty, "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0", "eos_token": "t1", "model_max_length": 131072}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def environment(site: str | None) -> dict[str, str]:
    """Return the environment of a server: the folder of vLLM on the path, the CUDA libraries of the torch wheel, no network."""
    values = dict(os.environ)
    values["PYTHONPATH"] = ":".join(part for part in (site, values.get("PYTHONPATH")) if part)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    libraries = [one for path in packages for name in ("nvidia/*/lib", "torch/lib") for one in glob.glob(f"{path}/{name}")]
    values["LD_LIBRARY_PATH"] = ":".join([*filter(None, [values.get("LD_LIBRARY_PATH")]), *libraries])
    fixed = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_HOST_IP": "127.0.0.1"}
    return fixed | values


def start(name: str, folder: Path, port: int, site: str | None, log: Path) -> subprocess.Popen[bytes]:
    """Start a server in a process group of its own and wait until it is ready."""
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", name,
        "--load-format", "dummy", "--dtype", "bfloat16", "--max-model-len", "8192", "--no-enable-prefix-caching",
        "--generation-config", "vllm", "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    with open(log, "wb") as file:
        process = subprocess.Popen(command, env=environment(site), stdout=file, stderr=file, start_new_session=True)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return process
        except OSError:
            time.sleep(1)
    stop(process)
    raise SystemExit(f"{name}: the server did not start\n{log.read_text(errors='replace')[-3000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server and its processes."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def measure(name: str, port: int, load: tuple[int, int], gpu: str, site: str | None) -> dict[str, Any]:
    """Return the answer of `whichgpu measure --endpoint` for one load."""
    claim = f"estimate serve {name} --gpu {gpu} --engine vllm --seq-in {load[0]} --seq-out {load[1]}"
    words = ["measure", "--endpoint", f"http://127.0.0.1:{port}", "--concurrency", CONCURRENCY, "--verify", claim]
    command = [sys.executable, "-m", "whichgpu", *words, "--minutes", "2", "--no-keep", "--no-own-measurements", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment(site))
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        return {"ok": False, "stdout": done.stdout[-2000:], "stderr": done.stderr[-2000:]}


def main() -> int:
    """Measure every model and load, and write each answer as it comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--site")
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--models", default=",".join(CONFIGS))
    options = parser.parse_args()
    for name in options.models.split(","):
        folder = write_model(name, Path(tempfile.mkdtemp()) / name)
        process = start(name, folder, options.port, options.site, options.out.with_suffix(f".{name}.log"))
        try:
            for load in LOADS:
                answer = measure(name, options.port, load, options.gpu, options.site)
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"model": name, "load": load, **answer}) + "\n")
                for level in answer.get("levels", ()):
                    taken = level["measured"]
                    print(name, load, taken["concurrency"], taken["ttft"], taken["tpot"], taken["throughput"], flush=True)
                if not answer.get("ok"):
                    print(name, load, answer, flush=True)
        finally:
            stop(process)
    return 0


if __name__ == "__main__":
    sys.exit(main())
