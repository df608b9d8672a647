"""What NVIDIA's package `aiconfigurator` answers on measured rows, beside what we do.

The package is optional. Its answers are recorded in peer_aiconfigurator.csv by running, where it is installed:

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
PLAIN = ("vllm", "trtllm", "sglang")  # plain PyTorch is none of its backends: each of them is asked
ARCHITECTURES = {
    "llama": "Llama", "mistral": "Llama", "qwen2": "Qwen2", "mixtral": "Mixtral", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe",
    "gpt_oss": "GptOss", "deepseek_v2": "DeepseekV3",
}  # fmt: skip  # Mistral's operators are Llama's
PRODUCTS = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8_static", "int4": "int4_wo", "mxfp4": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Question:
    """A measured row as the package is asked for it."""

    row: Measurement
    config: Mapping[str, Any]
    backend: str

    def arguments(self) -> dict[str, Any]:
        """Arguments of its `cli_estimate`. One decode step is the second of two tokens."""
        request = self.row.request
        cache_fp8 = request["precision"] == "fp8" and request["engine"] == "tensorrt-llm"  # NVIDIA's engines keep it in fp8
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
    """A line of the record. `asked` is the question, so that a record of other rows is not taken for these."""

    source: str
    row: int
    tables: str
    asked: str
    seconds: float
    version: str


def questions(rows: Sequence[Measurement]) -> Iterator[Question]:
    """The questions of rows whose GPU and architecture it knows."""
    configs = {model.id: model.config for model in Catalog().models}
    for row in rows:
        model = row.request["model"]
        config = configs.get(model) if isinstance(model, str) else model
        if row.gpu in SYSTEMS and config is not None and config.get("model_type") in ARCHITECTURES:
            yield from (Question(row, config, backend) for backend in BACKENDS.get(row.request["engine"], PLAIN))


def candidates() -> list[Measurement]:
    """Steps of language models on one GPU that some engine of its kind ran."""
    return [row for row in steps(measurements()) if row.source in SOURCES and row.kind in MODES]


def ask(asked: Sequence[Question]) -> Iterator[Answer]:
    """The answers of the installed package from its measured tables, where it has them."""
    for name in (PACKAGE, f"{PACKAGE}_core"):
        logging.getLogger(name).setLevel(logging.ERROR)
    estimate: Any = import_module(f"{PACKAGE}.cli.api").cli_estimate
    latest: Any = cache(import_module(f"{PACKAGE}.sdk.perf_database").get_latest_database_version)
    missing: Any = import_module(f"{PACKAGE}.sdk.errors").PerfDataNotAvailableError
    with tempfile.TemporaryDirectory() as folder:
        for question in asked:
            row, arguments = question.row, question.arguments()
            tables = latest(arguments["system_name"], question.backend)
            architecture = f"{ARCHITECTURES[question.config['model_type']]}ForCausalLM"
            config = json.dumps({**question.config, "architectures": [architecture]})
            model = Path(folder) / str(hash(config))
            model.mkdir(exist_ok=True)
            (model / "config.json").write_text(config)
            try:
                told = estimate(str(model), backend_version=tables, **arguments)
            except missing:
                continue
            seconds = round((told.ttft + told.tpot * (arguments["osl"] - 1)) / 1e3, 7)
            yield Answer(row.source, row.row, f"{question.backend} {tables}", str(question), seconds, version(PACKAGE))


def recorded(asked: Sequence[Question]) -> list[Answer]:
    """The recorded answers to these very questions."""
    wanted = {(question.row.source, question.row.row, str(question)) for question in asked}
    with RECORD.open(newline="") as stream:
        _, *cells = csv.reader(stream)
    found = [Answer(source, int(row), tables, text, float(took), made) for source, row, tables, text, took, made in cells]
    return [answer for answer in found if (answer.source, answer.row, answer.asked) in wanted]


def lines(ours: Mapping[tuple[str, int], float] | None = None) -> Iterator[str]:
    """Its section of the page; `ours` are our predictions in seconds by source and row, scored on the same rows."""
    yield f"## Beside {PACKAGE}\n"
    installed = find_spec(PACKAGE) is not None
    if not installed:
        yield f"The package `{PACKAGE}` is not installed{'; these are its recorded answers' if RECORD.exists() else ''}.\n"
        if not RECORD.exists():
            return
    rows = candidates()
    asked = list(questions(rows))
    answers = list(ask(asked)) if installed else recorded(asked)
    measured = {(row.source, row.row): row for row in rows}
    yield _method(measured, asked, answers)
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


def _errors(told: Score) -> str:
    return f"{told.mean:.1%} | {told.median:.1%} | {told.p90:.1%}"


def _method(measured: Mapping[tuple[str, int], Measurement], asked: Sequence[Question], answers: Sequence[Answer]) -> str:
    known = {(question.row.source, question.row.row) for question in asked}
    answered = {(answer.source, answer.row) for answer in answers}
    strangers = Counter("GPU" if row.gpu not in SYSTEMS else "model" for key, row in measured.items() if key not in known)
    return f"""\
Version {", ".join(sorted({answer.version for answer in answers}))}, its default mode (measured tables), nothing adjusted.
Of {len(measured)} steps of language models on one GPU it answers {len(answered)}: it does not know the GPU of \
{strangers["GPU"]} and the architecture of {strangers["model"]}, and has no table of the products of {len(known - answered)}.

- A whole batch (generate) is its `static` estimate, a prefill `static_ctx`, a decode step the second token of `static_gen`.
- 16-bit rows are asked for as bfloat16. fp8 has static scales, as it reads a checkpoint that does not say otherwise, and \
16-bit attention; NVIDIA's own rows keep the cache in fp8, as their engines were built.
- The H200's rows ran in plain PyTorch, which is none of its backends, so each of these is asked. Its mixtures of experts run a \
fused kernel and load experts unevenly; PyTorch's grouped product, which was measured, is about half as fast.
- Its tables are of newer engines than the published rows of 2024. Its static estimates have no term for the host.
"""


def main() -> int:
    """Print the section; with --record, ask the package first and keep its answers."""
    if "--record" in sys.argv:
        answers = list(ask(list(questions(candidates()))))
        with RECORD.open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([Answer._fields, *answers])
    print(*lines(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
