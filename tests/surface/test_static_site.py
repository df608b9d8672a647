"""The exported site: pages of the catalog, GPUs and models whose links all lead somewhere, without a server."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import language
from whichgpu.surface.web.static_site import LISTS, Exported, export_site

GPUS, MODELS = ("t4", "h100-sxm"), ("gpt2", "resnet50")
MAX_BYTES = 30_000_000
PAGES_OF_ALL = {"gpu": 351, "model": 584}  # GPUs and models of the catalog when this was written.


def broken_links(folder: Path) -> list[tuple[str, str]]:
    """Links of exported pages that lead to no file or to no part of one, and forms, which need a server."""
    broken, texts = [], {path.resolve(): path.read_text() for path in folder.rglob("*.html")}
    for path, html in texts.items():
        for url in re.findall(r'(?:href|src|data-vega|action)="([^"]*)"', html):
            place, _, anchor = url.partition("#")
            target = (path.parent / unquote(place)).resolve() if place else path
            is_part = not anchor or f'id="{anchor}"' in texts.get(target, "")
            if not url.startswith(("http:", "https:")) and (place.startswith("/") or not target.is_file() or not is_part):
                broken.append((path.name, url))
        broken += [(path.name, "<form")] if "<form" in html else []
    return broken


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Exported]:
    folder = tmp_path_factory.mktemp("site") / "made"
    return folder, export_site(folder, language("en"), GPUS, MODELS)


def test_every_page_is_there_and_every_link_leads_to_a_file(site: tuple[Path, Exported]) -> None:
    folder, exported = site
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    expected = ["index.html", *(f"{name}.html" for name in LISTS)]
    expected += [f"gpu/{id}.html" for id in GPUS] + [f"model/{id}.html" for id in MODELS]
    assert pages == sorted(expected)
    assert exported.pages == len(pages)
    assert broken_links(folder) == []


def test_pages_have_their_facts_and_charts_but_no_forms(site: tuple[Path, Exported]) -> None:
    folder, _ = site
    page = (folder / "gpu/t4.html").read_text()
    assert "Turing" in page
    assert '"$schema"' in page  # charts are drawn in the browser, with the script beside
    for html in (page, (folder / "gpus.html").read_text(), (folder / "model/gpt2.html").read_text()):
        assert "<form" not in html
        assert "<datalist" not in html
    assert 'href="gpu/t4.html"' in (folder / "gpus.html").read_text()
    assert "<nav" in page
    assert "/plan" not in page.partition("<main")[0]


def test_the_whole_site_will_be_small_enough(site: tuple[Path, Exported]) -> None:
    folder, exported = site
    largest = {kind: max(path.stat().st_size for path in (folder / kind).iterdir()) for kind in PAGES_OF_ALL}
    assert exported.bytes + sum(largest[kind] * count for kind, count in PAGES_OF_ALL.items()) < MAX_BYTES


@pytest.mark.long
def test_the_whole_site_is_small_and_has_no_broken_link(tmp_path: Path) -> None:
    exported = export_site(tmp_path / "whole", language("en"))
    assert exported.bytes < MAX_BYTES
    assert exported.pages == len(list((tmp_path / "whole").rglob("*.html"))) > sum(PAGES_OF_ALL.values())
    assert broken_links(tmp_path / "whole") == []


def test_a_folder_with_content_is_not_written_to(site: tuple[Path, Exported]) -> None:
    with pytest.raises(UsageError) as problem:
        export_site(site[0], language("en"), (), ())
    assert problem.value.kind == "folder-not-empty"
