"""Command lines that start a training run."""

from __future__ import annotations

import json

from whichgpu.decide.launch.train.options import TrainOptions
from whichgpu.workload.layer_pattern import layer_parts
from whichgpu.workload.shapes import Transformer

LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "torchtitan", "megatron")  # The user starts these on each node.
OWN_MODELS = ("torchtitan", "megatron")  # Tools that have models of their own; others run the user's script.
SCRIPT = "train.py"  # The user's own script, which takes the arguments of transformers' TrainingArguments.
OPTIMIZERS = {"adamw-8bit": "adamw_bnb_8bit", "adafactor": "adafactor", "sgd": "sgd", "adam": "adamw_torch"}
MEGATRON_SHARDING = {2: "optim_grads", 3: "optim_grads_params"}  # by ZeRO stage


def trainer_words(options: TrainOptions, sharding: bool = False, checkpointing: bool = True) -> list[str]:
    """Return the arguments of transformers' Trainer; a config may state `sharding` (FSDP 2) and `checkpointing` instead."""
    is_sharded = sharding and options.replicas > 1 and options.parallel.zero >= 2
    is_checkpointed = options.checkpointing != "none"
    fused = "adamw_torch_fused" if options.is_fused else "adamw_torch"
    words = [
        f"--per_device_train_batch_size={options.micro_batch}",
        f"--gradient_accumulation_steps={options.accumulation}",
        f"--optim={OPTIMIZERS.get(options.optimizer, fused)}",
    ]
    words += [f"--{options.half}"] if options.half else []
    words += ["--gradient_checkpointing"] if checkpointing and is_checkpointed and not is_sharded else []
    words += [f"--max_steps={options.steps}"] if options.steps else []
    if is_sharded:
        config = {"reshard_after_forward": options.parallel.zero == 3, "activation_checkpointing": is_checkpointed}
        words += ["--fsdp", f"--fsdp_config={json.dumps(config)}"]
    return words


def megatron_words(options: TrainOptions) -> list[str]:
    """Return the arguments of Megatron-LM's pretrain_gpt.py: sizes of the model, layout, batch, precision, recomputation."""
    shape, layout = options.shape, options.parallel
    assert isinstance(shape, Transformer)
    longest = max(shape.max_context, options.sequence or 0)
    sizes = {
        "num-layers": shape.layers, "hidden-size": shape.hidden, "ffn-hidden-size": shape.ffn,
        "num-attention-heads": shape.heads, "kv-channels": shape.head_dim, "vocab-size": shape.vocab,
        "seq-length": options.sequence, "max-position-embeddings": longest,
        "micro-batch-size": options.micro_batch,
        "global-batch-size": options.micro_batch * options.accumulation * options.replicas,
        "tensor-model-parallel-size": layout.tp, "pipeline-model-parallel-size": layout.pp, "context-parallel-size": layout.cp,
        "expert-model-parallel-size": layout.ep if layout.ep > 1 else None, "train-iters": options.steps,
    }  # fmt: skip
    words = [f"--{name}={size}" for name, size in sizes.items() if size]
    if shape.kv_heads != shape.heads:
        words += ["--group-query-attention", f"--num-query-groups={shape.kv_heads}"]
    words += ["--swiglu"] if shape.gated else []
    words += ["--normalization=RMSNorm"] if shape.norm == "rms" else []
    words += ["--position-embedding-type=rope"] if shape.rope else []
    words += [] if shape.tied else ["--untie-embeddings-and-output-weights"]
    if not (shape.mlp_bias or shape.out_bias):
        words += ["--disable-bias-linear", *(["--add-qkv-bias"] if shape.qkv_bias else [])]
    words += ["--qk-layernorm"] if shape.qk_norm else []
    words += [f"--attention-dropout={shape.dropout}", f"--hidden-dropout={shape.dropout}"]  # 0.1 by default
    return words + _megatron_expert_words(shape) + _megatron_run_words(options)


def _megatron_expert_words(shape: Transformer) -> list[str]:
    """Return the arguments of MoE layers."""
    experts = shape.experts
    if experts is None:
        return []
    words = [f"--num-experts={experts.count}", f"--moe-router-topk={experts.active}", f"--moe-ffn-hidden-size={experts.ffn}"]
    words += [f"--moe-shared-expert-intermediate-size={experts.shared_ffn}"] if experts.shared_ffn else []
    if experts.dense_layers or experts.every > 1:
        kinds = [int(layer_parts(shape, layer).experts) for layer in range(shape.layers)]
        words.append(f"--moe-layer-freq={kinds}".replace(" ", ""))
    return [*words, "--moe-grouped-gemm", "--moe-token-dispatcher-type=alltoall"]


