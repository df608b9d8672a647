"""Options of a training run and header lines from the answers of fit, estimate and recommend."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from whichgpu.api.context import Context
from whichgpu.api.launch.from_answers import chosen_values, figure_text, fitting_row, header, memory_text, price_text
from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.api.workloads.fit import FitAnswer
from whichgpu.base.units import format_memory
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.find import find_gpus
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.launch.models import file_name, pytorch_image
from whichgpu.decide.launch.train.base_checkpoint import training_checkpoint
from whichgpu.decide.launch.train.options import TrainOptions, TrainPlan
from whichgpu.decide.launch.train.rotary import config_rotary
from whichgpu.decide.work import Work, work_of
from whichgpu.price.run import STARTUP
from whichgpu.workload.defaults import from_echo
from whichgpu.workload.models import stated_config
from whichgpu.workload.parallel import Parallel
from whichgpu.workload.tasks import TASK_TRAITS

PURE_HALF = ("bf16", "fp16")  # Precisions in which plain PyTorch trains without fp32 weights.


def training_plan(answer: FitAnswer | EstimateAnswer | RecommendAnswer, context: Context) -> TrainPlan | None:
    """Return the training run that an answer advises; None if it fits on no GPU."""
    if isinstance(answer, RecommendAnswer):
        return _recommended(answer, context)
    if isinstance(answer, FitAnswer):
        return _fitted(answer, context)
    if answer.fits == "no":
        return None
    echo = answer.request
    values = {"max_seconds": answer.run.time.high + STARTUP} if answer.run else {}
    options = _options(echo, context, gpu=echo["gpu"], gpus=echo["gpus"], nodes=echo["nodes"], **values)
    figures = [figure_text("step", answer.time), figure_text("throughput", answer.throughput)]
    figures += [figure_text("run", answer.run.time)] if answer.run else []
    figures += [f"memory {memory_text(answer.memory_device)} of {format_memory(answer.usable or 0)} a GPU"]
    figures += [f"evidence: {answer.tier}"] if answer.tier else []
    return _plan(echo, context, options, figures)


def _fitted(answer: FitAnswer, context: Context) -> TrainPlan | None:
    echo = answer.request
    row = fitting_row(answer)
    if row is None:
        return None
    values = {"checkpointing": row.checkpointing or echo["checkpointing"], "micro_batch": row.micro_batch}
    options = _options(echo, context, gpu=row.gpu, gpus=echo["gpus"], nodes=echo["nodes"], **values)
    return _plan(echo, context, options, [f"memory {format_memory(row.needed)} of {format_memory(row.usable)} a GPU"])


def _recommended(answer: RecommendAnswer, context: Context) -> TrainPlan:
    best = answer.answer
    echo = chosen_values(answer) | {"accumulation": best.accumulation}
    work = _work(echo, context)
    gpus = max(1, int(best.gpus) // best.copies)
    options = _options(
        echo, context, gpu=best.gpu, gpus=gpus, nodes=max(1, best.machines // best.copies) if gpus >= best.machines else 1,
        parallel=best.parallel, checkpointing=best.checkpointing or echo["checkpointing"], micro_batch=best.micro_batch,
        max_seconds=best.run_time.high if best.run_time else None, provider=best.provider, instance=best.instance,
        region=best.region, is_spot=best.term == "spot", steps=_steps(echo, work), has_assumed_length=work.assumed,
    )  # fmt: skip
    figures = [figure_text("step", best.time), figure_text("throughput", best.throughput), figure_text("run", best.run_time)]
    figures += [f"memory {memory_text(best.needed)} of {format_memory(best.usable)} a GPU"]
    figures += [price_text(best), f"evidence: {best.tier}"]
    return _plan(echo, context, options, figures, answer.as_of)


def _plan(
    echo: Mapping[str, Any], context: Context, options: TrainOptions, figures: list[str], day: str | None = None
) -> TrainPlan:
    day = day or (context.as_of or context.today).isoformat()
    what = f"{options.model}, {options.precision}, on {options.gpus}x {options.gpu}"
    batch = f"batch {options.batch} = {options.micro_batch} x {options.accumulation} passes x {options.replicas} ranks"
    return TrainPlan(options, header(echo, day, what, [batch, *figures]))


def _options(echo: Mapping[str, Any], context: Context, **values: Any) -> TrainOptions:
    """Return the options of a run; `micro_batch` decides the accumulation."""
    micro = values.pop("micro_batch", None) or echo["micro_batch"]
    parallel = values.pop("parallel", None) or Parallel(**echo["parallel"])
    replicas = max(1, values["gpus"] // (parallel.tp * parallel.pp * parallel.cp))
    passes = max(1, echo["batch"] // (micro * replicas)) if micro else echo["accumulation"]
    is_finetuning = TASK_TRAITS[echo["task"]].finetuning
    checkpoint = training_checkpoint(echo["model"], context.catalog, is_finetuning)
    model, work = checkpoint.repository, _work(echo, context)
    (variant, *_) = find_gpus(context.catalog, values["gpu"])
    defaults = {
        "group": file_name(f"{model.rpartition('/')[2]}-{variant.id}"),
        "model": model,
        "vendor": variant.vendor,
        "image": pytorch_image(variant),
        "shape": context.lookups_for(True).shape(echo["model"]),
        "parallel": parallel,
        "precision": echo["precision"],
        "batch": echo["batch"],
        "accumulation": passes,
        "sequence": echo["seq_in"],
        "optimizer": echo["optimizer"] or "adamw",
        "is_fused": echo["optimizer_fused"],
        "checkpointing": echo["checkpointing"],
        "lora_rank": echo["lora_rank"],
        "is_qlora": echo["qlora"],
        "lora_targets": str(echo["lora_targets"] or ""),
        "steps": None if work.assumed else _steps(echo, work),
        "is_finetuning": is_finetuning,
        "base_model": checkpoint.base,
        "rotary": config_rotary(config) if (config := stated_config(echo["model"])) else None,
        "has_main_weights": _has_main_weights(echo),
    }
    values["gpu"] = variant.id
    return TrainOptions(**(defaults | {name: value for name, value in values.items() if value is not None}))


def _work(echo: Mapping[str, Any], context: Context) -> Work:
    """Return the tokens or samples of the whole run."""
    return work_of(from_echo(echo), context.lookups_for(True).shape(echo["model"]), None)


def _steps(echo: Mapping[str, Any], work: Work) -> int | None:
    """Return the steps of a run: those of the request, or as many as its work needs at its batch."""
    if echo["steps"]:
        return int(echo["steps"])
    sample = float(echo["seq_in"] or 1) if work.unit == "tokens" else 1.0
    return max(1, ceil(work.amount / (echo["batch"] * sample))) if work.amount else None


def _has_main_weights(echo: Mapping[str, Any]) -> bool:
    """Whether the estimate counts fp32 weights beside 16-bit ones, or trains in a precision without such weights."""
    return echo["precision"] not in PURE_HALF or engine_record(echo["engine"], echo["year"]).training.main_weights
