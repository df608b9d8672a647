"""The wheel holds all it needs, comes out the same twice, and works without a network once its parts are there."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from whichgpu.base.bundled_data import PACKAGE, SUMS, checksum_lines, data_files

ROOT = Path(__file__).resolve().parent.parent.parent
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "dist", "build", "*.egg-info")
needs_hatchling = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import hatchling, build"], capture_output=True, check=False).returncode != 0,
    reason="hatchling and build are not installed: pip install -e '.[dev]'",
)


def built(root: Path, out: Path, *kinds: str, **settings: str) -> dict[str, bytes]:
    """The files that building gives, by name; nothing is fetched for it."""
    argv = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), *kinds, str(root)]
    result = subprocess.run(argv, env=os.environ | settings, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return {path.name: path.read_bytes() for path in out.iterdir()}


@needs_hatchling
def test_every_data_file_is_in_the_wheel(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder  # type: ignore[import-not-found,import-untyped,unused-ignore]

    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        names = {name for name in wheel.namelist() if name.startswith("whichgpu/")}
        assert wheel.read("whichgpu/SHA256SUMS").decode() == checksum_lines()
    code = {path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts}
    expected = {f"whichgpu/{path.relative_to(PACKAGE).as_posix()}" for path in (*data_files(), SUMS, *code)}
    assert names == expected


@needs_hatchling
@pytest.mark.long
def test_wheel_and_sdist_builds_are_reproducible(tmp_path: Path) -> None:
    """From two copies of the tree, made at other times and under other names."""
    builds: list[dict[str, str]] = []
    for name in ("one", "two"):
        root = tmp_path / name / "tree"
        shutil.copytree(ROOT, root, ignore=LEFT_OUT)
        for path in root.rglob("*"):
            os.utime(path, (1_600_000_000 + len(name) + len(builds) * 86_400,) * 2)
        files = built(root, tmp_path / name / "dist", TZ="UTC" if builds else "Asia/Seoul")
        builds.append({name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    assert len(builds[0]) == 2
    assert builds[0] == builds[1]


@needs_hatchling
@pytest.mark.long
def test_the_wheel_installs_and_answers_without_a_network(tmp_path: Path) -> None:
    built(ROOT, tmp_path / "dist", "--wheel")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    fetched = subprocess.run(
        [*pip, "download", "--only-binary=:all:", "-c", str(ROOT / "constraints.txt"), "-d", str(tmp_path / "parts"), str(wheel)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if fetched.returncode != 0:
        pytest.skip(f"no package index to download from: {fetched.stderr.strip().splitlines()[-1:]}")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    python = str(tmp_path / "venv" / "bin" / "python")
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "WHICHGPU_"))}
    alone |= {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    install = [python, "-m", "pip", "-q", "install", "--no-index", "--find-links", str(tmp_path / "parts"), "whichgpu"]
    subprocess.run(install, env=alone, check=True, timeout=300)
    program = str(tmp_path / "venv" / "bin" / "whichgpu")
    for argv in (("gpus", "H100"), ("fit", "llama-3.1-8b", "--gpu", "L4"), ("catalog", "check"), ("offers", "--gpu", "L4")):
        result = subprocess.run(
            [program, *argv], env=alone, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert result.returncode == 0, (argv, result.stderr)
        assert result.stdout or argv == ("catalog", "check")