def megatron_variables(options: TrainOptions) -> list[str]:
    """Return the environment variables without which Megatron-LM refuses a layout on GPUs before Blackwell."""
    layout = options.parallel
    is_sharded = layout.zero >= 2 and options.replicas > 1
    return ["CUDA_DEVICE_MAX_CONNECTIONS=1"] if max(layout.tp, layout.cp) > 1 and not is_sharded else []


def _megatron_run_words(options: TrainOptions) -> list[str]:
    layout = options.parallel
    words = [f"--{options.half}"] if options.half else []
    words += ["--sequence-parallel"] if layout.sp and layout.tp > 1 else []
    if layout.pp > 1 and layout.chunks > 1:
        words.append(f"--num-virtual-stages-per-pipeline-rank={layout.chunks}")
    if layout.zero >= 2 and options.replicas > 1:
        words += ["--use-megatron-fsdp", f"--data-parallel-sharding-strategy={MEGATRON_SHARDING[layout.zero]}"]
        words.append("--ckpt-format=fsdp_dtensor")  # The only format that it allows.
    elif layout.zero == 1:
        words.append("--use-distributed-optimizer")
    if options.checkpointing == "full":
        words += ["--recompute-granularity=full", "--recompute-method=uniform", "--recompute-num-layers=1"]
    elif options.checkpointing == "selective":
        words.append("--recompute-activations")
    return words


def _own_notes(options: TrainOptions, target: str) -> list[str]:
    """Return what the user's script, or the user's own options of a tool, must say for the run to be as estimated."""
    if target == "megatron":
        steps = "" if options.steps else ", --train-iters"
        return [
            f"Add your data and run: --data-path, --tokenizer-type, --tokenizer-model, --lr{steps}; "
            "--mock-data --tokenizer-type=NullTokenizer tries it without data."
        ]
    if target in OWN_MODELS:
        return ["Data, tokenizer and learning rate are those of the config."]
    computed = f"--{options.half} computes in {options.half}" if options.half else ""
    notes = [f"The script's samples have {options.sequence} tokens."] if options.sequence else []
    if options.precision == options.half and not options.is_qlora:
        notes.append(f"The script loads the weights in {options.half}; {computed} but loads nothing in it.")
    elif not options.is_qlora:
        notes.append(f"The script loads the weights in fp32{f'; {computed}' if computed else ''}.")
    return notes


def train_packages(options: TrainOptions) -> list[str]:
    """Return the packages that a script with the arguments of transformers' Trainer needs beside PyTorch."""
    packages = ["transformers", "accelerate"] + (["peft"] if options.lora_rank else [])
    return packages + (["bitsandbytes"] if options.is_qlora or options.optimizer == "adamw-8bit" else [])


def train_notes(options: TrainOptions, target: str) -> list[str]:
    """Return what a target's files do not say: adapters, parallel dimensions that it lacks, how to start several nodes."""
    layout, notes = options.parallel, list[str]()
    if options.lora_rank:
        kind = "QLoRA (4-bit base weights)" if options.is_qlora else "LoRA"
        has_script = target not in OWN_MODELS
        where = "set it in the script" if has_script else "set it in the tool; this line trains all weights, with more memory"
        notes.append(f"{kind} of rank {options.lora_rank} on {options.lora_targets or 'all-linear'}: {where}.")
    if target not in OWN_MODELS and layout.pp * layout.cp * layout.ep > 1:
        notes.append("Pipeline, context and expert parallel ranks are the script's own; this line starts one process per GPU.")
    if target not in (*OWN_MODELS, "deepspeed") and layout.tp > 1:
        notes.append(f"Tensor parallel over {layout.tp} ranks is the script's own.")
    if target not in (*OWN_MODELS, "deepspeed", "accelerate") and layout.zero == 1:
        notes.append("The estimate shards optimizer state (ZeRO 1), this line does not and needs more memory: emit deepspeed.")
    notes += _own_notes(options, target)
    if target == "torchtitan" and layout.zero == 1:
        notes.append("torchtitan shards optimizer state only with parameters: this keeps whole replicas and needs more memory.")
    if target == "torchtitan" and options.half == "fp16":
        notes.append("torchtitan computes in bf16, not in fp16.")
    if options.nodes > 1 and target in LAUNCHERS:
        rank = f"NODE_RANK=0..{options.nodes - 1}, " if target in ("accelerate", "deepspeed") else ""
        notes.append(f"{options.nodes} nodes: run this on each, {rank}HEAD_ADDRESS of the first.")
    return notes
