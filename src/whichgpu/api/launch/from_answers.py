"""Launch options and header lines from the answers of fit, estimate, recommend and plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.base.units import format_memory, format_seconds, significant, with_unit
from whichgpu.base.version import __version__
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.find import find_gpus
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.longest_context import longest_context
from whichgpu.decide.launch.disk import download_bytes
from whichgpu.decide.launch.engine_lines.context import served_context
from whichgpu.decide.launch.engine_lines.quantised_checkpoint import quantised_checkpoint
from whichgpu.decide.launch.models import earlier_releases, file_name, known_releases, repository_of, with_repository
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.targets import LaunchPlan
from whichgpu.estimate.fit import required_memory
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.inference import host_weight_bytes
from whichgpu.estimate.usable import usable_bytes
from whichgpu.workload.decoding.offload import OffloadValue
from whichgpu.workload.decoding.speculative import Speculative, SpeculativeValue
from whichgpu.workload.defaults import from_echo
from whichgpu.workload.layouts import expert_shards
from whichgpu.workload.parallel import Parallel
from whichgpu.workload.shapes import Shape, Transformer

if TYPE_CHECKING:  # Answers of other commands are slow to import, and only their names are needed.
    from whichgpu.api.workloads.estimate import EstimateAnswer
    from whichgpu.api.workloads.fit import FitAnswer, FitRow
    from whichgpu.decide.answer.recommend_answer import RecommendAnswer
    from whichgpu.decide.candidate import Candidate
    from whichgpu.decide.plan.plan_answer import PlanAnswer
    from whichgpu.estimate.lookup_cache import LookupCache

LENGTHS = ("seq_in", "seq_out")
VARYING_LENGTHS = ("trace", "in_spread", "out_spread", "in_histogram", "out_histogram")  # The longest request is then unknown.
PICTURE_FIELDS = ("image", "denoising_steps", "guidance", "frames")
SHOWN_DEFAULTS = ("precision", "kv_precision", "batch", *LENGTHS, *PICTURE_FIELDS, "engine", "percentile", "tpot_max")
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT"}


def estimate_plan(answer: EstimateAnswer, lookups: LookupCache, request: Mapping[str, Any], day: str) -> LaunchPlan:
    """Return the launch of an estimate's workload on its GPUs."""
    echo, serving = answer.request, answer.serving
    parallel = Parallel(**echo["parallel"])
    overrides = {name: request.get(name) for name in ("max_sequences", "max_batched_tokens", "memory_share")}
    limits = serving.limits if serving else None
    sequences = overrides["max_sequences"] or (limits.max_sequences if limits else _sequences(echo, echo["batch"], parallel))
    sequences = int(sequences) if sequences else None
    tokens = overrides["max_batched_tokens"] or (limits.max_batched_tokens if limits else None)
    options = _options(
        echo,
        lookups,
        echo["gpu"],
        parallel,
        gpus_per_copy=echo["gpus"],
        max_num_seqs=sequences,
        max_num_batched_tokens=int(tokens) if tokens else None,
        **_context(echo, lookups, echo["gpu"], parallel, sequences, any(name in request for name in VARYING_LENGTHS)),
        memory_share=float(overrides["memory_share"] or 0) or None,
        nodes=echo["nodes"],
    )
    figures = [figure_text("throughput", answer.throughput)]
    figures += [figure_text(word, getattr(answer, name)) for name, word in LATENCIES.items()]
    figures.append(f"memory {memory_text(answer.memory_device)} of {format_memory(answer.usable or 0)} a GPU")
    evidence = f"evidence: {answer.tier}" if answer.tier else ""
    return LaunchPlan((options,), echo["engine"], _header(echo, day, options, [*figures, evidence]))


def fit_plan(answer: FitAnswer, lookups: LookupCache, day: str) -> LaunchPlan | None:
    """Return the launch on the one GPU that was named, else on the smallest that fits; None if none does."""
    echo = answer.request
    row = fitting_row(answer)
    if row is None:
        return None
    parallel = Parallel(**echo["parallel"])
    batch = _sequences(echo, row.batch, parallel)
    options = _options(
        echo,
        lookups,
        row.gpu,
        parallel,
        gpus_per_copy=echo["gpus"],
        max_num_seqs=batch,
        **_context(echo, lookups, row.gpu, parallel, batch),
        nodes=echo["nodes"],
    )
    memory = f"memory {format_memory(row.needed)} of {format_memory(row.usable)} a GPU"
    return LaunchPlan((options,), echo["engine"], _header(echo, day, options, [memory]))


