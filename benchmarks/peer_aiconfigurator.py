"""Estimates of NVIDIA's package `aiconfigurator` for measured rows, compared with the tool's.

The package is optional. Its estimates are recorded in peer_aiconfigurator.csv by running, in an environment that has it:

    PYTHONPATH=src:tools python -m benchmarks.peer_aiconfigurator --record
"""

from __future__ import annotations

import csv
import json
import logging
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from calibration.scores import Score, score

from whichgpu.catalog.evidence import Measurement, measurements, steps
from whichgpu.catalog.store import Catalog

PACKAGE = "aiconfigurator"
RECORD = Path(__file__).with_suffix(".csv")
SOURCES = ("h200-decode", "h200-prefill", "h200-quant", "h200-moe", "h200-vllm", "h200-vllm-2", "argonne", "trtllm")
MODES = {"decode": "static_gen", "prefill": "static_ctx", "generate": "static"}
SYSTEMS = {"h200-sxm": "h200_sxm", "h100-sxm": "h100_sxm", "a100-sxm-80gb": "a100_sxm", "l40s": "l40s"}
BACKENDS = {"vllm": ("vllm",), "tensorrt-llm": ("trtllm",)}
ALL_BACKENDS = ("vllm", "trtllm", "sglang")  # plain PyTorch is none of its backends, so every backend is queried for such rows
ARCHITECTURES = {
    "llama": "Llama", "mistral": "Llama", "qwen2": "Qwen2", "mixtral": "Mixtral", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe",
    "gpt_oss": "GptOss", "deepseek_v2": "DeepseekV3",
}  # fmt: skip  # Mistral's operators are Llama's
PRODUCTS = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8_static", "int4": "int4_wo", "mxfp4": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Question:
    """A measured row as a query to the package."""

    row: Measurement
    config: Mapping[str, Any]
    backend: str

    def arguments(self) -> dict[str, Any]:
        """Arguments of the package's `cli_estimate`. One decode step is the second of two tokens."""
        request = self.row.request
        cache_fp8 = request["precision"] == "fp8" and request["engine"] == "tensorrt-llm"  # NVIDIA's engines use an fp8 KV cache
        return {
            "system_name": SYSTEMS[self.row.gpu],
            "mode": MODES[self.row.kind],
            "backend_name": self.backend,
            "isl": request["seq_in"],
            "osl": 2 if self.row.kind == "decode" else request.get("seq_out", 1),
            "batch_size": request["batch"],
            "gemm_quant_mode": PRODUCTS[request["precision"]],
            "kvcache_quant_mode": "fp8" if cache_fp8 else "bfloat16",
            "fmha_quant_mode": "bfloat16",
            "moe_tp_size": 1,
            "moe_ep_size": 1,
        }

    def __str__(self) -> str:
        model = self.row.request["model"]
        name = model if isinstance(model, str) else self.row.family
        return " ".join(map(str, (name, *self.arguments().values())))


class Answer(NamedTuple):
    """A line of the record. `question` identifies the row, so that a record of other rows is not used by mistake."""

    source: str
    row: int
    tables: str
    question: str
    seconds: float
    version: str


def questions(rows: Sequence[Measurement]) -> Iterator[Question]:
    """Queries for rows whose GPU and architecture the package knows."""
    configs = {model.id: model.config for model in Catalog().models}
    for row in rows:
        model = row.request["model"]
        config = configs.get(model) if isinstance(model, str) else model
        if row.gpu in SYSTEMS and config is not None and config.get("model_type") in ARCHITECTURES:
            yield from (Question(row, config, backend) for backend in BACKENDS.get(row.request["engine"], ALL_BACKENDS))


def candidates() -> list[Measurement]:
    """Steps of language models on one GPU by an engine of the package's kind."""
    return [row for row in steps(measurements()) if row.source in SOURCES and row.kind in MODES]


