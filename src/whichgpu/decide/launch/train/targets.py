"""Targets of `--emit` for training: each has a template that writes the files which start a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.units import GIB
from whichgpu.decide.launch.job_targets import JOB_TARGETS, Files, LaunchJob, job_files
from whichgpu.decide.launch.serve_command import shell_line
from whichgpu.decide.launch.text import NodeWord, comments, yaml
from whichgpu.decide.launch.torchrun import RENDEZVOUS_PORT, torchrun_words
from whichgpu.decide.launch.train import megatron, torchtitan
from whichgpu.decide.launch.train.configs import ACCELERATE, DEEPSPEED, accelerate_config, deepspeed_config
from whichgpu.decide.launch.train.lines import (
    OUTPUT,
    RELEASE,
    SCRIPT,
    length_notes,
    model_notes,
    node_notes,
    script_notes,
    shared_folder_notes,
    train_packages,
    trainer_words,
)
from whichgpu.decide.launch.train.options import TrainOptions, TrainPlan
from whichgpu.decide.launch.train.sizes import download_bytes, node_disk_gb, output_bytes
from whichgpu.workload.precisions import PRECISION_BY_NAME

DEEPSPEED_FILE = "deepspeed.json"


def train_files(target: str, plan: TrainPlan) -> Files:
    """Return the files that a target starts a training run with, by name."""
    return TRAIN_TARGETS[target](plan)


def _torchrun(plan: TrainPlan) -> Files:
    options = plan.options
    _check_data_parallel("torchrun", options)
    words = [*torchrun_words(options.placement), SCRIPT, *trainer_words(options, sharding=True)]
    notes = script_notes(options)
    if options.uses_deepspeed:
        notes.append("The estimate shards optimizer state (ZeRO 1), this line does not and needs more memory: emit deepspeed.")
    return {"torchrun.sh": _script(plan, f"torchrun of PyTorch 2 and {RELEASE}", words, [*notes, *node_notes(options)])}


def _accelerate(plan: TrainPlan) -> Files:
    options = plan.options
    _check_data_parallel("accelerate", options)
    config = accelerate_config(options)
    trainer = trainer_words(options, checkpointing="fsdp_config" not in config)  # Both at once are an error.
    words = ["accelerate", "launch", "--config_file=accelerate.yaml", SCRIPT, *trainer]
    if options.nodes > 1:
        several = (NodeWord("--machine_rank=$NODE_RANK"), NodeWord("--main_process_ip=$HEAD_ADDRESS"))
        words[3:3] = [*several, f"--main_process_port={RENDEZVOUS_PORT}"]
    notes = [
        *_packages_note(options, "deepspeed_config" in config),
        *script_notes(options),
        *node_notes(options, needs_rank=True),
    ]
    return {
        "accelerate.sh": _script(plan, f"{ACCELERATE} and {RELEASE}", words, notes),
        "accelerate.yaml": comments([*plan.header, f"Keys: as documented for {ACCELERATE}."]) + yaml(config),
    }


def _deepspeed(plan: TrainPlan) -> Files:
    """Return DeepSpeed's config, and the line of its launcher; on several nodes that of torchrun, which needs no hostfile."""
    options = plan.options
    _check_data_parallel("deepspeed", options)
    launcher = ["deepspeed", f"--num_gpus={options.gpus_per_node}"] if options.nodes == 1 else torchrun_words(options.placement)
    words = [*launcher, SCRIPT, f"--deepspeed={DEEPSPEED_FILE}", *trainer_words(options)]
    notes = [*_packages_note(options, True), *script_notes(options), *node_notes(options)]
    return {
        "deepspeed.sh": _script(plan, f"{DEEPSPEED} and {RELEASE}", words, notes),
        DEEPSPEED_FILE: _deepspeed_text(options),
    }


def _torchtitan(plan: TrainPlan) -> Files:
    options = plan.options
    _check_own_model("torchtitan", options, torchtitan.titan_model(options) is not None)
    _check_precision("torchtitan", options)
    stages = torchtitan.pipeline_stages(options)
    if options.parallel.pp > 1 and options.accumulation < stages:
        message = msg("error.emit-pipeline", target="torchtitan", stages=stages, passes=options.accumulation)
        raise UsageError("emit-layout", message, msg("hint.emit-pipeline"))
    words = [*torchrun_words(options.placement), "-m", "torchtitan.train", *torchtitan.torchtitan_words(options)]
    notes = [*length_notes(options, "the length of torchtitan's config"), *model_notes(options)]
    notes += [*torchtitan.torchtitan_notes(options), *node_notes(options)]
    return {"torchtitan.sh": _script(plan, torchtitan.RELEASE, words, notes, torchtitan.FOLDER)}


def _megatron(plan: TrainPlan) -> Files:
    options = plan.options
    _check_own_model("megatron", options, megatron.has_model(options))
    _check_megatron_precision("megatron", options)
    launcher = [*megatron.variables(options), *torchrun_words(options.placement)]
    words = [*launcher, megatron.SCRIPT, *megatron.words(options)]
    notes = [f"Run it in {megatron.IMAGE}, in the folder that this makes: {megatron.SETUP}", *_megatron_notes(options)]
    return {"megatron.sh": _script(plan, megatron.RELEASE, words, [*notes, *node_notes(options)], megatron.SAVED)}