def fitting_row(answer: FitAnswer) -> FitRow | None:
    """Return the row of the one GPU that was named, else of the smallest that fits; None if none does."""
    fitting = [row for row in answer.gpus if row.fits != "no"]
    return next((row for row in fitting if len(answer.gpus) == 1 or row.gpu == answer.smallest), next(iter(fitting), None))


def candidate_plan(answer: RecommendAnswer, lookups: LookupCache) -> LaunchPlan:
    """Return the launch of a recommendation's best candidate."""
    best, echo = answer.answer, chosen_values(answer)
    options = _options(
        echo,
        lookups,
        best.gpu,
        best.parallel,
        copies=best.copies,
        gpus_per_copy=max(1, int(best.gpus) // best.copies),
        max_num_seqs=max(1, best.batch // best.parallel.dp),
        max_num_batched_tokens=best.max_batched_tokens,
        **_context(echo, lookups, best.gpu, best.parallel, best.batch // best.parallel.dp),
        provider=best.provider,
        instance=best.instance,
        region=best.region,
        spot=best.term == "spot",
        nodes=max(1, best.machines // best.copies) if best.gpus >= best.machines else 1,
        machines=best.machines,
    )
    figures = [figure_text("throughput", best.throughput), figure_text("capacity", best.capacity)]
    figures += [figure_text(word, getattr(best, name)) for name, word in LATENCIES.items()]
    figures += [f"memory {memory_text(best.needed)} of {format_memory(best.usable)} a GPU", price_text(best)]
    return LaunchPlan((options,), echo["engine"], _header(echo, answer.as_of, options, [*figures, f"evidence: {best.tier}"]))


def price_text(best: Candidate) -> str:
    """Return a candidate's price per hour with its term and date."""
    price = f"price {significant(float(best.cost_per_hour.amount))} {best.cost_per_hour.currency}/h, {best.term}"
    return f"{price}, observed {best.price_observed_at}"


def chosen_values(answer: RecommendAnswer) -> dict[str, Any]:
    """Return a recommendation's request with the precision and batch of its best candidate, which are no defaults then."""
    best, echo = answer.answer, answer.request
    chosen = {"precision": best.precision, "batch": best.batch}
    return {**echo, **chosen, "defaults": [name for name in echo["defaults"] if name not in chosen]}


def fleet_plan(answer: PlanAnswer) -> LaunchPlan:
    """Return the launch of every group of a plan's replicas."""
    cost = answer.cost_per_hour
    amounts = [significant(float(amount)) for amount in (cost.amount, cost.low, cost.high)]
    header = [
        f"whichgpu {__version__}, {answer.as_of}: a fleet; groups of replicas: {len(answer.groups)}.",
        f"Estimate: cost {amounts[0]} {cost.currency}/h (90% range {amounts[1]} to {amounts[2]}).",
        *(
            f"{row.model} on {row.gpus}x {row.gpu_name}: {figure_text('capacity', row.capacity)}, load {significant(row.rate)}/s"
            for row in answer.groups
        ),
    ]
    models = [one for one in answer.request.get("models", ()) if isinstance(one, Mapping)]
    engines = {str(one["engine"]) for one in models if one.get("engine")}
    engine = engines.pop() if len(engines) == 1 else default_engine("serve")
    return LaunchPlan(tuple(answer.hints), engine, tuple(header))


def _options(echo: Mapping[str, Any], lookups: LookupCache, gpu: str, parallel: Parallel, **values: Any) -> LaunchOptions:
    """Return launch options for a request's model on a GPU; values that are not given are the engine's own."""
    catalog = lookups.catalog
    (variant, *_) = find_gpus(catalog, gpu)
    share = engine_record(echo["engine"]).memory.share if engine_record(echo["engine"]).serve.memory_share else None
    defaults: dict[str, Any] = {
        "copies": 1,
        "provider": "",
        "instance": "",
        "region": "",
        "spot": False,
        "max_num_batched_tokens": None,
    }
    values["memory_share"] = values.get("memory_share") or share
    shape = lookups.shape(echo["model"])
    model, published = repository_of(echo["model"], catalog), shape.native
    checkpoint = None if published else quantised_checkpoint(echo["model"], echo["precision"], echo["engine"], catalog)
    return LaunchOptions(
        group=file_name(f"{model.rpartition('/')[2]}-{variant.id}"),
        model=model,
        gpu=variant.id,
        dtype=echo["precision"],
        kv_dtype=echo["kv_precision"],
        published=published,
        checkpoint=checkpoint,
        is_embedding=echo["task"] == "embed",
        speculative=_speculative(echo, catalog),
        tensor_parallel_size=parallel.tp,
        pipeline_parallel_size=parallel.pp,
        data_parallel_size=max(1, values["gpus_per_copy"] // (parallel.tp * parallel.pp)),
        expert_parallel_size=parallel.ep,
        earlier=earlier_releases(catalog.engines, variant),
        releases=known_releases(catalog.engines, variant),
        vendor=variant.vendor,
        architecture=variant.architecture,
        has_bf16="bf16" in variant.supports,
        download_bytes=download_bytes(shape, echo["precision"], checkpoint),
        **_offload(echo, shape, parallel),
        **(defaults | values),
    )


def _speculative(echo: Mapping[str, Any], catalog: Catalog) -> Speculative | None:
    """Return the request's speculative decoding, with the repository of its draft model."""
    return with_repository(SpeculativeValue().read(echo["speculative"]), catalog) if echo.get("speculative") else None


def _header(echo: Mapping[str, Any], day: str, options: LaunchOptions, figures: list[str]) -> tuple[str, ...]:
    gpus = f"{options.copies * options.gpus_per_copy}x {options.gpu}"
    return header(echo, day, f"{options.model}, {options.dtype}, on {gpus}", figures)


def header(echo: Mapping[str, Any], day: str, what: str, figures: list[str]) -> tuple[str, ...]:
    """Return the lines at the head of a file: what was estimated and when, the figures, and the defaults assumed."""
    fields = [name for name in SHOWN_DEFAULTS if name != "percentile" or (echo["task"] == "serve" and echo["seq_in"])]
    assumed = ", ".join(f"{name} {echo[name]}" for name in fields if name in echo["defaults"] and echo[name] is not None)
    return (
        f"whichgpu {__version__}, {day}: {echo['task']} {what}, engine {echo['engine']}.",
        f"Estimate: {'; '.join(filter(None, figures))}.",
        *([f"Assumed: {assumed}."] if assumed else []),
    )


def _sequences(echo: Mapping[str, Any], batch: int, parallel: Parallel) -> int | None:
    """Return the sequences of one data-parallel rank; None, the engine's own limit, if a batch of one is only a default."""
    return None if batch <= parallel.dp and "batch" in echo["defaults"] else max(1, batch // parallel.dp)


def _offload(echo: Mapping[str, Any], shape: Shape, parallel: Parallel) -> dict[str, Any]:
    """Return the options for weights in host memory, and the model's layers."""
    offload = OffloadValue().read(echo["offload"]) if echo["offload"] else None
    if offload is None or not isinstance(shape, Transformer):
        return {"layers": getattr(shape, "layers", 0)}
    shards = parallel.pp * (expert_shards(parallel) if shape.experts else parallel.tp)
    size = host_weight_bytes(offload, shape, echo["precision"]) // shards
    return {"layers": shape.layers, "offload": offload, "host_weight_bytes": size}


def _context(
    echo: Mapping[str, Any], lookups: LookupCache, gpu: str, parallel: Parallel, sequences: int | None, varies: bool = False
) -> dict[str, Any]:
    """Return the longest context of a server, the part of it that fits for all sequences at once, and why.

    If the lengths of requests vary (`varies`), it is all that the model allows or the KV cache holds.
    """
    (variant, *_) = find_gpus(lookups.catalog, gpu)
    workload = replace(from_echo(echo), parallel=parallel, batch=parallel.dp, micro_batch=None)
    shape = lookups.shape_for(workload)
    limit, needed = getattr(shape, "max_context", 0), sum(int(echo[name] or 0) for name in LENGTHS)
    cache_limit = longest_context(workload, shape, variant)
    if varies:
        return {
            "max_model_len": cache_limit if cache_limit and cache_limit < limit else None,
            "context_reason": f"Context: {cache_limit} tokens fit.",
        }
    served = served_context(needed, limit, cache_limit)
    longer = replace(workload, seq_in=served.tokens - (workload.seq_out or 0), batch=(sequences or 1) * parallel.dp)
    fits = required_memory(estimate_memory(longer, shape, variant), longer).high <= usable_bytes(variant, longer)
    reserved = served.tokens if fits else needed
    return {"max_model_len": served.tokens, "request_length": reserved, "context_reason": served.reason}


def figure_text(name: str, figure: Figure | None) -> str:
    """Return a figure with its 90% range; empty if there is none."""
    if figure is None:
        return ""
    if figure.unit == "s":
        value, low, high = (str(format_seconds(number)) for number in (figure.value, figure.low, figure.high))
    else:
        value, low, high = (str(with_unit(number, figure.unit)) for number in (figure.value, figure.low, figure.high))
    return f"{name} {value} (90% range {low} to {high})"


def memory_text(figure: Figure) -> str:
    """Return a figure of memory as text with its unit."""
    return str(format_memory(int(figure.value)))
