"""Commands that start a training script, read as workloads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichgpu.workload.config_files.reader import config_workload
from whichgpu.workload.config_files.training_line import TOOL, training_workload_of

TRAINER = "--model_name_or_path a/b --per_device_train_batch_size 2 --gradient_accumulation_steps=4 --bf16"


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            f"torchrun --nproc_per_node=8 --nnodes 2 sft.py {TRAINER} --fsdp 'full_shard auto_wrap' --gradient_checkpointing",
            {"gpus": 16, "nodes": 2, "batch": 128, "checkpointing": "full", "parallel": {"zero": 3, "dp": 16}},
        ),
        (
            f"torchrun --nproc-per-node=4 sft.py {TRAINER} --fsdp '--fsdp_config={{\"reshard_after_forward\": false}}'",
            {"gpus": 4, "batch": 32, "parallel": {"zero": 2, "dp": 4}},
        ),
        (
            f"torchrun --nproc-per-node=4 sft.py {TRAINER} --fsdp --fsdp_config '{{\"activation_checkpointing\": true}}'",
            {"gpus": 4, "batch": 32, "checkpointing": "full", "parallel": {"zero": 3, "dp": 4}},
        ),
        (
            f"accelerate launch --num_processes 4 --num_machines 2 --mixed_precision fp16 sft.py {TRAINER} --use_peft --lora_r 8",
            {"gpus": 4, "nodes": 2, "batch": 32, "lora_rank": 8, "parallel": {"dp": 4}},
        ),
        (
            f"deepspeed --num_gpus=2 sft.py {TRAINER} --deepspeed ds_zero2.json --optim adamw_bnb_8bit --max_length 4096",
            {"gpus": 2, "batch": 16, "optimizer": "adamw-8bit", "seq_in": 4096, "parallel": {"zero": 2, "dp": 2}},
        ),
        (
            f"CUDA_VISIBLE_DEVICES=0 python sft.py {TRAINER} --use_peft --load_in_4bit --lora_target_modules q_proj v_proj",
            {"batch": 8, "lora_rank": 8, "qlora": True, "lora_targets": "q,v"},
        ),
        (
            "python -m torch.distributed.run --nproc-per-node 2 t.py --model a/b --batch-size 2 --grad-accum 4 --bf16 --lr 1e-4",
            {"gpus": 2, "batch": 16, "parallel": {"dp": 2}},
        ),
    ],
)
def test_arguments_and_launcher_are_a_workload(line: str, fields: dict[str, Any]) -> None:
    read = config_workload(line.encode(), "run.sh")
    expected = {"task": "finetune", "model": "a/b", "micro_batch": 2, "accumulation": 4, "precision": "amp-bf16"}
    assert read.tool == TOOL
    assert read.fields == {"checkpointing": "none", **expected, **fields}
    assert not read.unread


@pytest.mark.parametrize(
    "line", ["python setup.py build", "python x.py --model a/b --batch_size 8", "torchrun", "ls train.py", ""]
)
def test_other_commands_train_nothing(line: str) -> None:
    assert training_workload_of(line.split()) is None


@given(st.lists(st.text(max_size=12), max_size=10))
def test_no_words_are_a_traceback(words: list[str]) -> None:
    assert training_workload_of(["torchrun", *words[:3], "t.py", "--optim=adamw", *words[3:]]) is not None
