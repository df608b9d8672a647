"""Published runs on accelerators that are no GPUs: MaxText training on TPUs, AWS Neuron inference on Inferentia2.

PYTHONPATH=src:tools python -m evidence.runs.accelerators ../shared/truth
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from evidence.published import Published, published_row
from evidence.reasons import Reason
from whichgpu.catalog.evidence import Measurement

TABLE = "tpu_trainium_published"
TPUS = {"TPU v4": "tpu-v4", "TPU v5p": "tpu-v5p"}
CORES_PER_TPU = 2  # a slice's name (v5p-128) counts cores
SEQUENCE = 2048  # max_target_length of MaxText's scripts for these models
VOCABULARY = 32768
# Sizes and settings in MaxText's scripts of these models (configs/v4, configs/v5p): hidden, heads, head size, MLP, layers; the
# sequences per chip, the tensor-parallel degree, and whether everything is recomputed (remat_policy full). The MLP of the v4
# scripts has two matrices, written here as the three of a gated MLP with as many parameters.
MAXTEXT: Mapping[tuple[str, str], tuple[int, int, int, int, int, int, int, bool]] = {
    ("tpu-v4", "22B model"): (6144, 24, 256, 16384, 48, 13, 1, True),
    ("tpu-v4", "52B model"): (12288, 32, 256, 32768, 32, 7, 1, True),
    ("tpu-v5p", "32B model"): (8192, 64, 128, 28672, 32, 7, 4, False),
    ("tpu-v5p", "64B model"): (8192, 64, 128, 28672, 64, 3, 4, False),
    ("tpu-v5p", "128B model"): (16384, 64, 128, 28672, 64, 1, 8, False),
    ("tpu-v5p", "256B model"): (16384, 128, 128, 57344, 64, 1, 8, False),
    ("tpu-v5p", "512B model"): (16384, 128, 128, 57344, 128, 2, 8, True),
    ("tpu-v5p", "1024B model"): (32768, 128, 128, 57344, 128, 2, 8, True),
}
NEURON_MODELS = {
    "Llama-3-8B": "llama-3-8b",
    "Llama-3-70B": "llama-3-70b",
    "Llama-2-7b": "llama-2-7b",
    "Llama-2-13b": "llama-2-13b",
    "Llama-2-70b": "llama-2-70b",
    "Mistral-7B-Instruct-v0.2": "mistral-7b",
    "CodeLlama-13b-hf": "llama-2-13b",  # the same layers
    "google/vit-base-patch16-224 224x224": "vit-base-patch16-224",
    **{f"{name} 224x224": name for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg16")},
}
# Slower than the same model at twice the length, and 2.7 times as slow as Llama-3-8B, which has the same layers.
CONTRADICTING = (("Mistral-7B-Instruct-v0.2", "prefill", 1, 4096),)
CORES_PER_CHIP = 2  # NeuronCores; a run on one chip puts one batch on each


def accelerator_runs(truth: Path) -> list[Measurement]:
    """Rows of the table that the tool can estimate; a run that the table repeats is used once."""
    found = [result for result in read_runs(truth) if isinstance(result, Measurement)]
    once = {(row.gpu, str(row.request), row.kind, row.seconds): row for row in reversed(found)}
    return list(reversed(once.values()))


def read_runs(truth: Path) -> Iterator[Measurement | Reason]:
    """Yield the measurement of every row, or the reason why it is left out."""
    with (truth / "public2" / f"{TABLE}.csv").open(newline="") as stream:
        for line, fields in enumerate(csv.DictReader(stream), start=2):
            row = published_row(line, fields)
            result = maxtext(row, fields["parallelism"]) if row.source == "maxtext" else neuron(row)
            yield replace(result, path=row.path, date=row.date) if isinstance(result, Measurement) else result


def maxtext(row: Published, slices: str) -> Measurement | Reason:
    """Training with FSDP, and tensor parallelism within a slice; several slices exchange gradients over the network."""
    gpu = TPUS[row.gpu]
    if row.metric != "TFLOP/s/chip":
        return Reason.TWIN if (gpu, row.model) in MAXTEXT else Reason.NO_BATCH  # Llama 2 70B and Mixtral print no batch
    hidden, heads, head, mlp, layers, per_chip, tp, full = MAXTEXT[gpu, row.model]
    count, cores = map(int, re.findall(r"(\d+)x v\w+-(\d+)", slices)[0])
    chips = count * cores // CORES_PER_TPU
    batch = per_chip * chips
    model: dict[str, Any] = {
        "model_type": "llama", "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": heads,
        "head_dim": head, "intermediate_size": mlp, "num_hidden_layers": layers, "vocab_size": VOCABULARY,
        "max_position_embeddings": SEQUENCE, "tie_word_embeddings": False,
    }  # fmt: skip
    request: dict[str, Any] = {
        "task": "train", "model": model, "gpu": gpu, "gpus": chips, "nodes": count, "precision": "amp-bf16", "batch": batch,
        "seq_in": SEQUENCE, "engine": "jax", "year": 2024, "attention": "flash", "optimizer": "adamw",
        "checkpointing": "full" if full else "selective",
        "parallel": {"dp": chips // tp, "tp": tp, "sp": tp > 1, "zero": 3},
    }  # fmt: skip
    # MaxText counts 6 FLOPs per weight and token, and attention without its causal mask.
    weights = layers * (4 * hidden * heads * head + 3 * hidden * mlp) + hidden * VOCABULARY
    flops = per_chip * SEQUENCE * (6 * weights + 12 * layers * SEQUENCE * heads * head)
    return Measurement(row.source, gpu, request, flops / (row.value * 1e12), "train", row.trust, row.model, row.line)


def neuron(row: Published) -> Measurement | Reason:
    """Inference on Inferentia2: medians of a language model over all chips of a machine, and rates of images on one chip."""
    model = NEURON_MODELS.get(row.model)
    if model is None:
        return Reason.UNKNOWN_NETWORK
    request: dict[str, Any] = {
        "model": model, "gpu": "inferentia2", "gpus": row.gpus, "engine": "neuron", "year": 2024, "precision": "bf16",
    }  # fmt: skip
    if row.metric == "inferences/s" and row.batch:
        batch = row.batch * CORES_PER_CHIP
        request |= {"task": "forward", "batch": batch, "precision": "amp-bf16"}
        measured = Measurement(row.source, "inferentia2", request, batch / row.value, "forward", row.trust, model, row.line)
        return replace(measured, throughput_only=True)
    if "TPOT" not in row.metric and "TTFT" not in row.metric:
        return Reason.TWIN
    task: Literal["decode", "prefill"] = "decode" if "TPOT" in row.metric else "prefill"
    if (row.model, task, row.batch, row.seq_in) in CONTRADICTING:
        return Reason.SUSPICIOUS
    # Decode programs are compiled for caches of powers of two, and read all of the cache: the median token's program counts.
    tokens = row.seq_in if task == "prefill" else _power_of_two((row.seq_in or 0) + (row.seq_out or 0) // 2)
    request |= {"task": task, "batch": row.batch, "seq_in": tokens, "precision": row.precision, "parallel": {"tp": row.gpus}}
    return Measurement(row.source, "inferentia2", request, row.value / 1e3, task, row.trust, row.model, row.line)


def _power_of_two(tokens: int) -> int:
    """Return the least power of two that is not below a number of tokens.

    >>> _power_of_two(2112), _power_of_two(2048)
    (4096, 2048)
    """
    return 1 << (tokens - 1).bit_length()


def main(truth: Path) -> None:
    """Print the rows used, by GPU and kind of step, and those left out, by reason."""
    for (gpu, kind), count in sorted(Counter((row.gpu, row.kind) for row in accelerator_runs(truth)).items()):
        print(gpu, kind, count, sep="\t")
    reasons = Counter(str(result) for result in read_runs(truth) if isinstance(result, Reason))
    for reason, count in sorted(reasons.items()):
        print(f"left out: {reason}", count, sep="\t")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/truth"))
