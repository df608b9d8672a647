"""Arguments and notes of scripts that train with transformers' Trainer, and notes common to all training targets."""

from __future__ import annotations

import json

from whichgpu.decide.launch.train.base_checkpoint import is_tuned
from whichgpu.decide.launch.train.options import TrainOptions

RELEASE = "the Trainer of transformers 5.19"
SCRIPT = "train.py"  # The user's own script, which takes the arguments of transformers' TrainingArguments.
OUTPUT = "output"  # folder of checkpoints
SAVE_STEPS = 500  # steps between checkpoints, the Trainer's default
OPTIMIZERS = {"adamw-8bit": "adamw_bnb_8bit", "adafactor": "adafactor", "sgd": "sgd", "adam": "adamw_torch"}


def trainer_words(options: TrainOptions, sharding: bool = False, checkpointing: bool = True) -> list[str]:
    """Return the arguments of transformers' Trainer; a config may state `sharding` (FSDP 2) and `checkpointing` instead."""
    is_sharded = sharding and options.replicas > 1 and options.parallel.zero >= 2
    is_checkpointed = options.checkpointing != "none"
    fused = "adamw_torch_fused" if options.is_fused else "adamw_torch"
    words = [
        f"--output_dir={OUTPUT}",
        f"--per_device_train_batch_size={options.micro_batch}",
        f"--gradient_accumulation_steps={options.accumulation}",
        f"--optim={OPTIMIZERS.get(options.optimizer, fused)}",
    ]
    words += [f"--{options.half}"] if options.half else []
    words += ["--gradient_checkpointing"] if checkpointing and is_checkpointed and not is_sharded else []
    words += [f"--max_steps={options.steps}"] if options.steps else []
    words += [f"--save_steps={min(SAVE_STEPS, options.steps or SAVE_STEPS)}", "--save_total_limit=1"]
    if is_sharded:
        config = {"reshard_after_forward": options.parallel.zero == 3, "activation_checkpointing": is_checkpointed}
        config |= {"cpu_ram_efficient_loading": True} if options.is_finetuning else {}  # Else every rank loads all weights.
        words += ["--fsdp", f"--fsdp_config={json.dumps(config)}"]
    return words


def train_packages(options: TrainOptions, has_deepspeed: bool = False) -> list[str]:
    """Return the packages that a script with the arguments of transformers' Trainer needs beside PyTorch."""
    packages = ["transformers", "accelerate"] + (["peft"] if options.lora_rank else [])
    packages += ["bitsandbytes"] if options.is_qlora or options.optimizer == "adamw-8bit" else []
    return packages + (["deepspeed"] if has_deepspeed else [])


def model_notes(options: TrainOptions) -> list[str]:
    """Return which published weights, or only which config and tokenizer, the run starts from."""
    if not options.is_repository:
        return []
    if not options.is_finetuning:
        return [f"Config and tokenizer: {options.model}. Weights start at random."]
    kind = ", an instruction-tuned checkpoint" if is_tuned(options.model) else ""
    base = f" The base checkpoint is {options.base_model}." if options.base_model else ""
    return [f"Starts from the weights of {options.model}{kind}.{base}"]


def length_notes(options: TrainOptions, default: str) -> list[str]:
    """Return that the run's length is assumed, or `default` if it is unknown."""
    if not options.steps:
        return [f"The request does not state the run's length (--tokens, --epochs or --steps): {default}."]
    return [f"{options.steps} steps are assumed: state --tokens, --epochs or --steps."] if options.has_assumed_length else []


def script_notes(options: TrainOptions) -> list[str]:
    """Return what the user's script must do for the run to be as estimated."""
    notes = [
        f"{SCRIPT} is your script, with the arguments of transformers' Trainer; at its end it calls trainer.save_model().",
        *length_notes(options, "the Trainer's default of 3 epochs"),
        *model_notes(options),
    ]
    if options.lora_rank:
        kind = "QLoRA (4-bit base weights)" if options.is_qlora else "LoRA"
        notes.append(f"{kind} of rank {options.lora_rank} on {options.lora_targets or 'all-linear'}: set it in the script.")
    if options.is_qlora and options.replicas > 1 and options.parallel.zero >= 2:
        notes.append(f"Sharded 4-bit weights: bnb_4bit_quant_storage of the script's BitsAndBytesConfig is {options.half}.")
    notes += [f"The script's samples have {options.sequence} tokens."] if options.sequence else []
    computed = f"--{options.half} computes in {options.half}" if options.half else ""
    if options.precision == options.half and not options.is_qlora:
        notes.append(f"The script loads the weights in {options.half}; {computed} but loads nothing in it.")
    elif not options.is_qlora:
        notes.append(f"The script loads the weights in fp32{f'; {computed}' if computed else ''}.")
    if options.is_spot:
        notes.append(f"Spot machines are taken back at times: let the script resume from the last checkpoint in {OUTPUT}/.")
    return notes


def node_notes(options: TrainOptions, needs_rank: bool = False) -> list[str]:
    """Return how to start a run on several nodes where no scheduler does it."""
    rank = f"NODE_RANK=0..{options.nodes - 1}, " if needs_rank else ""
    return [f"{options.nodes} nodes: run this on each, {rank}HEAD_ADDRESS of the first."] if options.nodes > 1 else []


def shared_folder_notes(options: TrainOptions, folder: str) -> list[str]:
    """Return that the nodes of a run write one checkpoint together; nothing for one node."""
    return [f"{folder}/: a folder that all nodes share, since they write each checkpoint together."] if options.nodes > 1 else []
