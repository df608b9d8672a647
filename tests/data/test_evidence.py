"""Our figures against public tables: each either agrees, or is listed in `disagreements.csv` with the side that is right."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.data.recorded_evidence import Claim, all_claims
from whichgpu.catalog.schema import DATA_DIR

LISTED = Path(__file__).parent / "disagreements.csv"
TOLERANCE = {
    "memory_mib": 0.02,
    "memory_reported_mib": 0.02,
    "gpu_memory_gb": 0.02,
    "ram_gib": 0.02,
    "memory_bandwidth_gbs": 0.03,
    "boost_clock_mhz": 0.03,
    "tdp_watts": 0.05,
    "fp32_tflops": 0.05,
    "fp16_tflops": 0.05,
    "fp16_fp16acc_tflops": 0.05,
    "fp16_plain_tflops": 0.05,
    "bf16_tflops": 0.05,
    "fp8_tflops": 0.05,
    "fp4_tflops": 0.05,
    "int8_tflops": 0.05,
}
"""How far two figures may lie apart, as a share of ours; fields not named here agree exactly or not at all."""

Row = dict[str, str]
Key = tuple[str, str, str, str, float, float]


def table(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Ours:
    """Our own figures by row and field."""

    def __init__(self, folder: Path = DATA_DIR) -> None:
        self.rows = {row["id"]: row for row in table(folder / "gpus.csv")}
        self.rows |= {f"{row['provider']}/{row['instance']}": row for row in table(folder / "instances.csv")}

    def figure(self, claim: Claim) -> float | None:
        """Our figure for the claim's field; None where we have no such row, no figure, or a price in another currency."""
        row = self.rows.get(claim.gpu_id, {})
        cell = row.get(claim.field, "")
        if claim.field == "launch_date":
            cell = cell[:4]
        if claim.field == "launch_price" and row.get("launch_currency") != claim.unit:
            cell = ""
        if claim.field == "fp16_fp16acc_tflops":  # given only where it differs from the rate with fp32 accumulation
            cell = cell or row.get("fp16_tflops", "")
        return float(cell) if cell else None


def agrees(field: str, theirs: float, ours: float) -> bool:
    return abs(theirs - ours) <= TOLERANCE.get(field, 0.0) * ours


@pytest.fixture(scope="module")
def compared(evidence: Path) -> list[tuple[Claim, float]]:
    """Every claim about a figure that we have too, with ours."""
    ours = Ours()
    pairs = [(claim, ours.figure(claim)) for claim in all_claims(evidence / "specs")]
    return [(claim, figure) for claim, figure in pairs if figure is not None]


@pytest.fixture(scope="module")
def listed() -> list[Row]:
    return table(LISTED)


def key(claim: Claim, ours: float) -> Key:
    return claim.source, claim.their_name, claim.gpu_id, claim.field, round(claim.theirs, 4), ours


def listed_key(row: Row) -> Key:
    return row["source"], row["their_name"], row["gpu"], row["field"], float(row["theirs"]), float(row["ours"])


def differing(compared: list[tuple[Claim, float]]) -> set[Key]:
    return {key(claim, ours) for claim, ours in compared if not agrees(claim.field, claim.theirs, ours)}


def test_every_claim_agrees_or_is_listed(compared: list[tuple[Claim, float]], listed: list[Row]) -> None:
    assert sorted(differing(compared) - {listed_key(row) for row in listed}) == []


def test_every_listed_disagreement_still_occurs(compared: list[tuple[Claim, float]], listed: list[Row]) -> None:
    assert sorted({listed_key(row) for row in listed} - differing(compared)) == []


def test_each_is_listed_once_with_a_reason_and_none_is_ours_to_correct(listed: list[Row]) -> None:
    assert len({listed_key(row) for row in listed}) == len(listed)
    assert [row for row in listed if row["side"] != "ours"] == []
    assert [row for row in listed if len(row["why"]) < 20] == []


def test_enough_was_compared(compared: list[tuple[Claim, float]]) -> None:
    assert len(compared) >= 2767
    assert len({claim.gpu_id for claim, _ in compared if "/" not in claim.gpu_id}) >= 189
    assert len({claim.gpu_id for claim, _ in compared if "/" in claim.gpu_id}) >= 173
    assert len({claim.gpu_id for claim, _ in compared if claim.source == "voidful"}) >= 172
