"""The workload of a command that starts a training script: its arguments, and the GPUs that its launcher starts it on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from whichgpu.workload.config_files.config import ConfigWorkload
from whichgpu.workload.config_files.training import TRAINER_TOOL, training_workload

TOOL = "training script"
# Launchers with their options for processes, nodes, and whether the processes are those of all nodes together
# (https://docs.pytorch.org/docs/stable/elastic/run.html, accelerate launch --help, deepspeed --help).
LAUNCHERS = {
    "torchrun": ("nproc_per_node", "nnodes", False),
    "accelerate": ("num_processes", "num_machines", True),
    "deepspeed": ("num_gpus", "num_nodes", False),
}
MODULES = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun", "accelerate.commands.launch": "accelerate",
}  # fmt: skip
LAUNCHER_FILES = ("config_file", "deepspeed_config_file")  # They say more about the run, and are not read.
BATCH = "per_device_train_batch_size"
# Arguments that only training scripts have, spelled as transformers' Trainer does.
TRAINING_ARGUMENTS = frozenset({BATCH, "num_train_epochs", "gradient_accumulation_steps", "optim", "lr"})
# Other names of arguments in scripts that do not use the Trainer.
SPELLINGS = {
    "model": "model_name_or_path", "model_name": "model_name_or_path", "model_id": "model_name_or_path",
    "batch_size": BATCH, "micro_batch_size": BATCH,
    "train_batch_size": BATCH, "grad_accum": "gradient_accumulation_steps",
    "accumulation_steps": "gradient_accumulation_steps", "seq_len": "max_length", "seq_length": "max_length",
    "max_seq_len": "max_length", "block_size": "max_length", "model_max_length": "max_length", "epochs": "num_train_epochs",
    "learning_rate": "lr", "optimizer": "optim", "lora_target_modules": "lora_target",
}  # fmt: skip


def training_workload_of(words: Sequence[str]) -> ConfigWorkload | None:
    """Return the workload of a command that starts a training script; None for any other."""
    place = next((at for at, word in enumerate(words) if word.endswith(".py") and not word.startswith("-")), None)
    if place is None:
        return None
    arguments = _arguments(words[place + 1 :])
    document = {SPELLINGS.get(name, name): value for name, value in arguments.items()}
    if not TRAINING_ARGUMENTS & ({*document} if "batch_size" not in arguments else {*document} - {BATCH}):
        return None  # Scripts that generate have a batch size too.
    return training_workload(document | _launched(words[:place]), TRAINER_TOOL, TOOL)


def _launched(words: Sequence[str]) -> dict[str, Any]:
    """Return the GPUs, nodes and precision that a launcher sets, under keys of their own."""
    names = [MODULES.get(word, word.rpartition("/")[2]) for word in words]
    launcher = next((name for name in names if name in LAUNCHERS), None)
    if launcher is None:
        return {}
    processes, nodes, is_total = LAUNCHERS[launcher]
    options = _arguments(words[names.index(launcher) + 1 :])
    count = _whole(options.get(nodes))
    gpus = _whole(options.get(processes)) * (1 if is_total else count)
    precision = str(options.get("mixed_precision", ""))
    return {
        "launched_gpus": gpus,
        **({"launched_nodes": count} if count > 1 else {}),
        **({precision: True} if precision in ("bf16", "fp16") else {}),
        **{name: options[name] for name in LAUNCHER_FILES if name in options},
    }


def _arguments(words: Sequence[str]) -> dict[str, Any]:
    """Return arguments by name with underscores; one without a value is true."""
    arguments: dict[str, Any] = {}
    name = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            option, equals, value = word.lstrip("-").partition("=")
            name = option.replace("-", "_")
            arguments[name] = _typed(value) if equals else True
        elif name:
            arguments[name] = _typed(word) if arguments[name] is True else f"{arguments[name]},{word}"
    return arguments


def _typed(text: str) -> Any:
    if text.startswith("{"):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return float(text) if re.fullmatch(r"\d{1,9}\.\d{1,9}", text) else int(text) if re.fullmatch(r"\d{1,12}", text) else text


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < 10**6 else 1
