"""The verb `explain`: what the workload of a config file needs, which GPUs have it, and how fast it runs on those named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.request.configs import ExplainRequest
from whichgpu.api.request.read import read
from whichgpu.api.workloads.estimate import EstimateAnswer, estimate_workload
from whichgpu.api.workloads.fit import FitAnswer, FitRow, fit_workload
from whichgpu.base.display import Displayable
from whichgpu.base.errors import UsageError
from whichgpu.base.files import read_regular_file
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.select import GpuFilter
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.serving.kv_capacity import MemorySettings
from whichgpu.workload.config_files.config import ConfigWorkload, impossible
from whichgpu.workload.config_files.model_names import base_and_precision, model_of
from whichgpu.workload.config_files.reader import MAX_FILE_BYTES, config_workload, text_workload
from whichgpu.workload.config_files.training import with_batch
from whichgpu.workload.spelling import ParsedWorkload, from_object

TEXT_NAME = "text"  # Shown in place of a file's name.
OVERRIDES = ("model", "gpus", "seq_in", "seq_out", "batch")  # Fields that the user may state beside the file.
MAX_ANSWER_TOKENS = 256  # Output tokens of a request that has a server's whole context; the rest are input (assumed).
ENGINE_SEQUENCES = 256  # Running sequences of a server if its file sets no limit: the default of vLLM.
# Engines whose servers take the model's own context if no length is stated, and refuse a longer one (2026-11-18):
# https://docs.vllm.ai/en/latest/configuration/engine_args.html, https://docs.sglang.io/advanced_features/server_arguments.html
OWN_CONTEXT_ENGINES = ("vllm", "sglang")
MAX_ESTIMATES = 4  # Largest number of GPUs for which speed is estimated.


class ExplainAnswer(Displayable, msgspec.Struct, frozen=True):
    """The workload of a config file, the memory it needs, the GPUs that have it, and its speed on those that were named."""

    file: str
    config: ConfigWorkload
    fit: FitAnswer
    estimates: tuple[EstimateAnswer, ...] = ()


def explain(request: ExplainRequest, context: Context) -> ExplainAnswer:
    """Return the workload of a config file, what it needs, which GPUs have it, and how fast it runs on those named."""
    values = read(ExplainRequest, request, context.spell)
    return _explained(*_read_config(values), values, context)


def explain_each(request: ExplainRequest, context: Context) -> tuple[ExplainAnswer, ...]:
    """Return the answers for all workloads of a config file that differ from each other."""
    values = read(ExplainRequest, request, context.spell)
    name, first = _read_config(values)
    return tuple(_explained(name, one, values, context) for one in (first, *first.others))


def _explained(name: str, stated: ConfigWorkload, values: Mapping[str, Any], context: Context) -> ExplainAnswer:
    if stated.invalid:
        raise impossible(name, stated)
    config = _with_overrides(stated, values, context.catalog)
    config, own_context = _with_own_context(config, values, context)
    config, sharding = _without_sharding(_with_offload(_without_experts(config, context), context))
    parsed = from_object(config.fields)
    names = values.get("gpu", ())
    answer = fit_workload(parsed, names, GpuFilter(as_of=context.as_of), context.catalog, bool(names), config.memory_share)
    answer = replace(answer, warnings=(*answer.warnings, *own_context))
    if sharding:
        answer = replace(answer, warnings=(*answer.warnings, msg("explain.one-gpu", zero=sharding)))
    if stated.others:
        others = tuple(one.title for one in stated.others)
        answer = replace(answer, warnings=(*answer.warnings, msg("explain.others", names=others)))
    running = [row for row in answer.gpus if row.fits != "no"] if names else []
    estimates = [one for row in running[:MAX_ESTIMATES] for one in _estimates(parsed, config, row, context)]
    return ExplainAnswer(name, config, answer, tuple(estimates))


def _read_config(values: Mapping[str, Any]) -> tuple[str, ConfigWorkload]:
    """Return the workload of the request's file, or of its text, and the name to show for it."""
    if ("file" in values) == ("text" in values):
        raise UsageError("missing-argument", msg("error.missing-argument", name="FILE"), msg("hint.explain-file"))
    if "file" in values:
        path: Path = values["file"]
        if " " in str(path) and not os.path.lexists(path):  # A command line in place of a file.
            return TEXT_NAME, text_workload(str(path), TEXT_NAME)
        return path.name, config_workload(_content(path), path.name)
    return TEXT_NAME, text_workload(values["text"], TEXT_NAME)


def _content(path: Path) -> bytes:
    try:
        return read_regular_file(path, MAX_FILE_BYTES)
    except OSError as problem:
        message = msg("error.bad-workload-file", name=path.name, why=problem.strerror or str(problem))
        raise UsageError("bad-workload-file", message, msg("hint.bad-workload-file")) from problem


