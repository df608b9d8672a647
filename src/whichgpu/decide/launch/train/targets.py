"""Targets of `--emit` for training: each has a template that writes the files which start a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import ceil

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.launch.cloud_cli import TOOLS, Machines, check_provider, create_line
from whichgpu.decide.launch.serve_command import shell_line
from whichgpu.decide.launch.skypilot import CLOUDS, gpu_name
from whichgpu.decide.launch.text import SLURM_HEAD_ADDRESS, comments, sbatch_head, yaml
from whichgpu.decide.launch.train.configs import (
    ACCELERATE,
    DEEPSPEED,
    MEGATRON,
    TORCHTITAN,
    accelerate_config,
    deepspeed_config,
    titan_model,
    torchtitan_words,
)
from whichgpu.decide.launch.train.lines import SCRIPT, megatron_words, torchrun_words, train_notes, trainer_words
from whichgpu.decide.launch.train.options import TrainOptions, TrainPlan
from whichgpu.workload.shapes import Transformer

Files = dict[str, str]


def train_files(target: str, plan: TrainPlan) -> Files:
    """Return the files that a target starts a training run with, by name."""
    return TRAIN_TARGETS[target](plan)


def _torchrun(plan: TrainPlan) -> Files:
    options = plan.options
    words = [*torchrun_words(options), SCRIPT, *trainer_words(options, sharding=True)]
    return {"torchrun.sh": _script(plan, "torchrun", "torchrun of PyTorch 2 and transformers' Trainer", words)}


def _accelerate(plan: TrainPlan) -> Files:
    options = plan.options
    config = accelerate_config(options)
    trainer = trainer_words(options, checkpointing="fsdp_config" not in config)  # Both at once are an error.
    words = ["accelerate", "launch", "--config_file=accelerate.yaml", SCRIPT, *trainer]
    if options.nodes > 1:
        words[3:3] = ["--machine_rank=$NODE_RANK", "--main_process_ip=$HEAD_ADDRESS", "--main_process_port=29500"]
    return {
        "accelerate.sh": _script(plan, "accelerate", ACCELERATE, words),
        "accelerate.yaml": comments([*plan.header, f"Keys: as documented for {ACCELERATE}."]) + yaml(config),
    }


def _deepspeed(plan: TrainPlan) -> Files:
    options = plan.options
    words = ["deepspeed", f"--num_gpus={options.gpus_per_node}", SCRIPT, "--deepspeed=deepspeed.json", *trainer_words(options)]
    if options.nodes > 1:
        several = [f"--num_nodes={options.nodes}", "--no_ssh", "--node_rank=$NODE_RANK", "--master_addr=$HEAD_ADDRESS"]
        words[1:1] = several
    return {
        "deepspeed.sh": _script(plan, "deepspeed", DEEPSPEED, words),
        "deepspeed.json": json.dumps(deepspeed_config(options), indent=2) + "\n",
    }


def _torchtitan(plan: TrainPlan) -> Files:
    options = plan.options
    if titan_model(options) is None:
        raise _no_model("torchtitan", options)
    words = [*torchrun_words(options), "-m", "torchtitan.train", *torchtitan_words(options)]
    return {"torchtitan.sh": _script(plan, "torchtitan", TORCHTITAN, words)}


def _megatron(plan: TrainPlan) -> Files:
    options = plan.options
    if not isinstance(options.shape, Transformer) or not options.shape.causal or options.shape.mla:
        raise _no_model("megatron", options)
    words = [*torchrun_words(options), "pretrain_gpt.py", *megatron_words(options)]
    return {"megatron.sh": _script(plan, "megatron", MEGATRON, words)}


def _slurm(plan: TrainPlan) -> Files:
    options = plan.options
    limit = [f"--time={_hours(options.max_seconds)}"] if options.max_seconds else []
    line = shell_line([*torchrun_words(options), SCRIPT, *trainer_words(options, sharding=True)])
    start = [*([SLURM_HEAD_ADDRESS] if options.nodes > 1 else []), f"srun {line}"]
    head = comments([*plan.header, *train_notes(options, "slurm")])
    directives = sbatch_head(options.group, options.nodes, options.gpus_per_node, limit)
    return {f"{options.group}.sbatch": directives + head + "\n".join(start) + "\n"}


def _skypilot(plan: TrainPlan) -> Files:
    options = plan.options
    resources: dict[str, object] = {"accelerators": f"{gpu_name(options.gpu)}:{options.gpus_per_node}"}
    if options.provider in CLOUDS:
        resources |= {"cloud": options.provider} | ({"region": options.region} if options.region else {})
    if options.is_spot:
        resources |= {"use_spot": True}
    line = shell_line([*torchrun_words(options), SCRIPT, *trainer_words(options, sharding=True)])
    address = 'HEAD_ADDRESS=$(echo "$SKYPILOT_NODE_IPS" | head -n 1); '
    task = {
        "name": options.group,
        "resources": resources,
        **({"num_nodes": options.nodes} if options.nodes > 1 else {}),
        "run": (address if options.nodes > 1 else "") + line,
    }
    return {f"{options.group}.yaml": comments([*plan.header, *train_notes(options, "skypilot")]) + yaml(task)}


def _cloud_cli(plan: TrainPlan) -> Files:
    """Return the line that creates the machines; the run itself is started on them, with the user's own script."""
    options = plan.options
    check_provider(options.provider, options.instance)
    machines = Machines(
        options.group, options.provider, options.instance, options.region, options.gpu, options.nodes, options.is_spot
    )
    line = shell_line([*torchrun_words(options), SCRIPT, *trainer_words(options, sharding=True)])
    notes = [f"Options: as documented for {TOOLS[options.provider]}.", *train_notes(options, "torchrun"), f"On them: {line}"]
    return {"cloud.sh": "#!/bin/sh\n" + comments([*plan.header, *notes]) + create_line(machines) + "\n"}


TRAIN_TARGETS: Mapping[str, Callable[[TrainPlan], Files]] = {
    "torchrun": _torchrun,
    "accelerate": _accelerate,
    "deepspeed": _deepspeed,
    "torchtitan": _torchtitan,
    "megatron": _megatron,
    "slurm": _slurm,
    "skypilot": _skypilot,
    "cloud-cli": _cloud_cli,
}


def _script(plan: TrainPlan, target: str, release: str, words: Sequence[str]) -> str:
    options = plan.options
    place = f"{options.gpus}x {options.gpu}" + (f" on {options.nodes} nodes" if options.nodes > 1 else "")
    own = [f"{SCRIPT} is your script."] if SCRIPT in words else []
    lines = [*plan.header, f"Options: as documented for {release}.", *own, place, *train_notes(options, target)]
    return "#!/bin/sh\n" + comments(lines) + shell_line(list(words)) + "\n"


def _hours(seconds: float) -> str:
    """Return a time limit for Slurm, in whole minutes.

    >>> _hours(5000)
    '01:24:00'
    """
    minutes = max(1, ceil(seconds / 60))
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"


def _no_model(target: str, options: TrainOptions) -> UsageError:
    message = msg("error.emit-model", target=target, model=options.model[:80])
    return UsageError("emit-model", message, msg("hint.emit-model"))
