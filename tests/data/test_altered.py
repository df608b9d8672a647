"""A changed byte of a bundled file is an error that names the file; in a checkout only `catalog check` reports it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from tests.copies import copy_tables
from whichgpu.base import bundled_data
from whichgpu.base.errors import DataError
from whichgpu.catalog.checks import check_catalog
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.missing_support import FOLDER as LACKS
from whichgpu.decide.framework_support import TABLE as FRAMEWORKS
from whichgpu.estimate.group.fabric import DATA_DIR as LINKS
from whichgpu.estimate.group.group_calibration import DATA_FOLDER as GROUPS
from whichgpu.estimate.time.calibration import DATA_FOLDER as STEPS
from whichgpu.estimate.time.left_out import LEFT_OUT_FILE
from whichgpu.price.billing import FOLDER as BILLING
from whichgpu.workload.tables import TABLES_FILE

# Arguments of a command that reads the file.
QUESTIONS: dict[Path, tuple[str, ...]] = {
    bundled_data.PACKAGE / "catalog/data/gpus.csv": ("gpus", "T4"),
    TABLES_FILE: ("fit", "resnet50", "--task", "train"),
    STEPS / "corrections.csv": ("estimate", "decode", "llama-3.1-8b", "--gpu", "L4"),
    bundled_data.PACKAGE / "surface/web/static/page.css": ("catalog", "check"),
}
READ = (
    *(
        FRAMEWORKS,
        LACKS / "lacks.csv",
        GROUPS / "calibration.json",
        GROUPS / "corrections.csv",
        LINKS / "links.csv",
        STEPS / "calibration.json",
        STEPS / "corrections.csv",
        STEPS / "parameters.csv",
        LEFT_OUT_FILE,
        BILLING / "extras.csv",
        TABLES_FILE,
    ),
    *(bundled_data.PACKAGE / "catalog/data" / f"{name}.csv" for name in ("prices", "models", "fields", "instances", "sources")),
    bundled_data.PACKAGE / "catalog/data/engines/vllm.csv",
    bundled_data.PACKAGE / "base/locale/en.po",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as pip lays it down: no checkout around it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(bundled_data.PACKAGE, folder / "whichgpu", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run_command(installed: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    settings = os.environ | {"PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(installed / "cache")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "whichgpu", *argv], env=settings, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_sums_are_those_of_the_files() -> None:
    assert bundled_data.SUMS.read_text(encoding="ascii") == bundled_data.checksum_lines(), "data changed: run tools/digests"


@pytest.mark.parametrize("path", QUESTIONS, ids=lambda path: path.name)
@pytest.mark.sweep(3)
def test_flipped_byte_error_names_the_file(path: Path, installed: Path) -> None:
    copy = installed / "whichgpu" / path.relative_to(bundled_data.PACKAGE)
    whole, random = copy.read_bytes(), Random(path.name)
    damaged = bytearray(whole)
    damaged[random.randrange(len(whole))] ^= 1 << random.randrange(8)
    try:
        copy.write_bytes(damaged)
        result = run_command(installed, *QUESTIONS[path])
    finally:
        copy.write_bytes(whole)
    assert result.returncode == 3, (result.stdout, result.stderr)
    assert path.name in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_message_file_with_invalid_utf8_is_reported(installed: Path) -> None:
    copy = installed / "whichgpu/base/locale/en.po"
    whole = copy.read_bytes()
    try:
        copy.write_bytes(whole[:5000] + b"\xff" + whole[5001:])
        result = run_command(installed, "gpus", "T4")
    finally:
        copy.write_bytes(whole)
    assert result.returncode == 3
    assert "base/locale/en.po" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.long
def test_a_whole_installation_answers_and_checks(installed: Path) -> None:
    assert run_command(installed, "gpus", "T4").returncode == 0
    assert run_command(installed, "catalog", "check").returncode == 0


@pytest.mark.parametrize("path", READ, ids=lambda path: path.name)
def test_readers_refuse_any_flipped_byte(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled_data, "running_from_checkout", lambda: False)
    whole, random = path.read_bytes(), Random(path.name)
    bundled_data.check_data(path, whole)
    for _ in range(20):
        damaged = bytearray(whole)
        damaged[random.randrange(len(whole))] ^= 1 << random.randrange(8)
        with pytest.raises(DataError) as refused:
            bundled_data.check_data(path, bytes(damaged))
        assert str(path) in str(refused.value)


def test_every_data_file_is_read_through_the_check() -> None:
    """A reader that opens a bundled file by itself would not see what happened to it."""
    rooms = [path for path in bundled_data.PACKAGE.rglob("*.py") if path.parent.joinpath("data").is_dir()]
    opened = [
        f"{path.name}: {line.strip()}"
        for path in rooms
        for line in path.read_text(encoding="utf-8").splitlines()
        if ("DATA_FILE" in line or "FOLDER /" in line or "TABLE." in line) and ("open(" in line or ".read_" in line)
    ]
    assert not opened


def test_in_a_checkout_a_changed_file_is_named_and_still_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichgpu.catalog.checks.run.altered_files", lambda: ("catalog/data/gpus.csv",))
    report = check_catalog(Catalog().folder, date.today())
    assert report.ok
    assert report.altered == ("catalog/data/gpus.csv",)
    assert replace(report, altered=()).findings == ()


def test_cache_with_any_flipped_byte_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = copy_tables(tmp_path / "data")
    built = Catalog(folder).providers
    (path,) = (tmp_path / "cache" / "whichgpu").glob("providers-*")
    whole, random = path.read_bytes(), Random(0)
    for _ in range(40):
        damaged = bytearray(whole)
        damaged[random.randrange(len(whole))] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        assert Catalog(folder).providers == built
        assert path.read_bytes() == whole
