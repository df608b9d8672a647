"""`whichgpu offers` where prices are of different ages: which of them the first sentence names."""

from __future__ import annotations

from pathlib import Path

from tests.surface.cli import call
from tests.surface.test_contract_offers import first_line


def test_single_expensive_latest_offer_is_not_the_reference_price(tmp_path: Path) -> None:
    for name, day, price in (("ancient", "2024-01-01", "0.2"), ("cheap", "2026-03-20", "0.3"), ("dear", "2026-04-25", "9")):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"provider,gpu,price\n{name},L4,{price}\n", encoding="utf-8")
        assert call("catalog", "import", str(path), "--date", day).code == 0
    line = first_line("--gpu", "L4", "--provider", "ancient,cheap,dear", "--as-of", "2026-06-01")
    assert "0.2 USD (ancient" in line
    assert "of those seen in the last 90 days the cheapest is 0.3 USD (cheap" in line


def test_without_recent_prices_the_latest_is_named(tmp_path: Path) -> None:
    """A price of years ago and one of some months ago: the newer observation is named too."""
    for name, day, price in (("old", "2024-01-01", "0.2"), ("newer", "2026-01-01", "0.3")):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"provider,gpu,price\n{name},L4,{price}\n", encoding="utf-8")
        assert call("catalog", "import", str(path), "--date", day).code == 0
    line = first_line("--gpu", "L4", "--provider", "old,newer", "--as-of", "2026-06-01")
    assert "0.2 USD (old 1x L4, any, on-demand; last seen 2024-01-01, 882 days before)" in line
    assert "None was seen in the last 30 days; of those seen in the last 180 days the cheapest is 0.3 USD (newer" in line
    soon = first_line("--gpu", "L4", "--provider", "old,newer", "--as-of", "2026-01-11")
    assert "Of those seen in the last 30 days the cheapest is 0.3 USD (newer" in soon