def ask(queries: Sequence[Question]) -> Iterator[Answer]:
    """Estimates of the installed package from its measured tables, if it has them."""
    for name in (PACKAGE, f"{PACKAGE}_core"):
        logging.getLogger(name).setLevel(logging.ERROR)
    estimate: Any = import_module(f"{PACKAGE}.cli.api").cli_estimate
    latest: Any = cache(import_module(f"{PACKAGE}.sdk.perf_database").get_latest_database_version)
    missing: Any = import_module(f"{PACKAGE}.sdk.errors").PerfDataNotAvailableError
    with tempfile.TemporaryDirectory() as folder:
        for question in queries:
            row, arguments = question.row, question.arguments()
            tables = latest(arguments["system_name"], question.backend)
            architecture = f"{ARCHITECTURES[question.config['model_type']]}ForCausalLM"
            config = json.dumps({**question.config, "architectures": [architecture]})
            model = Path(folder) / str(hash(config))
            model.mkdir(exist_ok=True)
            (model / "config.json").write_text(config)
            try:
                estimates = estimate(str(model), backend_version=tables, **arguments)
            except missing:
                continue
            seconds = round((estimates.ttft + estimates.tpot * (arguments["osl"] - 1)) / 1e3, 7)
            yield Answer(row.source, row.row, f"{question.backend} {tables}", str(question), seconds, version(PACKAGE))


def recorded(queries: Sequence[Question]) -> list[Answer]:
    """The recorded estimates for exactly these queries."""
    keys = {(question.row.source, question.row.row, str(question)) for question in queries}
    with RECORD.open(newline="") as stream:
        _, *cells = csv.reader(stream)
    answers = [Answer(source, int(row), tables, text, float(took), made) for source, row, tables, text, took, made in cells]
    return [answer for answer in answers if (answer.source, answer.row, answer.question) in keys]


def lines(ours: Mapping[tuple[str, int], float] | None = None) -> Iterator[str]:
    """The page's section on the package; `ours` are the tool's predictions in seconds by source and row."""
    yield f"## Beside {PACKAGE}\n"
    installed = find_spec(PACKAGE) is not None
    if not installed:
        yield f"The package `{PACKAGE}` is not installed{'; these are its recorded answers' if RECORD.exists() else ''}.\n"
        if not RECORD.exists():
            return
    rows = candidates()
    queries = list(questions(rows))
    answers = list(ask(queries)) if installed else recorded(queries)
    measured = {(row.source, row.row): row for row in rows}
    yield _method(measured, queries, answers)
    yield f"| rows | its tables | count | mean | median | p90 | bias |{' ours: mean | median | p90 |' if ours else ''}"
    yield f"|---|---|---|---|---|---|---|{'---|---|---|' if ours else ''}"
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for answer in answers:
        key = (answer.source, answer.row)
        if ours is None or key in ours:
            row = measured[key]
            name = f"{row.source}: {row.kind}, {row.gpu}, {row.request['precision']} | {answer.tables}"
            groups[name].append((answer.seconds / row.seconds, ours[key] / row.seconds if ours else 1.0))
    for name, ratios in groups.items():
        theirs, mine = (score(logs) for logs in np.log(ratios).T)
        yield f"| {name} | {theirs.rows} | {_errors(theirs)} | {theirs.bias:+.1%} |{f' {_errors(mine)} |' if ours else ''}"
    yield ""


def _errors(scored: Score) -> str:
    return f"{scored.mean:.1%} | {scored.median:.1%} | {scored.p90:.1%}"


def _method(measured: Mapping[tuple[str, int], Measurement], queries: Sequence[Question], answers: Sequence[Answer]) -> str:
    keys = {(question.row.source, question.row.row) for question in queries}
    answered = {(answer.source, answer.row) for answer in answers}
    unknown = Counter("GPU" if row.gpu not in SYSTEMS else "model" for key, row in measured.items() if key not in keys)
    return f"""\
Version {", ".join(sorted({answer.version for answer in answers}))}, its default mode (measured tables), nothing adjusted.
Of {len(measured)} steps of language models on one GPU it answers {len(answered)}: it does not know the GPU of \
{unknown["GPU"]} and the architecture of {unknown["model"]}, and has no table of the GEMMs of {len(keys - answered)}.

- A whole batch (generate) is its `static` estimate, a prefill `static_ctx`, a decode step the second token of `static_gen`.
- 16-bit rows are queried as bfloat16. fp8 has static scales, as it reads a checkpoint that does not say otherwise, and \
16-bit attention; NVIDIA's own rows keep the cache in fp8, as their engines were built.
- The H200's rows ran in plain PyTorch, which is none of its backends, so every backend is queried. Its MoE layers run a \
fused kernel and load experts unevenly; PyTorch's grouped GEMM, which was measured, is about half as fast.
- Its tables are of newer engines than the published rows of 2024. Its static estimates have no term for the host.
"""


def main() -> int:
    """Print the section; with --record, query the package first and save its estimates."""
    if "--record" in sys.argv:
        answers = list(ask(list(questions(candidates()))))
        with RECORD.open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([Answer._fields, *answers])
    print(*lines(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
