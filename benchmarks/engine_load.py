"""Arrivals of measured served and offline runs of vLLM on one H200, replayed through the simulator.

    PYTHONPATH=src:tools python -m benchmarks.engine_load ../shared/truth

Steps are timed by fits that saw no row of the run's model, and by the shipped fit. KV tokens and start-up seconds are compared
too. `benchmarks.accuracy_serving` prints the same sections.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from calibration.examples import examples
from calibration.fit_steps import Design, folds

from whichgpu.catalog.engines.record import EngineStart
from whichgpu.catalog.evidence import measurements, steps
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.serving.kv_capacity import kv_tokens
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides
from whichgpu.estimate.serving.server import Server, server_of
from whichgpu.estimate.serving.simulator import Arrival, SimulationOutcome
from whichgpu.estimate.startup import start_seconds
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Workload

MODELS = {
    "llama31-8b": "llama-3.1-8b",
    "llama31-8b-fp8": "llama-3.1-8b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "gpt-oss-20b": "gpt-oss-20b",
    "deepseek-v2-lite": "deepseek-v2-lite",
}
GPU, YEAR = "h200-sxm", 2026
GRAPH_SIZES = 51  # sizes of CUDA graphs up to 512 tokens
GOALS = {"TPOT p50": 0.10, "TTFT p50": 0.20, "wall": 0.10}
COMPILED = "jit"  # flag of runs in which kernels were compiled: all their times are left out
SKEWED = "routing-skewed"  # flag of models whose random weights route most tokens to few experts: their loads are left out
COMPILED_TAIL = "jit-tail"  # flag of runs whose TTFT above the median is compilation


class Replayed(msgspec.Struct, frozen=True):
    """One run: seconds (throughput: tokens per second) by metric: measured, simulated by a fit without its model, as shipped."""

    model: str
    load: str
    measured: Mapping[str, float]
    simulated: Mapping[str, float]
    shipped: Mapping[str, float]


def rows(truth: Path) -> list[dict[str, Any]]:
    """Return the lines of the measurements, in order."""
    return [json.loads(line) for line in (truth / "h200" / "vllm.jsonl").read_text().splitlines()]


def workload_of(
    model: Mapping[str, Any], lookups: LookupCache, prompt: int, output: int
) -> tuple[Workload, Transformer, LimitOverrides]:
    """Return the request, the model and the settings of a measured engine."""
    name = MODELS.get(model["model"], model["model"])
    shape = lookups.shape(name)
    assert isinstance(shape, Transformer)
    fields = {
        "task": "serve", "model": name, "precision": model["precision"], "kv_precision": model["kv_precision"],
        "engine": "vllm", "year": YEAR, "seq_in": prompt, "seq_out": output,
    }  # fmt: skip
    settings = model["settings"]
    limits = LimitOverrides(
        max_batched_tokens=settings["max_num_batched_tokens"],
        max_sequences=settings["max_num_seqs"],
        memory_share=settings["gpu_memory_utilization"],
        prefix_caching=settings["enable_prefix_caching"],
    )
    return fill_defaults(from_object(fields).workload, shape), shape, limits


def calibrations_without_models(catalog: Catalog) -> dict[str, Calibration]:
    """Return, by measured model, the corrections of steps fitted without any row of that model."""
    design = Design(examples(steps(measurements()), catalog))
    full = design.fit(np.ones(len(design.examples), dtype=bool))
    models = set(MODELS.values())
    found = folds(design, lambda one: one.groups["model"] if one.groups["model"] in models else "", full)
    return {model: design.calibration(found[model].theta) for model in models}


def server(
    model: Mapping[str, Any], lookups: LookupCache, prompt: int, output: int, longest: int, calibration: Calibration | None = None
) -> Server:
    """Return the simulated server with the settings of a measured engine, its steps corrected by a fit (default: the shipped)."""
    workload, shape, limits = workload_of(model, lookups, prompt, output)
    gpu = lookups.catalog.gpu_by_id[GPU]
    devices = Devices.of([gpu], [fabric_of(gpu)], calibration)
    return server_of(workload, shape, gpu, overrides=limits, longest=longest, devices=devices)


def replay(
    model: Mapping[str, Any], run: Mapping[str, Any], lookups: LookupCache, calibration: Calibration | None = None
) -> SimulationOutcome:
    """Simulate one run with its measured arrivals and lengths."""
    online = run["task"] == "serve"
    arrivals: list[Arrival] = [(row[0], row[1], row[2], ()) if online else (0.0, row[0], row[1], ()) for row in run["requests"]]
    prompt, output = (max(1, round(float(np.mean([one[place] for one in arrivals])))) for place in (1, 2))
    longest = max(one[1] + one[2] for one in arrivals)
    return server(model, lookups, prompt, output, longest, calibration).run(arrivals)


def metrics(arrived: Any, first: Any, finished: Any, outputs: Any) -> dict[str, float]:
    """Return medians and 95th percentiles of TTFT and TPOT in seconds, and output tokens per second."""
    more = outputs > 1
    ttft, tpot = first - arrived, ((finished - first) / np.maximum(1, outputs - 1))[more]
    values = {
        f"{name} p{percentile}": float(np.percentile(seconds, percentile))
        for name, seconds in (("TTFT", ttft), ("TPOT", tpot))
        for percentile in (50, 95)
    }
    return values | {"throughput": float(outputs.sum() / finished.max())}


def compared(model: Mapping[str, Any], run: Mapping[str, Any], lookups: LookupCache, calibration: Calibration) -> Replayed:
    """Return a run's metrics as measured and as simulated; metrics distorted by compilation are left out of the measured ones."""
    outcomes = [replay(model, run, lookups, one) for one in (calibration, None)]
    if run["task"] == "batch":
        walls = [{"wall": float(one.finished.max())} for one in outcomes]
        return Replayed(run["model"], f"{run['n']} at once, {run['shape']}", {"wall": run["wall_s"]}, *walls)
    requests = np.array(run["requests"])
    measured = metrics(requests[:, 0], requests[:, 0] + requests[:, 3], requests[:, 0] + requests[:, 4], requests[:, 2])
    if COMPILED_TAIL in run["flags"]:
        measured = {name: value for name, value in measured.items() if name != "TTFT p95"}
    simulated = [metrics(one.arrived, one.first, one.finished, one.outputs) for one in outcomes]
    return Replayed(run["model"], f"{run['rate']:g}/s", measured, *simulated)


