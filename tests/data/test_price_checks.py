"""Every error a price list can have is found after it is injected into a copy of ours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from tests.copies import copy_tables
from tests.data.test_catalog_check import Rows, edit
from whichgpu.catalog.checks import check_catalog

TODAY = date.today()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Whole families: totals and shares are distinguished by the same GPU's price in other instances and regions."""

    families = ("p3.", "p4d.", "g4dn.", "g5.", "g7e.", "a2-highgpu", "Standard_ND96asr", "BM.GPU4", "gpu_1x_a100", "gpu_8x_a100")

    def is_copied(row: dict[str, str]) -> bool:
        return row["instance"].startswith(families) and (row["term"] == "on-demand" or row["instance"] == "g4dn.xlarge")

    return copy_tables(tmp_path / "data", is_copied)


def test_unmodified_copy_has_no_findings(copy: Path) -> None:
    assert {finding.check for finding in check_catalog(copy, TODAY).findings} <= {"stale-explanation"}


def on(rows: Rows, instance: str, term: str = "on-demand", region: str = "us-east-1") -> dict[str, str]:
    """The last price of a machine in a region on a term."""
    return [row for row in rows if row["instance"] == instance and row["term"] == term and region in row["regions"].split(";")][
        -1
    ]


def change(machine: str, of: str = "on-demand", /, **cells: str) -> Callable[[Rows], None]:
    return lambda rows: on(rows, machine, of).update(cells)


def times(factor: float, instance: str, term: str = "on-demand", region: str = "us-east-1") -> Callable[[Rows], None]:
    def spoil(rows: Rows) -> None:
        row = on(rows, instance, term, region)
        row["price"] = f"{float(row['price']) * factor:.6f}"

    return spoil


def then(instance: str, price: str) -> Callable[[Rows], None]:
    def spoil(rows: Rows) -> None:
        rows.append(on(rows, instance) | {"price": price, "observed": "2026-09-01", "last_observed": ""})

    return spoil


PLANTED: list[tuple[str, Callable[[Rows], None], str]] = [
    ("a price of 0", change("p4d.24xlarge", price="0"), "price-zero"),
    ("a jump over three times", then("g4dn.xlarge", "1.60"), "price-jump"),
    ("a fall under a third", then("g4dn.xlarge", "0.17"), "price-jump"),
    ("yuan for dollars", times(7.2, "g5.xlarge", region="eu-west-1"), "price-jump"),
    ("spot above on demand", change("g4dn.xlarge", "spot", price="0.60"), "spot-above-on-demand"),
    ("one GPU's price for eight", times(1 / 8, "p4d.24xlarge"), "price-per-gpu"),
    ("one GPU's price for eight of many sizes", times(1 / 8, "p3.16xlarge"), "price-per-gpu"),
    ("one GPU's price for two", times(1 / 2, "g7e.12xlarge"), "price-per-gpu"),
    ("eight GPUs' total taken eightfold", times(8, "p3.16xlarge"), "price-per-gpu"),
    ("a date in the future", change("p4d.24xlarge", observed="2099-01-01"), "future-date"),
    ("a last look in the future", change("p4d.24xlarge", last_observed="2099-01-01"), "future-date"),
    ("seen last before first", change("p4d.24xlarge", last_observed="2011-01-01"), "seen-order"),
    ("an unknown machine", change("p4d.24xlarge", instance="p4x.24xlarge"), "unknown-instance"),
    ("an unknown region", change("p4d.24xlarge", regions="us-east-9"), "unknown-region"),
    ("an unknown GPU", change("p4d.24xlarge", gpu="a100", gpus="8"), "unknown-gpu"),
    ("no such term", change("p4d.24xlarge", term="forever"), "type"),
    ("no such payment", change("p4d.24xlarge", payment="in-kind"), "type"),
    ("a currency in words", change("p4d.24xlarge", currency="dollar"), "currency"),
    ("an unknown source", change("p4d.24xlarge", sources="hearsay"), "unknown-source"),
    ("no source", change("p4d.24xlarge", sources=""), "no-source"),
    ("the same row twice", lambda rows: rows.append(dict(on(rows, "p4d.24xlarge"))), "duplicate-key"),
    ("a negative price", change("p4d.24xlarge", price="-1"), "price-zero"),
    ("less than the electricity, in dong", change("p4d.24xlarge", price="30", currency="VND"), "price-bounds"),
    ("more than anybody asks, in euros", change("p4d.24xlarge", price="900000", currency="EUR"), "price-bounds"),
    ("a currency nobody quotes", change("p4d.24xlarge", currency="ZZZ"), "exchange-rate"),
]


@pytest.mark.sweep(5)
@pytest.mark.parametrize(("spoil", "check"), [case[1:] for case in PLANTED], ids=[case[0] for case in PLANTED])
def test_injected_error_is_found(copy: Path, spoil: Callable[[Rows], None], check: str) -> None:
    edit(copy, "prices", spoil)
    assert check in {finding.check for finding in check_catalog(copy, TODAY).findings}


@pytest.mark.parametrize(
    ("table", "cells", "check"),
    [
        ("discounts", {"share": "1.63"}, "implausible"),
        ("discounts", {"steps": "1;0.8;x"}, "implausible"),
        ("exchange", {"rate": "0"}, "implausible"),
        ("latencies", {"milliseconds": "0"}, "implausible"),
    ],
)
def test_error_injected_into_the_rules_is_found(copy: Path, table: str, cells: dict[str, str], check: str) -> None:
    edit(copy, table, lambda rows: rows[0].update(cells))
    assert check in {finding.check for finding in check_catalog(copy, TODAY).findings}
