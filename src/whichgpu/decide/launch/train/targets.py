"""Targets of `--emit` for training: each has a template that writes the files which start a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.launch.job_targets import JOB_TARGETS, Files, LaunchJob, job_files
from whichgpu.decide.launch.serve_command import shell_line
from whichgpu.decide.launch.text import NodeWord, comments, yaml
from whichgpu.decide.launch.torchrun import torchrun_words
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
from whichgpu.decide.launch.train.lines import (
    SCRIPT,
    megatron_variables,
    megatron_words,
    train_notes,
    train_packages,
    trainer_words,
)
from whichgpu.decide.launch.train.options import TrainOptions, TrainPlan
from whichgpu.workload.shapes import Transformer

# Parts of a model that the arguments written for Megatron-LM do not describe.
MEGATRON_LACKS = ("mla", "sparse", "recurrent", "pattern", "full_heads", "parallel_block", "encoder_layers", "patches")


def train_files(target: str, plan: TrainPlan) -> Files:
    """Return the files that a target starts a training run with, by name."""
    return TRAIN_TARGETS[target](plan)


def _torchrun(plan: TrainPlan) -> Files:
    options = plan.options
    words = [*torchrun_words(options.placement), SCRIPT, *trainer_words(options, sharding=True)]
    return {"torchrun.sh": _script(plan, "torchrun", "torchrun of PyTorch 2 and the Trainer of transformers 5.19", words)}


def _accelerate(plan: TrainPlan) -> Files:
    options = plan.options
    config = accelerate_config(options)
    trainer = trainer_words(options, checkpointing="fsdp_config" not in config)  # Both at once are an error.
    words = ["accelerate", "launch", "--config_file=accelerate.yaml", SCRIPT, *trainer]
    if options.nodes > 1:
        several = (NodeWord("--machine_rank=$NODE_RANK"), NodeWord("--main_process_ip=$HEAD_ADDRESS"))
        words[3:3] = [*several, "--main_process_port=29500"]
    return {
        "accelerate.sh": _script(plan, "accelerate", ACCELERATE, words),
        "accelerate.yaml": comments([*plan.header, f"Keys: as documented for {ACCELERATE}."]) + yaml(config),
    }


def _deepspeed(plan: TrainPlan) -> Files:
    options = plan.options
    words = ["deepspeed", f"--num_gpus={options.gpus_per_node}", SCRIPT, "--deepspeed=deepspeed.json", *trainer_words(options)]
    if options.nodes > 1:
        several = (NodeWord("--node_rank=$NODE_RANK"), NodeWord("--master_addr=$HEAD_ADDRESS"))
        words[1:1] = [f"--num_nodes={options.nodes}", "--no_ssh", *several]
    return {
        "deepspeed.sh": _script(plan, "deepspeed", DEEPSPEED, words),
        "deepspeed.json": json.dumps(deepspeed_config(options), indent=2) + "\n",
    }


def _torchtitan(plan: TrainPlan) -> Files:
    options = plan.options
    if titan_model(options) is None:
        raise _no_model("torchtitan", options)
    words = [*torchrun_words(options.placement), "-m", "torchtitan.train", *torchtitan_words(options)]
    return {"torchtitan.sh": _script(plan, "torchtitan", TORCHTITAN, words)}


def _megatron(plan: TrainPlan) -> Files:
    options = plan.options
    shape = options.shape
    if not isinstance(shape, Transformer) or not shape.causal or any(getattr(shape, name) for name in MEGATRON_LACKS):
        raise _no_model("megatron", options)
    words = [*megatron_variables(options), *torchrun_words(options.placement), "pretrain_gpt.py", *megatron_words(options)]
    return {"megatron.sh": _script(plan, "megatron", MEGATRON, words)}


def _job_files(target: str, plan: TrainPlan) -> Files:
    """Return the files of a target that runs the user's script as a job."""
    options = plan.options
    line = shell_line([*torchrun_words(options.placement), SCRIPT, *trainer_words(options, sharding=True)])
    packages = " ".join(train_packages(options))
    own = f"{SCRIPT} is your script, with the arguments of transformers' Trainer; add other packages that it needs."
    return job_files(
        target,
        LaunchJob(
            options.group,
            options.placement,
            line,
            options.image,
            setup=f"pip install {packages}",
            own_files=(SCRIPT,),
            max_seconds=options.max_seconds,
            header=plan.header,
            notes=(own, *train_notes(options, target)),
        ),
    )


TRAIN_TARGETS: Mapping[str, Callable[[TrainPlan], Files]] = {
    "torchrun": _torchrun,
    "accelerate": _accelerate,
    "deepspeed": _deepspeed,
    "torchtitan": _torchtitan,
    "megatron": _megatron,
    **{target: partial(_job_files, target) for target in JOB_TARGETS},
}


def _script(plan: TrainPlan, target: str, release: str, words: Sequence[str]) -> str:
    options = plan.options
    place = f"{options.gpus}x {options.gpu}" + (f" on {options.nodes} nodes" if options.nodes > 1 else "")
    own = [f"{SCRIPT} is your script."] if SCRIPT in words else []
    lines = [*plan.header, f"Options: as documented for {release}.", *own, place, *train_notes(options, target)]
    return "#!/bin/sh\n" + comments(lines) + shell_line(list(words)) + "\n"


def _no_model(target: str, options: TrainOptions) -> UsageError:
    message = msg("error.emit-model", target=target, model=options.model[:80])
    return UsageError("emit-model", message, msg("hint.emit-model"))
