"""Configs of accelerate and DeepSpeed."""

from __future__ import annotations

from typing import Any

from whichgpu.decide.launch.train.options import TrainOptions

# Releases whose documented keys are written.
ACCELERATE, DEEPSPEED = "accelerate 1.15", "DeepSpeed 0.19"
MULTINODE_PORT = 29500  # accelerate's default


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
    if options.nodes > 1:  # Each node is started by itself, with its rank and the first node's address on the command line.
        config |= {"rdzv_backend": "static", "same_network": True, "main_process_port": MULTINODE_PORT}
    if kind == "FSDP":
        config["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": zero == 3,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_activation_checkpointing": options.checkpointing != "none",
            "fsdp_state_dict_type": "FULL_STATE_DICT",  # With shards, trainer.save_model() writes nothing.
        }
    if kind == "DEEPSPEED":
        config["deepspeed_config"] = {"zero_stage": zero, "gradient_accumulation_steps": options.accumulation}
        if options.nodes > 1:  # Its default, pdsh, starts other nodes through ssh and asks for a hostfile.
            config["deepspeed_config"]["deepspeed_multinode_launcher"] = "standard"
    return config


def deepspeed_config(options: TrainOptions) -> dict[str, Any]:
    """Return DeepSpeed's config; its batch is the product of micro-batch, accumulation and all ranks, which are data parallel."""
    zero: dict[str, Any] = {"stage": options.parallel.zero}
    if options.parallel.zero == 3:  # Else saved models lack their weights.
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return {
        "train_batch_size": options.micro_batch * options.accumulation * options.gpus,
        "train_micro_batch_size_per_gpu": options.micro_batch,
        "gradient_accumulation_steps": options.accumulation,
        "gradient_clipping": "auto",  # The Trainer's max_grad_norm, which is ignored otherwise.
        "zero_optimization": zero,
        **({options.half: {"enabled": True}} if options.half else {}),
    }