def replayed(truth: Path, lookups: LookupCache) -> tuple[list[Replayed], Counter[str]]:
    """Return all valid runs, and the number of runs or metrics left out by the flag that says why."""
    runs: list[Replayed] = []
    calibrations = calibrations_without_models(lookups.catalog)
    model: Mapping[str, Any] = {}
    left_out = Counter[str]()
    measured = rows(truth)
    skewed = {row["model"] for row in measured if SKEWED in row.get("flags", ())}
    for row in measured:
        if row["task"] == "model":
            model = row
        elif row["task"] in ("serve", "batch"):
            if COMPILED in row["flags"] or row["model"] in skewed:
                left_out[COMPILED if COMPILED in row["flags"] else SKEWED] += 1
            else:
                runs.append(compared(model, row, lookups, calibrations[MODELS[row["model"]]]))
                left_out[COMPILED_TAIL] += COMPILED_TAIL in row["flags"]
    return runs, left_out


def lines(truth: Path, lookups: LookupCache | None = None) -> Iterator[str]:
    """Lines of the section on replayed loads."""
    runs, left_out = replayed(truth, lookups or LookupCache(Catalog()))
    yield "## vLLM 0.26 on one H200: measured arrivals replayed"
    yield ""
    yield "Every request's arrival and lengths as measured, at most 256 sequences and 8,192 tokens a step, no prefix caching."
    yield "Times in ms, wall in s, throughput in output tokens/s. *Simulated*: steps timed by a fit that saw no row of the model."
    yield f"Of {len(runs) + left_out[COMPILED] + left_out[SKEWED]} runs these are left out: {left_out[COMPILED]} in which kernels"
    yield f"were compiled, and {left_out[SKEWED]} of a model whose random weights route most tokens to few experts"
    yield f"(DeepSeek-V2-Lite). Of {left_out[COMPILED_TAIL]} more the 95th percentile of TTFT is left out, which is compilation."
    yield ""
    yield "| model | load | metric | measured | simulated | error | as shipped: error |"
    yield "|---|---|---|---|---|---|---|"
    for run in runs:
        for name, value in run.measured.items():
            scale = 1e3 if name[:4] in ("TTFT", "TPOT") else 1.0
            error, shipped = (one[name] / value - 1.0 for one in (run.simulated, run.shipped))
            cells = f"{scale * value:.4g} | {scale * run.simulated[name]:.4g} | {error:+.1%} | {shipped:+.1%}"
            yield f"| {run.model} | {run.load} | {name} | {cells} |"
    yield ""
    yield from _summary(runs)