def _job_files(target: str, plan: TrainPlan) -> Files:
    """Return the files of a target that runs a job: the user's script, or Megatron-LM if ranks hold parts of the model."""
    options = plan.options
    job = _megatron_job(target, options) if options.splits_model else _script_job(target, options)
    written = -(-int(output_bytes(options)) // GIB)
    job = replace(
        job, output_gib=written, disk_gb=node_disk_gb(options), download_bytes=download_bytes(options),
        is_gated=options.is_repository, max_seconds=options.max_seconds, header=plan.header,
        notes=(*job.notes, *shared_folder_notes(options, job.output)),
    )  # fmt: skip
    return job_files(target, job)


def _script_job(target: str, options: TrainOptions) -> LaunchJob:
    """Return the job of the user's script, with DeepSpeed if only optimizer state is sharded."""
    _check_precision(target, options)
    has_deepspeed = options.uses_deepspeed
    words = [f"--deepspeed={DEEPSPEED_FILE}"] if has_deepspeed else []
    words += trainer_words(options, sharding=True)
    return LaunchJob(
        options.group,
        options.placement,
        shell_line([*torchrun_words(options.placement), SCRIPT, *words]),
        options.image.replace("-runtime", "-devel") if has_deepspeed else options.image,  # DeepSpeed compiles its operators.
        setup=f"pip install {' '.join(train_packages(options, has_deepspeed))}",
        files={DEEPSPEED_FILE: _deepspeed_text(options)} if has_deepspeed else {},
        own_files=(SCRIPT, *options.model_files),
        notes=(*script_notes(options), "Add other packages that the script needs."),
        output=OUTPUT,
    )


def _megatron_job(target: str, options: TrainOptions) -> LaunchJob:
    """Return the job of Megatron-LM; raise an error if it lacks the model or adapters."""
    lacks = "LoRA" if options.lora_rank else "" if megatron.has_model(options) else options.model[:80]
    if lacks:
        message = msg("error.emit-job-layout", target=target, layout=_layout_text(options), lacks=lacks)
        raise UsageError("emit-layout", message, msg("hint.emit-job-layout"))
    _check_megatron_precision(target, options)
    variables = megatron.variables(options)
    launcher = [*(["env", *variables] if variables else []), *torchrun_words(options.placement)]
    return LaunchJob(
        options.group,
        options.placement,
        shell_line([*launcher, f"{megatron.FOLDER}/{megatron.SCRIPT}", *megatron.words(options)]),
        megatron.IMAGE if options.vendor == "nvidia" else "",
        needs_image=True,
        setup=megatron.SETUP,
        own_files=(
            f"{megatron.DATA.partition('/')[0]}/",
            *([f"{megatron.WEIGHTS}/"] if options.is_finetuning else []),
            *options.model_files,
        ),
        notes=("The layout splits the model's layers, so Megatron-LM runs it.", *_megatron_notes(options)),
        output=megatron.SAVED,
    )


TRAIN_TARGETS: Mapping[str, Callable[[TrainPlan], Files]] = {
    "torchrun": _torchrun,
    "accelerate": _accelerate,
    "deepspeed": _deepspeed,
    "torchtitan": _torchtitan,
    "megatron": _megatron,
    **{target: partial(_job_files, target) for target in JOB_TARGETS},
}


def _script(plan: TrainPlan, release: str, words: Sequence[str], notes: Sequence[str], folder: str = OUTPUT) -> str:
    options = plan.options
    place = f"{options.gpus}x {options.gpu}" + (f" on {options.nodes} nodes" if options.nodes > 1 else "")
    lines = [*plan.header, f"Options: as documented for {release}.", place, *notes, *shared_folder_notes(options, folder)]
    return "#!/bin/sh\n" + comments(lines) + shell_line(list(words)) + "\n"


def _deepspeed_text(options: TrainOptions) -> str:
    return json.dumps(deepspeed_config(options), indent=2) + "\n"


def _packages_note(options: TrainOptions, has_deepspeed: bool) -> list[str]:
    return [f"Before the first run: pip install {' '.join(train_packages(options, has_deepspeed))}"]


def _megatron_notes(options: TrainOptions) -> list[str]:
    default = f"{megatron.TRIAL_STEPS} steps, as a trial"
    return [*length_notes(options, default), *model_notes(options), *megatron.notes(options)]


def _layout_text(options: TrainOptions) -> str:
    layout = options.parallel
    return ", ".join(f"{name}={getattr(layout, name)}" for name in ("tp", "pp", "cp", "ep") if getattr(layout, name) > 1)


def _check_megatron_precision(target: str, options: TrainOptions) -> None:
    """Raise an error if Megatron-LM does not train in the precision, or keeps fp32 weights that the estimate lacks."""
    if options.precision not in megatron.PRECISIONS:
        _check_precision(target, options)
    if not options.has_main_weights:
        message = msg("error.emit-main-weights", target=target, precision=options.precision)
        raise UsageError("emit-precision", message, msg("hint.emit-main-weights"))


def _check_precision(target: str, options: TrainOptions) -> None:
    """Raise an error if a run would be in another precision than the estimate: quantised GEMMs need Megatron-LM."""
    if PRECISION_BY_NAME[options.precision].quantises_training:
        message = msg("error.emit-train-precision", target=target, precision=options.precision)
        raise UsageError("emit-precision", message, msg("hint.emit-train-precision"))


def _check_data_parallel(target: str, options: TrainOptions) -> None:
    """Raise an error if ranks hold parts of the model, which a script of transformers' Trainer does not split."""
    _check_precision(target, options)
    if options.splits_model:
        message = msg("error.emit-layout", target=target, layout=_layout_text(options))
        raise UsageError("emit-layout", message, msg("hint.emit-layout"))


def _check_own_model(target: str, options: TrainOptions, has_model: bool) -> None:
    """Raise an error if a tool with models of its own lacks this one, or adapters."""
    if not has_model:
        message = msg("error.emit-model", target=target, model=options.model[:80])
        raise UsageError("emit-model", message, msg("hint.emit-model"))
    if options.lora_rank:
        raise UsageError("emit-adapter", msg("error.emit-adapter", target=target), msg("hint.emit-model"))
