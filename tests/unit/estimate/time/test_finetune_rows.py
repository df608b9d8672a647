"""Which rows of torchtune, LitGPT and MLPerf Training become evidence, in which form."""

from __future__ import annotations

from pathlib import Path

import pytest
from evidence.published import Published
from evidence.reasons import Reason
from evidence.runs.finetuning import PeakMemory, litgpt, torchtune
from evidence.runs.mlperf_training import read_results

from whichgpu.catalog.evidence import Measurement

TORCHTUNE = ("torchtune", "README.md", "2025", "A100 80GB (see README)", 1, "finetune", "torchtune", "Llama 3.2 3B (see README)")
LITGPT = ("litgpt", "config_hub", "2024", "A10G 24GB")


def test_torchtune_packs_two_sequences_of_4096_tokens() -> None:
    row = Published(2, *TORCHTUNE, "bf16", None, None, None, "tokens/s", 8192.0, "[+ Compile](https://)", "medium")
    result = torchtune(row)
    assert isinstance(result, Measurement)
    assert (result.seconds, result.request["engine"], result.request["batch"]) == (1.0, "pytorch-compile", 2)


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ("Baseline", Reason.NO_SEQUENCE),
        ("[+ Activation Offloading](https://)", Reason.INEXPRESSIBLE),
        ("[LoRA]", Reason.INEXPRESSIBLE),
    ],
)
def test_what_a_request_cannot_state_is_left_out(notes: str, reason: Reason) -> None:
    row = Published(2, *TORCHTUNE, "bf16", None, None, None, "GiB peak active", 20.0, notes, "medium")
    assert torchtune(row) is reason


def litgpt_row(gpus: int, metric: str, notes: str) -> Published:
    return Published(2, *LITGPT, gpus, "finetune", "LitGPT", "gemma-2b", "bf16-true", 2, 512, None, metric, 12.0, notes, "medium")


def test_litgpt_gives_the_memory_of_adapters_on_one_gpu() -> None:
    result = litgpt(litgpt_row(1, "GB peak memory", "gemma2-2b/qlora.yaml; epochs 2"))
    assert isinstance(result, PeakMemory)
    assert result.allocated == 12e9
    assert (result.request["model"], result.request["lora_rank"], result.request["qlora"]) == ("gemma-2-2b", 8, True)
    assert litgpt(litgpt_row(4, "GB peak memory", "gemma-2b/lora.yaml;")) is Reason.TWIN
    assert litgpt(litgpt_row(1, "minutes total", "gemma-2b/lora.yaml;")) is Reason.NO_SEQUENCE
    assert litgpt(litgpt_row(1, "GB peak memory", "gemma-2b/full.yaml;")) is Reason.SUSPICIOUS


COLUMNS = (
    "source source_path date gpu n_gpus task framework model precision batch seq_in seq_out parallelism metric value notes trust"
)
RATE, MINUTES = "throughput as logged (samples/s)", "minutes to target"


def test_mlperf_training_gives_steps_of_llama_where_throughput_was_logged(tmp_path: Path) -> None:
    def line(path: str, gpu: str, gpus: int, model: str, batch: int, metric: str, value: float) -> str:
        return f"mlperf-train,{path},2025-11,{gpu},{gpus},train,x,{model},,{batch},8192,,,{metric},{value},,medium"

    rows = [
        line("a", "AMD Instinct MI355X", 8, "llama31_8b", 32, RATE, 32.0),
        line("a", "AMD Instinct MI355X", 8, "llama31_8b", 32, MINUTES, 99.0),
        line("b", "NVIDIA H100-SXM5-80GB", 128, "llama31_8b", 64, RATE, 121.0),
        line("c", "NVIDIA Blackwell GPU (B200-SXM-180GB)", 8, "llama31_8b", 16, MINUTES, 85.0),
        line("d", "NVIDIA H200-SXM5-141GB", 8, "retinanet", 256, RATE, 2466.0),
    ]
    (tmp_path / "public2").mkdir()
    (tmp_path / "public2" / "mlperf_training_v5_1.csv").write_text("\n".join([",".join(COLUMNS.split()), *rows]))
    first, *others = (result for _, result in read_results(tmp_path))
    assert isinstance(first, Measurement)
    assert (first.seconds, first.request["micro_batch"], first.request["precision"]) == (1.0, 2, "fp8")
    assert others == [Reason.TWIN, Reason.NO_LAYOUT, Reason.NOT_A_TIME, Reason.INEXPRESSIBLE]
