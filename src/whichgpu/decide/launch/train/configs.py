"""Configs of training tools: accelerate, DeepSpeed, torchtitan."""

from __future__ import annotations

from typing import Any

from whichgpu.decide.launch.train.options import TrainOptions
from whichgpu.workload.shapes import Transformer

# Releases whose documented keys are written.
ACCELERATE, DEEPSPEED, TORCHTITAN, MEGATRON = "accelerate 1.15", "DeepSpeed 0.18", "torchtitan 0.3", "Megatron-LM core 0.15"
# Module and config of torchtitan by `model_type`, layers, hidden size and vocabulary.
TITAN_MODELS = {
    ("llama", 32, 4096, 128256): ("llama3", "llama3_8b"),
    ("llama", 80, 8192, 128256): ("llama3", "llama3_70b"),
    ("llama", 126, 16384, 128256): ("llama3", "llama3_405b"),
    ("qwen3", 28, 1024, 151936): ("qwen3", "qwen3_0_6b"),
    ("qwen3", 28, 2048, 151936): ("qwen3", "qwen3_1_7b"),
    ("qwen3", 40, 5120, 151936): ("qwen3", "qwen3_14b"),
    ("qwen3", 64, 5120, 151936): ("qwen3", "qwen3_32b"),
    ("qwen3_moe", 48, 2048, 151936): ("qwen3", "qwen3_30b_a3b"),
    ("deepseek_v3", 61, 7168, 129280): ("deepseek_v3", "deepseek_v3_671b"),
    ("gpt_oss", 24, 2880, 201088): ("gpt_oss", "gpt_oss_20b"),
    ("gpt_oss", 36, 2880, 201088): ("gpt_oss", "gpt_oss_120b"),
}


def accelerate_config(options: TrainOptions) -> dict[str, Any]:
    """Return accelerate's config: plain data parallel, DeepSpeed for ZeRO 1, FSDP 2 for ZeRO 2 and 3."""
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
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": zero == 3,
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


def torchtitan_words(options: TrainOptions) -> list[str]:
    """Return torchtitan's arguments: FSDP shards over data-parallel ranks under ZeRO 2 and 3, else they hold replicas."""
    layout, replicas = options.parallel, options.replicas
    shards = replicas if layout.zero >= 2 else 1
    module, config = titan_model(options) or ("", "")
    values = {
        "training.local_batch_size": options.micro_batch,
        "training.global_batch_size": options.micro_batch * options.accumulation * replicas,
        "training.seq_len": options.sequence,
        "training.steps": options.steps,
        "training.dtype": "bfloat16" if options.precision in ("bf16", "fp16") else "float32",
        "training.mixed_precision_param": "bfloat16" if options.half else "float32",
        "parallelism.data_parallel_replicate_degree": replicas // shards,
        "parallelism.data_parallel_shard_degree": shards,
        "parallelism.fsdp_reshard_after_forward": {2: "never", 3: "always"}.get(layout.zero),
        "parallelism.tensor_parallel_degree": layout.tp,
        "parallelism.pipeline_parallel_degree": layout.pp,
        "parallelism.context_parallel_degree": layout.cp,
        "parallelism.expert_parallel_degree": layout.ep,
    }
    words = [f"--{name}={value}" for name, value in values.items() if value is not None]
    words += ["--training.disable_cuda_graphs"] if layout.pp > 1 else []  # torchtitan refuses both at once.
    return [f"--module={module}", f"--config={config}", *words, f"activation_checkpoint:{options.checkpointing}"]


def titan_model(options: TrainOptions) -> tuple[str, str] | None:
    """Return the module and config of a model in torchtitan; None if it has none of these sizes."""
    shape = options.shape
    if not isinstance(shape, Transformer):
        return None
    return TITAN_MODELS.get((shape.model_type, shape.layers, shape.hidden, shape.vocab))
