"""Runs of llama.cpp of 2025 and 2026 (and gpt-fast) from `truth/public2` as evidence rows, and why others are left out.

Replaces the rows of its own sources in the table and leaves all others as they are.

PYTHONPATH=src:tools python -m evidence.runs.llama_cpp ../shared/truth
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from evidence.names import as_model, catalog_names, doubt, family
from evidence.published import Published, numbered_rows
from evidence.reasons import Reason
from whichgpu.catalog.evidence import TABLE, Kind, Measurement, evidence_sources, measurements, table_bytes

FILES = (
    "llamacpp_repo_benches.csv", "llamacpp_pr_tables.csv", "lhl_strix_halo_llamacpp.csv.gz", "kyuz0_amd_llamacpp.csv",
    "rtx3090x4_archive.csv", "geerling_ai_benchmarks.csv", "gpt_fast.csv", "autoawq_int4.csv", "mlc_llm_perf_bench.csv",
    "ds4_apple_deepseek_v4_flash.csv",
)  # fmt: skip
# Builds of which the faster is used for each model and setting: ROCm with hipBLASLt and rocWMMA attention, Vulkan on Mesa's RADV.
BUILDS = {
    "lhl": r"^llama.cpp b\d+ llama.cpp-(rocwmma fa=-fa 1 hipblaslt=1|vulkan(_radv)? fa=-fa 1)",
    "kyuz0": r"rocm-7[._]2[._][34]( profile=default)?$|rocm-7\.14$|vulkan[-_]radv$",
}
# Lengths in tokens of the prompts and answers that are used where a source has every power of two.
PROMPTS, ANSWERS = (1, 2, 4, 8, 16, 32, 64, 256, 512, 2048), (128, 2048)
DEPTH_STEP = 16384  # tokens; series every 8,192 tokens are used at every second depth
SHORT_CONTEXT = 512  # tokens, assumed: Ollama's questions and answers of a few hundred tokens
MAX_RUN_CONTEXT = 16384  # tokens; the tables' tests up to this length start from an empty cache, so half of it is the mean
LONG_PROMPT = 2048  # tokens
NARROW_PROMPT = 8  # tokens that gpt-fast's prompt has


class Run(msgspec.Struct, frozen=True):
    """A published row and its flags."""

    row: Published
    flags: str


Result = Measurement | Reason


def read_runs(folder: Path) -> Iterator[Run]:
    """Yield the rows of all files."""
    for line, cells in numbered_rows(folder, FILES):
        whole = {one: int(cells[one]) if cells[one].isdigit() else None for one in ("batch", "seq_in", "seq_out")}
        row = Published(
            line=line, source=cells["source"], path=cells["source_path"], date=cells["date"], gpu=cells["gpu"],
            gpus=int(cells["n_gpus"] or 1), task=cells["task"], framework=cells["framework"], model=cells["model"],
            precision=cells["precision"], metric=cells["metric"], value=float(cells["value"]), notes=cells["notes"],
            trust=cells["trust"], **whole,
        )  # fmt: skip
        yield Run(row, cells["flags"])


def row_result(run: Run) -> Result:
    """Return the measurement of one run, or the first reason why it is none."""
    row = run.row
    if row.source not in READERS or (row.source == "4x3090-archive" and not row.framework.startswith("llama")):
        return Reason.OTHER_ENGINE
    if "speculative" in run.flags:
        return Reason.SPECULATIVE
    if row.trust == "low":
        return Reason.LOW_TRUST
    if not row.task.startswith("infer-") or row.task == "infer-memory":
        return Reason.NOT_A_TIME if row.task == "infer-memory" else Reason.TWIN
    if row.source in BUILDS and not re.search(BUILDS[row.source], row.framework):
        return Reason.OTHER_BUILD
    return doubt(row) or READERS[row.source](row)


def _measured(row: Published, kind: Kind, seconds: float, seq_in: int, batch: int = 1, **fields: Any) -> Result:
    names = catalog_names(row)
    if isinstance(names, Reason):
        return names
    request: dict[str, Any] = {
        "task": kind, "model": as_model(names.model), "gpu": names.gpu, "gpus": row.gpus, "precision": names.precision,
        "engine": names.software.engine, "year": names.software.year, "batch": batch, "seq_in": seq_in,
    }  # fmt: skip
    return Measurement(
        source=row.source, gpu=names.gpu, request=request, seconds=seconds, kind=kind, trust=row.trust,
        family=family(names.model), row=row.line, path=row.path, date=row.date, **fields,
    )  # fmt: skip


def llama_bench(row: Published) -> Result:
    """A prompt of n tokens or n generated tokens, after a context of d tokens (`pp2048 @ d4096`)."""
    new, answer = row.seq_in or 0, row.seq_out or 0
    depth = int(row.noted(r"@ d(\d+)") or row.noted(r"from depth (\d+)") or 0)
    if depth % DEPTH_STEP and row.source == "kyuz0":
        return Reason.THINNED
    if row.task == "infer-decode":
        if row.source == "lhl" and answer not in ANSWERS:
            return Reason.THINNED
        return _measured(row, "decode", 1.0 / row.value, depth + max(answer // 2, 1))
    new -= depth
    if row.source == "lhl" and new not in PROMPTS:
        return Reason.THINNED
    usual = LONG_PROMPT if new == LONG_PROMPT and row.source != "lhl" else 0  # n_ubatch that these sources set for long prompts
    micro_batch = int(row.noted(r"ubatch (\d+)") or row.noted(r"b=-b (\d+)") or usual)
    if new == 1:
        return _measured(row, "decode", 1.0 / row.value, 1)
    return _measured(row, "prefill", new / row.value, new, cached_tokens=depth, micro_batch_tokens=micro_batch)


def repository_bench(row: Published) -> Result:
    """llama-batched-bench: prompts of a batch, then tokens of all its sequences; other rows are llama-bench's."""
    if "batched-bench" not in row.framework:
        return llama_bench(row)
    batch, length = row.batch or 1, row.seq_in or 0
    if row.task == "infer-decode":
        return _measured(row, "decode", batch / row.value, length + (row.seq_out or 0) // 2, batch)
    return _measured(row, "prefill", batch * length / row.value, length, batch, micro_batch_tokens=2048)


def pull_request_table(row: Published) -> Result:
    """A forward pass over a micro-batch of n tokens at a depth, or at the mean context of a run from an empty cache."""
    tokens, context = row.batch or 1, row.seq_in or 0
    depth = context if context > MAX_RUN_CONTEXT else context // 2
    if tokens == 1:
        return _measured(row, "decode", 1.0 / row.value, depth)
    if tokens > context:
        return Reason.SUSPICIOUS
    return _measured(row, "prefill", tokens / row.value, tokens, cached_tokens=depth, micro_batch_tokens=tokens)


def short_chat(row: Published) -> Result:
    """Tokens per second of one user's short answer; the context is not stated."""
    if row.model.endswith("405b") and row.gpu == "512GB":
        return Reason.NO_LAYOUT  # a cluster of four boards
    return _measured(row, "decode", 1.0 / row.value, SHORT_CONTEXT)


def single_stream(row: Published) -> Result:
    """Decoding of one sequence; the prefill rates of one prompt differ by three times between runs."""
    if row.metric != "decode tokens/s":
        return Reason.SUSPICIOUS if row.task == "infer-prefill" else Reason.TWIN
    if row.seq_in is None:
        return Reason.NO_SEQUENCE
    return _measured(row, "decode", 1.0 / row.value, row.seq_in + (row.seq_out or 0) // 2)


def gpt_fast(row: Published) -> Result:
    """200 tokens from a prompt of a few; the rows of 70B models follow those of 7B under its name."""
    if row.gpus > 1:
        return Reason.NO_LAYOUT
    if "Tensor Parallelism" in row.notes:
        return Reason.TWIN
    if row.value < 30.0:
        return Reason.UNKNOWN_NETWORK
    return _measured(row, "decode", 1.0 / row.value, NARROW_PROMPT + (row.seq_out or 0) // 2)


READERS: Mapping[str, Callable[[Published], Result]] = {
    "llama.cpp-benches": repository_bench, "llama.cpp-pr": pull_request_table, "lhl": llama_bench, "kyuz0": llama_bench,
    "geerling": short_chat, "4x3090-archive": single_stream, "gpt-fast": gpt_fast,
}  # fmt: skip


def llama_cpp_runs(truth: Path) -> tuple[list[Measurement], Counter[tuple[str, Reason]]]:
    """Return the rows, of the builds of one setting the fastest, and counts of rows left out by source and reason."""
    fastest: dict[str, Measurement] = {}
    left_out: Counter[tuple[str, Reason]] = Counter()
    for run in read_runs(truth / "public2"):
        result = row_result(run)
        if isinstance(result, Reason):
            left_out[run.row.source, result] += 1
            continue
        key = _setting(result)
        if key in fastest:
            left_out[result.source, Reason.OTHER_BUILD] += 1
        if key not in fastest or result.seconds < fastest[key].seconds:
            fastest[key] = result
    return list(fastest.values()), left_out


def _setting(row: Measurement) -> str:
    """Return a key that the builds of one run share; the largest micro-batch is one more setting of a build."""
    return repr((row.source, row.kind, row.request, row.cached_tokens))


def main(truth: Path) -> None:
    """Put the rows into the table and print how many of each source were taken and left out."""
    rows, left_out = llama_cpp_runs(truth)
    if unknown := {row.source for row in rows} - set(evidence_sources()):
        raise SystemExit(f"no licence and address in evidence_sources.csv: {sorted(unknown)}")
    others = [row for row in measurements() if row.source not in READERS]
    TABLE.write_bytes(table_bytes([*others, *(replace(row, date=row.date[:10]) for row in rows)]))
    for (source, kind, gpu), count in sorted(Counter((row.source, row.kind, row.gpu) for row in rows).items()):
        print(source, kind, gpu, count, sep="\t")
    for (source, reason), count in sorted(left_out.items()):
        print(source, "left out", reason, count, sep="\t")
    print(f"{len(rows)} rows of {len(others) + len(rows)}, {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
