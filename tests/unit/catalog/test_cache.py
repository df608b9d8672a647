"""The cache of built records never hides a change and never fails an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.copies import copy_tables
from whichgpu.catalog.store import Catalog


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return copy_tables(tmp_path / "data")


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "whichgpu").glob("*"))


def test_second_read_gives_the_same_records(folder: Path, tmp_path: Path) -> None:
    first = Catalog(folder)
    built = (first.gpus, first.instances, first.cpus, first.regions, first.providers, first.sources)
    assert len(files(tmp_path)) == 6
    again = Catalog(folder)
    assert (again.gpus, again.instances, again.cpus, again.regions, again.providers, again.sources) == built


def test_changed_table_is_reread_and_the_old_cache_removed(folder: Path, tmp_path: Path) -> None:
    before = Catalog(folder).gpu_by_id["t4"]
    table = folder / "gpus.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("\nt4,T4,", "\nt4,T4 renamed,"), encoding="utf-8")
    assert Catalog(folder).gpu_by_id["t4"].name == "T4 renamed" != before.name
    assert len([path for path in files(tmp_path) if path.name.startswith("gpus-")]) == 1


def test_damaged_cache_is_rebuilt(folder: Path, tmp_path: Path) -> None:
    built = Catalog(folder).gpus
    for content in (b"", b"\x00\xff nonsense", b"\x93\x01\x02\x03"):
        files(tmp_path)[0].write_bytes(content)
        assert Catalog(folder).gpus == built


def test_unwritable_cache_changes_no_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    assert Catalog(folder).gpus
