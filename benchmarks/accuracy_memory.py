"""Memory estimates against measured training steps, next to counting parameters and the formula of 2015 on the same rows.

Peaks that torchtune and LitGPT publish for fine-tuning follow, with medians by source and kind of adapters.

Run: python -m benchmarks.accuracy_memory [FOLDER]   (the folder with h200/train.jsonl; default ../shared/truth)
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.runs.finetuning import peak_memories

from whichgpu.base.units import MIB
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import from_object
from whichgpu.workload.workload import Workload

ROOT = Path(__file__).resolve().parent.parent
WIDTH = {"fp32": 4, "tf32": 4, "amp-bf16": 4, "bf16": 2}


@dataclass(frozen=True, slots=True)
class Row:
    """One measured step and the bytes by each method of estimation."""

    family: str
    label: str
    allocated: int
    device: int
    ours: float
    ours_range: tuple[float, float]
    ours_device: float
    device_range: tuple[float, float]
    parameters_only: float
    formula: float


def request(measured: dict[str, Any]) -> Workload:
    """A row of train.jsonl as a request of the contract."""
    name = measured["model"]
    return Workload(
        "train",
        name.replace("mlp-", "mlp:") if name.startswith("mlp-") else name,
        gpu="H200 SXM",
        precision=measured["precision"],
        batch=measured["batch"],
        seq_in=measured["seq"],
        optimizer={"sgdm": "sgd-momentum"}.get(measured["opt"], measured["opt"]),
        checkpointing="full" if measured.get("ckpt") else "none",
        lora_rank=measured.get("lora"),
        engine="pytorch",
    )


def rows(folder: Path) -> Iterator[Row]:
    """Every measured row with its estimates."""
    catalog = Catalog()
    gpu = catalog.gpu_by_id["h200-sxm"]
    for line in (folder / "h200" / "train.jsonl").read_text(encoding="utf-8").splitlines():
        measured = json.loads(line)
        if "error" in measured:
            continue
        workload = request(measured)
        shape = find_model(workload.model, catalog)
        filled = fill_defaults(workload, shape)
        estimate = estimate_memory(filled, shape, gpu)
        other = estimate_memory(fill_defaults(with_method(workload), shape), shape, gpu)
        yield Row(
            family(measured["model"]),
            f"{measured['model']} b{measured['batch']} {measured['precision']}",
            int((measured["peak_alloc_mib"] + measured["base_alloc_mib"]) * MIB),
            int(measured["device_used_mib"] * MIB),
            estimate.allocated.value,
            (estimate.allocated.low, estimate.allocated.high),
            estimate.device.value,
            (estimate.device.low, estimate.device.high),
            measured["params"] * WIDTH[measured["precision"]],
            other.allocated.value,
        )


def with_method(workload: Workload) -> Workload:
    """The same workload, estimated by the formula of 2015."""
    from msgspec.structs import replace

    return replace(workload, method="blog-2015")


def family(model: str) -> str:
    """mlp, vision, or the language model's family."""
    for name in ("mlp", "bert", "gpt2", "qwen", "llama", "mistral"):
        if model.startswith(name):
            return name
    return "vision"


def report(table: Sequence[Row]) -> Iterator[str]:
    """Errors by family and in all, as tab-separated lines."""
    yield "family\trows\tallocated mean\tworst\tdevice mean\tworst\tin range\tdevice in range\tparameters only\tformula of 2015"
    families = [*dict.fromkeys(row.family for row in table)]
    for name, chosen in [*((name, [row for row in table if row.family == name]) for name in families), ("all", list(table))]:
        yield "\t".join(
            (
                name,
                str(len(chosen)),
                *_mean_and_worst(chosen, lambda row: row.ours / row.allocated),
                *_mean_and_worst(chosen, lambda row: row.ours_device / row.device),
                _share(row.ours_range[0] <= row.allocated <= row.ours_range[1] for row in chosen),
                _share(row.device_range[0] <= row.device <= row.device_range[1] for row in chosen),
                _mean_and_worst(chosen, lambda row: row.parameters_only / row.allocated)[0],
                _mean_and_worst(chosen, lambda row: row.formula / row.allocated)[0],
            )
        )


def published_peaks(folder: Path) -> Iterator[str]:
    """Estimated over published peak of allocated memory in fine-tuning, and the median error of each source."""
    catalog = Catalog()
    lookups, errors = LookupCache(catalog), dict[str, list[float]]()
    for one in peak_memories(folder):
        shape = lookups.shape(one.request["model"])
        workload = fill_defaults(from_object(one.request).workload, shape)
        ratio = estimate_memory(workload, shape, catalog.gpu_by_id[one.gpu]).allocated.value / one.allocated
        adapters = "QLoRA" if workload.qlora else "LoRA" if workload.lora_rank else "full"
        errors.setdefault(f"{one.source} {adapters}", []).append(abs(ratio - 1))
        yield f"{one.source} {shape.name} {adapters} {workload.engine} b{workload.batch}\t{ratio - 1:+.1%}"
    for source, found in errors.items():
        yield f"{source}\t{len(found)} rows\tmedian {statistics.median(found):.1%}"


def _mean_and_worst(chosen: Sequence[Row], ratio: Callable[[Row], float]) -> tuple[str, str]:
    errors = [abs(ratio(row) - 1) for row in chosen]
    return f"{statistics.mean(errors):.1%}", f"{max(errors):.1%}"


def _share(inside: Iterable[bool]) -> str:
    shares = list(inside)
    return f"{sum(shares) / len(shares):.0%}"


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared" / "truth"
    if not folder.is_dir():
        print(f"no measurements at {folder}", file=sys.stderr)
        return 1
    table = list(rows(folder))
    for row in sorted(table, key=lambda row: abs(row.ours / row.allocated - 1)):
        print(f"{row.label}\t{row.ours / row.allocated - 1:+.1%}\tdevice {row.ours_device / row.device - 1:+.1%}")
    print(*report(table), sep="\n")
    print(*published_peaks(folder), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