def _with_overrides(config: ConfigWorkload, values: Mapping[str, Any], catalog: Catalog) -> ConfigWorkload:
    """Return the workload with what the user states, and its model by the name of the catalog."""
    fields = dict(config.fields)
    fields |= _lengths(config.context)
    fields |= {name: values[name] for name in OVERRIDES if name in values}
    if "gpus" in values and fields["task"] == "finetune":
        fields |= {**(fields.pop("parallel", None) or {})}
        fields.pop("dp", None)
        fields = with_batch(fields)
    if "model" not in values:
        fields["model"], stored = _model(config.fields.get("model"), catalog)
        if stored:
            fields.setdefault("precision", stored)
    if "draft" in (speculative := fields.get("speculative") or {}):
        fields["speculative"] = {**speculative, "draft": _model(speculative["draft"], catalog)[0]}
    return replace(config, fields=fields)


def _lengths(context: int | None) -> dict[str, int]:
    """Return the input and output tokens of a request that has a server's whole context."""
    if not context:
        return {}
    answer = min(MAX_ANSWER_TOKENS, max(1, context // 2))
    return {"seq_in": context - answer, "seq_out": answer}


def _with_own_context(
    config: ConfigWorkload, values: Mapping[str, Any], context: Context
) -> tuple[ConfigWorkload, tuple[Message, ...]]:
    """Return a server's workload with the model's own context if its engine takes that where nobody states a length."""
    engine = config.fields.get("engine")
    if engine not in OWN_CONTEXT_ENGINES or config.fields["task"] != "serve" or {"seq_in", "seq_out"} & values.keys():
        return config, ()
    serve = engine_record(engine).serve
    is_stated = config.context or serve.context in config.unread  # It may be a variable of a shell, or automatic.
    longest = 0 if is_stated else getattr(context.lookups_for(True).shape(config.fields["model"]), "max_context", 0)
    if not longest:
        return config, ()
    note = msg("explain.own-context", option=serve.context, engine=engine_record(engine).name, n=longest)
    return replace(config, context=longest, fields=config.fields | _lengths(longest)), (note,)


def _with_offload(config: ConfigWorkload, context: Context) -> ConfigWorkload:
    """Return the workload with the layers in host memory that its file leaves there."""
    layers = getattr(context.lookups_for(True).shape(config.fields["model"]), "layers", 0) if config.gpu_layers is not None else 0
    on_host = min(layers, layers + 1 - (config.gpu_layers or 0))
    return replace(config, fields=config.fields | {"offload": {"layers": on_host}}) if on_host > 0 else config


def _without_experts(config: ConfigWorkload, context: Context) -> ConfigWorkload:
    """Return the workload of whole replicas if attention data parallel is set for a model without experts to shard."""
    parallel, switch = (
        config.fields.get("parallel") or {},
        engine_record(config.fields.get("engine")).serve.attention_data_parallel,
    )
    if not switch or not {"dp", "ep"} <= parallel.keys():
        return config
    if getattr(context.lookups_for(True).shape(config.fields["model"]), "experts", 0):
        return config
    others = {name: value for name, value in parallel.items() if name != "ep"}
    return replace(config, fields=config.fields | {"parallel": others}, unread=(*config.unread, switch))


def _without_sharding(config: ConfigWorkload) -> tuple[ConfigWorkload, int]:
    """Return the workload without ZeRO if it has one GPU, over which nothing is sharded, and the stage that the file states."""
    parallel = config.fields.get("parallel") or {}
    if config.fields.get("gpus", 1) > 1 or "zero" not in parallel:
        return config, 0
    others = {name: value for name, value in parallel.items() if name != "zero"}
    return replace(config, fields=config.fields | {"parallel": others or None}), parallel["zero"]


def _model(name: str | None, catalog: Catalog) -> tuple[str, str]:
    """Return the built-in model that a name means, and the precision of its weights if the name is of a quantised version."""
    if name is None:
        raise UsageError("missing-model", msg("error.explain-no-model"), msg("hint.explain-model"))
    model = model_of(str(name), catalog)
    if model is None:
        raise UsageError("unknown-model", msg("error.explain-model", name=str(name)[:80]), msg("hint.explain-model"))
    return base_and_precision(model, catalog)


def _estimates(parsed: ParsedWorkload, config: ConfigWorkload, row: FitRow, context: Context) -> list[EstimateAnswer]:
    """Return the estimates of a workload on a GPU: of a server for one request and for as many as it runs at once."""
    lookups = context.lookups_for(True)
    settings = MemorySettings(config.memory_share)
    on_gpu = ParsedWorkload(replace(parsed.workload, gpu=row.gpu), parsed.user_fields | {"gpu"})
    if not parsed.workload.serving:
        return [estimate_workload(on_gpu, lookups)]
    dp = parsed.workload.parallel.dp
    max_batch = min((config.max_sequences or ENGINE_SEQUENCES) * dp, row.largest_batch or 1)
    batches = [1] if "batch" not in parsed.user_fields else [parsed.workload.batch or 1]
    batches += [max_batch] if max_batch > batches[0] else []
    return [
        estimate_workload(
            ParsedWorkload(replace(on_gpu.workload, batch=batch), on_gpu.user_fields | {"batch"}), lookups, None, settings
        )
        for batch in batches
    ]
