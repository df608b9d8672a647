"""Config files of training tools: accelerate, DeepSpeed, torchtitan."""

from __future__ import annotations

import re
from typing import Any

from whichgpu.decide.launch.train.options import TrainOptions
from whichgpu.workload.shapes import Transformer

# Releases whose documented keys are written.
ACCELERATE, DEEPSPEED, TORCHTITAN, MEGATRON = "accelerate 1.12", "DeepSpeed 0.18", "torchtitan 0.2", "Megatron-LM core 0.15"
FSDP_STRATEGIES = {2: "SHARD_GRAD_OP", 3: "FULL_SHARD"}  # by ZeRO stage
# Models of torchtitan by `model_type`.
TITAN_MODELS = {"llama": "llama3", "llama4_text": "llama4", "qwen3": "qwen3", "qwen3_moe": "qwen3", "deepseek_v3": "deepseek_v3"}
TITAN_CHECKPOINTING = {"none": "none", "full": "full", "selective": "selective"}


def accelerate_config(options: TrainOptions) -> dict[str, Any]:
    """Return accelerate's config: plain data parallel, DeepSpeed for ZeRO 1, FSDP for ZeRO 2 and 3."""
    zero = options.parallel.zero if options.replicas > 1 else 0
    kind = "NO" if options.gpus == 1 else "FSDP" if zero >= 2 else "DEEPSPEED" if zero else "MULTI_GPU"
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "mixed_precision": options.half or "no",
        "num_machines": options.nodes,
        "num_processes": options.gpus,
        "machine_rank": 0,
        "main_training_function": "main",
    }
    if kind == "FSDP":
        config["fsdp_config"] = {
            "fsdp_sharding_strategy": FSDP_STRATEGIES[zero],
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_activation_checkpointing": options.checkpointing != "none",
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        }
    if kind == "DEEPSPEED":
        config["deepspeed_config"] = {"zero_stage": zero, "gradient_accumulation_steps": options.accumulation}
    return config


def deepspeed_config(options: TrainOptions) -> dict[str, Any]:
    """Return DeepSpeed's config; its batch is the product of micro-batch, accumulation and data-parallel ranks."""
    batch = options.micro_batch * options.accumulation * options.replicas
    layout = options.parallel
    return {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": options.micro_batch,
        "gradient_accumulation_steps": options.accumulation,
        "zero_optimization": {"stage": layout.zero},
        **({options.half: {"enabled": True}} if options.half else {}),
        **({"tensor_parallel": {"autotp_size": layout.tp}} if layout.tp > 1 else {}),
    }


def torchtitan_config(options: TrainOptions) -> str:
    """Return torchtitan's TOML: FSDP shards over data-parallel ranks under ZeRO 2 and 3, else they hold replicas."""
    layout, replicas = options.parallel, options.replicas
    shards = replicas if layout.zero >= 2 else 1
    tables: dict[str, dict[str, Any]] = {
        "model": dict(zip(("name", "flavor"), titan_model(options) or ("", ""), strict=True)),
        "training": {
            "local_batch_size": options.micro_batch,
            "global_batch_size": options.micro_batch * options.accumulation * replicas,
            **({"seq_len": options.sequence} if options.sequence else {}),
            **({"steps": options.steps} if options.steps else {}),
            "dtype": {"bf16": "bfloat16", "fp16": "float16"}.get(options.precision, "float32"),
            "mixed_precision_param": {"bf16": "bfloat16", "fp16": "float16"}.get(options.half or "", "float32"),
        },
        "parallelism": {
            "data_parallel_replicate_degree": replicas // shards,
            "data_parallel_shard_degree": shards,
            "tensor_parallel_degree": layout.tp,
            "pipeline_parallel_degree": layout.pp,
            "context_parallel_degree": layout.cp,
            "expert_parallel_degree": layout.ep,
        },
        "activation_checkpoint": {"mode": TITAN_CHECKPOINTING.get(options.checkpointing, "none")},
    }
    return "".join(f"[{name}]\n{''.join(_toml(key, value) for key, value in rows.items())}\n" for name, rows in tables.items())


def titan_model(options: TrainOptions) -> tuple[str, str] | None:
    """Return a model's name and flavor in torchtitan; None if it has no such model."""
    shape = options.shape
    name = TITAN_MODELS.get(shape.model_type) if isinstance(shape, Transformer) else None
    size = re.search(r"(\d+(?:\.\d+)?b(?:-a\d+b)?)(?:-|$)", options.model.rpartition("/")[2].lower())
    return (name, size[1].upper()) if name and size else None


def _toml(key: str, value: Any) -> str:
    return f'{key} = "{value}"\n' if isinstance(value, str) else f"{key} = {value}\n"
