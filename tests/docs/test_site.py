"""The site builds without a warning: no link or anchor leads nowhere, no page is forgotten, nothing is fetched from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surface.cli import ROOT

ADDRESS = re.compile(r"https?://[\w.-]+\.[a-z]{2,}(:\d+)?(/[^\s]*)?$")


QUICK = """INHERIT: {root}/mkdocs.yml
docs_dir: {root}/docs
hooks: [{root}/tools/reference/hook.py, {root}/tests/docs/short_pages.py]
plugins: []
"""


def build(folder: Path, *options: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder), *options],
        cwd=ROOT, capture_output=True, encoding="utf-8", timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site without its search index, translated pages cut to their headings and links."""
    folder = tmp_path_factory.mktemp("site")
    config = tmp_path_factory.mktemp("config") / "mkdocs.yml"
    config.write_text(QUICK.format(root=ROOT), encoding="utf-8")
    return build(folder, "--config-file", str(config))


@pytest.mark.long
def test_the_whole_site_builds(tmp_path: Path) -> None:
    site = build(tmp_path)
    test_site_loads_no_external_resources(site)
    test_addresses_of_others_are_well_formed(site)
    assert (site / "search" / "search_index.json").is_file()
    assert "</table>" in (site / "reference" / "ko" / "fields.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_every_part_is_there(site: Path) -> None:
    for page in (
        "index",
        "guides/serve",
        "concepts/memory",
        "reference/commands",
        "evidence/accuracy",
        "evidence/comparison",
        "how-to-add/gpu",
        "architecture",
    ):
        assert (site / f"{page}.html").is_file()


@pytest.mark.long
def test_site_loads_no_external_resources(site: Path) -> None:
    fetched = re.compile(
        r'<(?:script|img|iframe|source)[^>]*src="(https?:[^"]+)"|<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="(https?:[^"]+)"'
    )
    for page in site.rglob("*.html"):
        assert fetched.findall(page.read_text(encoding="utf-8")) == [], page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"@import|url\(https?:", sheet.read_text(encoding="utf-8")) == [], sheet


@pytest.mark.long
def test_addresses_of_others_are_well_formed(site: Path) -> None:
    for page in site.rglob("*.html"):
        for address in re.findall(r'<a [^>]*href="(https?:[^"]+)"', page.read_text(encoding="utf-8")):
            assert ADDRESS.match(address), f"{page}: {address}"
