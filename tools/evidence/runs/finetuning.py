"""Fine-tuning as torchtune and LitGPT publish it: tokens per second, and peak memory of the same runs.

PYTHONPATH=src:tools python -m evidence.runs.finetuning ../shared/truth

torchtune's table adds one technique after another to full fine-tuning of Llama 3.2 3B on an A100 in bf16, batches of two packed
sequences of 4096 tokens (its README); before packing, lengths vary. LitGPT's runs take 512 tokens at most of Alpaca's samples.
One is that long and comes first, so peak memory is that of a full micro-batch, but the minutes are those of samples of unknown
length. Ranks of its adapters are those of the configuration files named in the notes.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from evidence.names import as_model, family, gpu_id, model_named
from evidence.published import Published, published_row
from evidence.reasons import Reason
from whichgpu.catalog.evidence import Measurement

GIB = 2.0**30
TORCHTUNE_TOKENS = 2, 4096  # sequences per step, tokens per sequence
# What torchtune's techniques change in a request, in the table's order; each is added to those before it. Chunks of the loss
# change memory only and cannot be stated; nor can fusing the optimizer into the backward pass or offloading activations.
TORCHTUNE_STEPS: tuple[tuple[str, dict[str, Any], bool, bool], ...] = (
    ("Packed Dataset", {"engine": "pytorch"}, True, True),
    ("Compile", {"engine": "pytorch-compile"}, True, True),
    ("Chunked Cross Entropy", {"engine": "pytorch-compile"}, True, False),
    ("Activation Checkpointing", {"engine": "pytorch-compile", "checkpointing": "full"}, True, False),
)  # name, fields, whether its speed and its memory can be compared
LITGPT_RANKS = {"gemma-2b": 8, "gemma-7b": 16, "gemma2-2b": 8, "gemma2b": 8, "gemma2-9b": 16, "phi-3": 8, "tiny-llama": 32}
LITGPT_RANKS |= {"stablelm-base-alpha-3b": 32}
LITGPT_DROPOUT = 0.05  # of all these configuration files but those of Gemma, which have 0.1: memory is the same
LITGPT_QUERY_VALUE = ("stablelm-base-alpha-3b",)  # adapters on queries and values only; the others adapt every linear layer
LITGPT_MODELS = {"gemma2-2b": "gemma-2-2b", "gemma2b": "gemma-2-2b"}  # by folder, where the table names another generation


class PeakMemory(msgspec.Struct, frozen=True):
    """Peak memory that a framework reports for a training step."""

    source: str
    gpu: str
    request: dict[str, Any]
    allocated: float  # bytes
    row: int


class FinetuneRun(msgspec.Struct, frozen=True):
    """A published row and what it gives: a step's time, a peak of memory, or the reason why it is left out."""

    row: Published
    result: Measurement | PeakMemory | Reason


def finetune_runs(truth: Path) -> list[Measurement]:
    """Steps whose time the tool can estimate."""
    return [run.result for run in read_runs(truth) if isinstance(run.result, Measurement)]


def peak_memories(truth: Path) -> list[PeakMemory]:
    """Steps whose peak memory the tool can estimate."""
    return [run.result for run in read_runs(truth) if isinstance(run.result, PeakMemory)]


def read_runs(truth: Path) -> Iterator[FinetuneRun]:
    """Yield every row of both tables."""
    for name, reader in (("torchtune_finetune", torchtune), ("litgpt_finetune", litgpt)):
        with (truth / "public2" / f"{name}.csv").open(newline="") as stream:
            for line, fields in enumerate(csv.DictReader(stream), start=2):
                row = published_row(line, fields)
                yield FinetuneRun(row, reader(row))


def torchtune(row: Published) -> Measurement | PeakMemory | Reason:
    """Full fine-tuning with AdamW in bf16; states of the optimizer are bf16 too."""
    step = next((one for one in TORCHTUNE_STEPS if one[0] in row.notes), None)
    if row.notes == "Baseline":
        return Reason.NO_SEQUENCE
    memory = row.metric.endswith("peak active")
    if step is None or not (step[3] if memory else step[2]):
        return Reason.INEXPRESSIBLE
    sequences, tokens = TORCHTUNE_TOKENS
    fields = {"batch": sequences, "seq_in": tokens, "checkpointing": "none", **step[1]}
    if memory:  # Its steps are timed as those of plain PyTorch, whose kernels it runs.
        fields["engine"] = fields["engine"].replace("pytorch", "torchtune")
    request = _request(row, fields)
    if isinstance(request, Reason):
        return request
    if memory:
        return PeakMemory(row.source, str(request["gpu"]), request, row.value * GIB, row.line)
    return _measurement(row, request, sequences * tokens / row.value)


def litgpt(row: Published) -> PeakMemory | Reason:
    """LoRA and QLoRA on one A10G; rows of four GPUs repeat those of one, as the configuration files ask for one."""
    if "Inference" in row.notes:
        return Reason.OTHER_ENGINE
    if row.metric != "GB peak memory" or not row.seq_in:
        return Reason.NO_SEQUENCE
    folder, method = re.findall(r"^(\S+)/(\w+)\.yaml", row.notes)[0]
    if method == "full":
        return Reason.SUSPICIOUS  # less than weights, gradients and AdamW's states take together
    if row.gpus > 1:
        return Reason.TWIN
    more: dict[str, Any] = {"batch": row.batch, "seq_in": row.seq_in, "checkpointing": "none", "engine": "litgpt"}
    more |= {"lora_rank": LITGPT_RANKS[folder], "lora_dropout": LITGPT_DROPOUT, **({"qlora": True} if method == "qlora" else {})}
    if folder in LITGPT_QUERY_VALUE:
        more["lora_targets"] = "q,v"
    request = _request(row, more, LITGPT_MODELS.get(folder, ""))
    return request if isinstance(request, Reason) else PeakMemory(row.source, request["gpu"], request, row.value * 1e9, row.line)


def _request(row: Published, more: dict[str, Any], name: str = "") -> dict[str, Any] | Reason:
    gpu, model = gpu_id(row.gpu), name or model_named(row.source, row.model)
    if isinstance(gpu, Reason):
        return gpu
    if isinstance(model, Reason):
        return model
    common = {"task": "finetune", "model": as_model(model), "gpu": gpu, "gpus": 1, "precision": "bf16"}
    return {**common, "optimizer": "adamw", "year": int(row.date[:4]), **more}


def _measurement(row: Published, request: dict[str, Any], seconds: float) -> Measurement:
    name = model_named(row.source, row.model)
    measured = Measurement(row.source, request["gpu"], request, seconds, "train", row.trust, family(str(name)), row.line)
    return replace(measured, path=row.path, date=row.date)


def main(truth: Path) -> None:
    """Print the rows used and those left out, by source and reason."""
    counts = Counter(
        (run.row.source, f"left out: {run.result}" if isinstance(run.result, Reason) else type(run.result).__name__)
        for run in read_runs(truth)
    )
    for key, count in sorted(counts.items()):
        print(*key, count, sep="\t")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/truth"))