def _summary(runs: Sequence[Replayed]) -> Iterator[str]:
    yield "| metric | runs | model left out: mean error | largest | goal | met | as shipped: mean error |"
    yield "|---|---|---|---|---|---|---|"
    for name in ("TPOT p50", "TPOT p95", "TTFT p50", "TTFT p95", "throughput", "wall"):
        known = [run for run in runs if name in run.measured]
        errors, shipped = (
            [abs(one[name] / measured[name] - 1.0) for one, measured in pairs]
            for pairs in ([(run.simulated, run.measured) for run in known], [(run.shipped, run.measured) for run in known])
        )
        goal = GOALS.get(name)
        met = "" if goal is None else "yes" if np.mean(errors) <= goal else "no"
        cells = f"{np.mean(errors):.1%} | {max(errors):.1%} | {f'{goal:.0%}' if goal else ''} | {met} | {np.mean(shipped):.1%}"
        yield f"| {name} | {len(errors)} | {cells} |"
    yield ""


def start_lines(truth: Path, lookups: LookupCache | None = None) -> Iterator[str]:
    """Lines of the section on KV tokens and start-up seconds."""
    lookups, measured = lookups or LookupCache(Catalog()), rows(truth)
    starts = [row for row in measured if row["task"] == "memory" and "kv_tokens" in row]
    yield "## vLLM 0.26 on one H200: KV tokens and start"
    yield ""
    yield "KV tokens: no constant was fitted on these rows. Start: seconds from launch to ready, with a cold cache, without"
    yield "reading weights; by the rule of the engine's record with constants from the other models (medians)."
    yield ""
    yield "| model | KV tokens | estimated | error | start, s | estimated | error |"
    yield "|---|---|---|---|---|---|---|"
    for row in starts:
        model = next(one for one in measured if one["task"] == "model" and one["model"] == row["model"])
        longest = model["settings"]["max_model_len"]
        workload, shape, limits = workload_of(model, lookups, longest - 256, 256)
        tokens = kv_tokens(workload, shape, lookups.catalog.gpu_by_id[GPU], limits.memory)
        assert tokens is not None
        others = [one for one in starts if one["model"] != row["model"]]
        rule = start_constants([(one, _layers(one, lookups)) for one in others])
        seconds = row["import_s"] + row["engine_start_s"]
        predicted = start_seconds(rule, *_layers(row, lookups))
        yield (
            f"| {row['model']} | {row['kv_tokens']:,} | {tokens.value:,.0f} | {tokens.value / row['kv_tokens'] - 1:+.1%} | "
            f"{seconds:.0f} | {predicted:.0f} | {predicted / seconds - 1:+.1%} |"
        )
    yield ""


def start_constants(starts: Sequence[tuple[Mapping[str, Any], tuple[int, bool]]]) -> EngineStart:
    """Return the constants of start-up as medians over measured starts, given their layers and whether they are MoE."""
    beside = [row["import_s"] + row["engine_start_s"] - row["compile_s"] - row["graph_s"] for row, _ in starts]
    capture = {moe: [row["graph_s"] / row["graph_sizes"] for row, one in starts if one[1] is moe] for moe in (False, True)}
    return EngineStart(
        fixed=float(np.median(beside)),
        compile_per_layer=float(np.median([row["compile_s"] / layers for row, (layers, _) in starts])),
        capture=float(np.median(capture[False])),
        capture_moe=float(np.median(capture[True])),
        graph_sizes=GRAPH_SIZES,
    )


def _layers(row: Mapping[str, Any], lookups: LookupCache) -> tuple[int, bool]:
    shape = lookups.shape(MODELS[row["model"]])
    assert isinstance(shape, Transformer)
    return shape.layers, shape.experts is not None


if __name__ == "__main__":
    print("\n".join((*start_lines(Path(sys.argv[1])), *lines(Path(sys.argv[1])))))
