"""For any cells of a price list: each row is stored or rejected with its reason, and queries still work."""

from __future__ import annotations

import csv
import json
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from whichgpu.api.context import Context
from whichgpu.api.prices.changes import catalog_watch
from whichgpu.api.prices.history import history
from whichgpu.api.prices.offers import OffersQuery, list_offers
from whichgpu.api.prices.store import PriceImportAnswer, catalog_import
from whichgpu.base.errors import NoAnswer
from whichgpu.catalog.live.plausibility import REASONS
from whichgpu.catalog.store import Catalog

CATALOG = Catalog()
TODAY = date(2026, 11, 15)
NUMBERS = "0 -0 1 -1 8 0.5 nan inf -inf sNaN 1e308 -1e308 1e-308 1e400 1e-999999999 1_0 １ 12345678901234567890 0x1 1,5".split()
numbers = st.sampled_from([*NUMBERS, "", " "]) | st.floats().map(str) | st.integers().map(str)
words = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=12)

own = st.fixed_dictionaries(
    {
        "provider": st.sampled_from(["colo", "aws", ""]) | words,
        "gpu": st.sampled_from(["L4", "H100 SXM"]) | words,
        "price": numbers,
    },
    optional={
        "instance": st.sampled_from(["p5.48xlarge", "one"]) | words,
        "region": words,
        "gpus": numbers,
        "term": st.sampled_from(["on-demand", "spot", "reserved-1y"]) | words,
        "payment": st.sampled_from(["all-upfront", ""]) | words,
        "currency": st.sampled_from(["USD", "KRW", "ZZZ", "TRL", "usd", ""]) | words,
        "upfront": numbers,
        "per": st.sampled_from(["hour", "gpu-hour", "month"]) | words,
        "discount": numbers | numbers.map(lambda text: f"{text}%"),
        "observed": st.sampled_from(["2026-01-01", "2026-02-30", "0001", "9999", "2026"]) | words,
        "last_observed": st.sampled_from(["2026-01-01", "9999", ""]) | words,
    },
)
json_cell = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | numbers
json_value = json_cell | st.lists(json_cell, max_size=2) | st.dictionaries(st.sampled_from(["amount", "currency"]), json_cell)
skypilot = st.fixed_dictionaries(
    {
        "InstanceType": st.sampled_from(["p5.48xlarge", "g6f.large", ""]) | words,
        "AcceleratorName": st.sampled_from(["H100", "L4", "T4", "tpu-v4-8"]) | words,
        "AcceleratorCount": numbers,
        "vCPUs": numbers,
        "MemoryGiB": numbers,
        "GpuInfo": st.just("{'Gpus': [{'Name': 'L4', 'MemoryInfo': {'SizeInMiB': 24576}}]}") | numbers,
        "Price": numbers,
        "SpotPrice": numbers,
        "Region": words,
        "AvailabilityZone": words,
    }
)
gpuhunt = st.fixed_dictionaries(
    {
        "instance_name": st.sampled_from(["g4dn.xlarge", ""]) | words,
        "location": words,
        "price": numbers,
        "cpu": numbers,
        "memory": numbers,
        "gpu_vendor": st.sampled_from(["nvidia", ""]),
        "gpu_count": numbers,
        "gpu_name": st.sampled_from(["L4", "H100"]) | words,
        "gpu_memory": numbers,
        "spot": st.sampled_from(["True", "False", ""]),
        "disk_size": numbers,
        "flags": words,
    }
)


def import_rows(folder: Path, name: str, rows: list[dict[str, Any]]) -> PriceImportAnswer:
    path = folder / name
    if name.endswith(".json"):
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)), restval="")
            writer.writeheader()
            writer.writerows(rows)
    answer = catalog_import(path, catalog=CATALOG, today=TODAY, folder=folder)
    assert not answer.failed, answer.snapshots
    assert answer.prices == answer.kept + answer.quarantined + answer.unknown
    assert set(answer.reasons) <= set(REASONS)
    return answer


def query_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The questions that read the store; what they may say is that there is nothing."""
    monkeypatch.setenv("WHICHGPU_DATA", str(folder))
    for question in (
        lambda: list_offers(OffersQuery(gpu="L4,H100", currency="EUR"), TODAY, CATALOG),
        lambda: history({"gpu": "L4"}, Context(CATALOG)),
        lambda: history({"gpu": "H100", "every": True}, Context(CATALOG)),
        lambda: catalog_watch("L4", below=None, today=TODAY, catalog=CATALOG),
    ):
        try:
            question()
        except NoAnswer as nothing:
            assert nothing.kind != "no-exchange-rate"


@settings(max_examples=examples(25))
@given(rows=st.lists(own, min_size=1, max_size=4))
def test_cells_of_a_csv_of_ones_own(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        if import_rows(Path(folder), "colo.csv", rows).kept:
            query_store(Path(folder), monkeypatch)


@settings(max_examples=examples(25))
@given(rows=st.lists(st.dictionaries(st.sampled_from(
    "provider instance region gpu gpus term payment price currency upfront includes per discount observed".split()
), json_value | words), min_size=1, max_size=4))  # fmt: skip
def test_cells_of_a_json_of_ones_own(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        import_rows(Path(folder), "colo.json", [{"provider": "colo", "gpu": "L4", "price": "0.5"} | row for row in rows])


@settings(max_examples=examples(20))
@given(rows=st.lists(skypilot, min_size=1, max_size=4))
def test_cells_of_skypilots_catalog(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        import_rows(Path(folder), "aws.csv", rows)


@settings(max_examples=examples(20))
@given(rows=st.lists(gpuhunt, min_size=1, max_size=4))
def test_cells_of_gpuhunts_catalog(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        import_rows(Path(folder), "aws.csv", rows)
