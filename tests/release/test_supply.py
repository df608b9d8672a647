"""Dependencies are pinned, listed, and under accepted licences."""

from __future__ import annotations

import importlib.metadata as metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from supply.closure import ROOT, TOOLS, closure, key, pins, stated
from supply.hashes import KINDS
from supply.licences import PAGE, SHIPPED, accepted, licence, page
from supply.sbom import bill, pinned_digests, version

INSTALLED = {key(one.metadata["Name"]): one for one in metadata.distributions()}
EVERYTHING = closure(*(extra for extra in stated() if extra))


def test_every_required_package_is_pinned() -> None:
    required = {key(requirement.name) for requirements in stated().values() for requirement in requirements}
    assert not required - pins().keys()


def test_every_pin_satisfies_its_requirement() -> None:
    versions = pins()
    for requirements in stated().values():
        for requirement in requirements:
            assert requirement.specifier.contains(versions[key(requirement.name)]), requirement


def test_every_dependency_is_pinned_to_the_installed_version() -> None:
    ours = {name: one.version for name, one in EVERYTHING.items() if name not in TOOLS}
    assert len(ours) > 50
    assert ours == {name: pins().get(name) for name in ours}


def test_every_licence_is_accepted() -> None:
    licences = {name: licence(one) for name, one in closure(*SHIPPED, "dev").items()}
    assert not {name: text for name, text in licences.items() if not accepted(text)}


def test_licence_page_lists_every_installed_package() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: PYTHONPATH=tools python -m supply.licences"


MAX_BASE_BYTES = 120e6


def test_base_installation_is_small() -> None:
    """Files of the base packages as installed here, and as much bytecode as there is source."""
    files = [one.locate_file(file) for one in closure().values() for file in one.files or () if file.suffix != ".pyc"]
    paths = [Path(str(file)) for file in files] + [path for path in (ROOT / "src").rglob("*") if path.suffix != ".pyc"]
    sizes = {path: path.stat().st_size for path in paths if path.is_file()}
    source = sum(size for path, size in sizes.items() if path.suffix == ".py")
    assert len(sizes) > 1000
    assert sum(sizes.values()) + source < MAX_BASE_BYTES


def test_bill_of_materials_lists_every_package_with_licence_and_digests() -> None:
    document = bill()
    own = document["metadata"]["component"]
    assert (document["bomFormat"], document["specVersion"], own["version"]) == ("CycloneDX", "1.6", version())
    packages = {name: one for name, one in closure(*SHIPPED).items() if name not in TOOLS}
    assert {one["name"]: one["version"] for one in document["components"]} == {name: pins()[name] for name in packages}
    for one in document["components"]:
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert accepted(one["licenses"][0]["expression"]), one
        digests = [item["content"] for item in one["externalReferences"][0]["hashes"]]
        assert digests
        assert tuple(digests) == pinned_digests()[one["name"]]
    references = [own["bom-ref"], *(one["bom-ref"] for one in document["components"])]
    assert [one["ref"] for one in document["dependencies"]] == references
    reached = {other for one in document["dependencies"] for other in one["dependsOn"]}
    assert reached == set(references[1:])  # Every package is there because another needs it.


def test_no_package_is_installed_from_an_address() -> None:
    """Addresses would escape pins, digests and mirrors alike."""
    for requirements in stated().values():
        assert not [requirement for requirement in requirements if requirement.url]
    assert "://" not in (ROOT / "constraints.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_digests_are_of_the_pinned_versions(kind: str) -> None:
    text = (ROOT / f"requirements-{kind}.txt").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", text, re.MULTILINE))
    expected = {name: pins()[name] for name in closure(*KINDS[kind]) if name not in TOOLS}
    assert expected.items() <= versions.items(), "run: PYTHONPATH=tools python -m supply.hashes"
    assert versions == {name: pins().get(name) for name in versions}
    assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in text.splitlines() if line.startswith(" "))
    assert "://" not in text


def test_the_environment_that_runs_the_tool_reads_yaml() -> None:
    """`whichgpu explain qlora.yaml`, an example of the help, works without another installation."""
    extras = {kind: set(KINDS[kind]) for kind in KINDS}
    assert "pyyaml" in closure(*extras["run"])
    installed = re.findall(r'packages="\.\[([a-z,]+)\]"', (ROOT / "tools" / "environment").read_text(encoding="utf-8"))
    assert [set(one.split(",")) for one in installed] == [extras["run"], extras["dev"], extras["long"]]


@pytest.mark.long
def test_a_package_that_is_not_the_pinned_file_is_never_installed(tmp_path: Path) -> None:
    for name in ("tools", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    spoilt = f"mdurl=={pins()['mdurl']} --hash=sha256:{'0' * 64}\n"
    (tmp_path / "requirements-run.txt").write_text(spoilt, encoding="utf-8")
    settings = os.environ | {"WHICHGPU_VENV": str(tmp_path / "venv")}
    result = subprocess.run(
        [tmp_path / "tools" / "environment", "run"], env=settings, capture_output=True, text=True, timeout=300, check=False
    )
    if "HASHES" not in result.stderr and result.returncode:
        pytest.skip("no package index to install from")
    assert result.returncode == 3
    assert "not the file that was pinned" in result.stderr
    assert not list((tmp_path / "venv").rglob("mdurl"))


@pytest.mark.long
def test_no_pinned_package_has_a_known_vulnerability() -> None:
    if "pip-audit" not in INSTALLED:
        pytest.skip("pip-audit is not installed (pip install pip-audit)")
    argv = ["-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner=off", "--timeout=10", "--format=json", "-r"]
    result = subprocess.run(
        [sys.executable, *argv, str(ROOT / "constraints.txt")], capture_output=True, text=True, timeout=600, check=False
    )
    try:
        packages = json.loads(result.stdout)["dependencies"]
    except ValueError:
        pytest.skip(f"pip-audit could not ask: {result.stderr.strip()[-200:]}")
    audited = [package for package in packages if "skip_reason" not in package]
    if len(audited) < len(packages) / 2:
        pytest.skip(f"pip-audit could ask of {len(audited)} packages out of {len(packages)}: no network?")
    assert not [package for package in audited if package["vulns"]]


def test_every_pin_installs_on_the_oldest_python_that_is_promised() -> None:
    """Debian 12 has 3.11.2: a package that wants a later patch would stop a newcomer at the first command."""
    wants = {
        name: "".join(distribution.metadata.get_all("Requires-Python") or ())
        for name, version in pins().items()
        for distribution in metadata.distributions(name=name)
        if distribution.version == version
    }
    assert len(wants) > 50
    assert not {name: want for name, want in wants.items() if "3.11.2" not in SpecifierSet(want)}
