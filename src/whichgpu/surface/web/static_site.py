"""Export of the catalog, GPU and model pages as a static site, which any web server can host; made from the same templates."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import date
from pathlib import Path
from urllib.parse import unquote

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Language, msg
from whichgpu.base.messages import language as find_language
from whichgpu.base.parallel.process_pool import ProcessPool, cores
from whichgpu.base.version import __version__
from whichgpu.surface.web.classic_script import MAIN, classic_script
from whichgpu.surface.web.command_replies import catalog, use_catalog_folder
from whichgpu.surface.web.rendering import render_page
from whichgpu.surface.web.static_files import FOLDER, static_version
from whichgpu.surface.web.vega_bundle import bundle

LISTS = ("gpus", "models", "prices", "accuracy", "sources")  # Pages exported in their default state.
FIRST = "gpus"  # The page that is also the site's index.
SCRIPT = "assets/vega.js"
THEME = "theme.js"  # The script that runs before a page is drawn.
MIN_PARALLEL_PAGES = 50  # Fewer pages take less time than starting processes (assumed).
# Parts that need a server: forms and links to them, other formats, other languages, images of charts, the list of names for
# completion.
_NEEDS_SERVER = re.compile(
    r'<form class="(?:ask|filters|sentence-box)[^"]*".*?</form>|<p class="links">.*?</p>'
    r'|<input type="checkbox" class="fold-box"[^>]*><label class="fold".*?</label>'
    r'|<ul class="(?:twins|downloads)".*?</ul>|<div class="languages".*?</div>|<noscript>.*?</noscript>|<datalist .*?</datalist>',
    re.DOTALL,
)
_CHOOSER = re.compile(r'<form [^>]*id="basket"[^>]*>(.*?)</form>', re.DOTALL)  # The table of GPUs, with boxes to choose some.
_INPUT = re.compile(r'<input [^>]*>|<button type="submit".*?</button>', re.DOTALL)
_NAVIGATION = re.compile(r"(<nav [^>]*>)(.*?)(</nav>)", re.DOTALL)
_LINK = re.compile(r'<a((?: [a-z-]+(?:="[^"]*")?)*?) href="(/[^"]*)"([^>]*)>(.*?)</a>\n?', re.DOTALL)
_OWN_FILE = re.compile(r'(href|src|data-vega)="/(static/[^"]*|assets/vega\.js[^"]*)"')


class Exported(msgspec.Struct, frozen=True):
    """A finished export: the number of pages, and the bytes of all files."""

    pages: int
    bytes: int


def export_site(
    folder: Path,
    language: Language,
    gpus: Collection[str] | None = None,
    models: Collection[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    catalog_folder: str | None = None,
) -> Exported:
    """Write the site into a folder, which must be empty or not exist; `gpus` and `models` limit the pages of one subject.

    Many pages are rendered by several processes, which load the catalog of `catalog_folder`.
    """
    check_folder(folder)
    subjects = [("gpu", one.id) for one in catalog().gpus if gpus is None or one.id in gpus]
    subjects += [("model", one.id) for one in catalog().models if models is None or one.id in models]
    files = {f"/{name}": f"{name}.html" for name in LISTS} | {f"/{kind}/{id}": f"{kind}/{id}.html" for kind, id in subjects}
    pages: Sequence[tuple[str, str | None]] = [*((name, None) for name in LISTS), *subjects]
    size = sum(path.stat().st_size for path in _write_assets(folder))
    for done, (place, html) in enumerate(_rendered(pages, language, catalog_folder), start=1):
        name, subject = pages[place]
        path = files[f"/{name}/{subject}" if subject else f"/{name}"]
        html = as_static(html, path, files, language)
        size += _write(folder / path, html) + (_write(folder / "index.html", html) if name == FIRST else 0)
        if progress is not None:
            progress(done, len(pages))
    return Exported(len(pages) + 1, size)


def _rendered(pages: Sequence[tuple[str, str | None]], language: Language, folder: str | None) -> Iterator[tuple[int, str]]:
    """Yield the HTML of pages with their places in the list, as they finish; many are rendered by several processes."""
    items = [(name, subject, language.code, folder) for name, subject in pages]
    if len(items) < MIN_PARALLEL_PAGES:
        yield from ((place, _page_html(*item)) for place, item in enumerate(items))
        return
    with ProcessPool(cores()) as pool:
        yield from pool.run(_page_html, items)


def _page_html(name: str, subject: str | None, code: str, folder: str | None) -> str:
    """Return a page's HTML from a catalog; the task of a worker process."""
    use_catalog_folder(folder)
    return render_page(name, "html", "", find_language(code), subject=subject).body.decode()


def check_folder(folder: Path) -> None:
    """Raise `UsageError` if a folder cannot be exported to because it has content or is a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("folder-not-empty", msg("error.folder-not-empty", path=str(folder)), msg("hint.folder-not-empty"))


def as_static(html: str, path: str, files: dict[str, str], language: Language) -> str:
    """Return a page for a static site: links to exported pages are relative, others are plain text, forms are left out.

    `files` are the paths of the exported files by the URL of their page, `path` is this page's own.
    """
    up = "../" * path.count("/")

    def target(url: str) -> str | None:
        place, _, query = unquote(url).partition("?")
        return None if query else f"{up}index.html" if place == "/" else up + files[place] if place in files else None

    def linked(match: re.Match[str]) -> str:
        place = target(match[2])
        return f'<a{match[1]} href="{place}"{match[3]}>{match[4]}</a>' if place else match[4]

    def navigation(match: re.Match[str]) -> str:
        entries = "".join(linked(one) for one in _LINK.finditer(match[2]) if target(one[2]))
        return f"{match[1]}{entries}{match[3]}"

    html = _CHOOSER.sub(r'<section class="card">\1</section>', _NEEDS_SERVER.sub("", html))
    html = _INPUT.sub("", html)
    html = _LINK.sub(linked, _NAVIGATION.sub(navigation, html))
    html = html.replace('<script type="module" src=', "<script defer src=")  # Pages opened from a folder load no modules.
    html = _OWN_FILE.sub(lambda match: f'{match[1]}="{up}{match[2].partition("?")[0]}"', html)
    foot = re.compile(r'(<footer class="foot">\n<p>).*?(</p>)', re.DOTALL)
    sentence = language.text("web.foot-static", day=date.today().isoformat(), version=__version__)
    return foot.sub(lambda match: f"{match[1]}{sentence}{match[2]}", html).replace('<div class="split">', '<div class="wide">')


def _write_assets(folder: Path) -> Iterator[Path]:
    """Write scripts, styles and the chart script; yield their paths."""
    place = folder / "static" / static_version()
    place.mkdir(parents=True)
    for source in sorted(FOLDER.iterdir()):
        if source.suffix != ".js" or source.name == THEME:
            yield Path(shutil.copy(source, place / source.name))
    _write(place / MAIN, classic_script())
    yield place / MAIN
    _write(folder / SCRIPT, bundle().decode())
    yield folder / SCRIPT


def _write(path: Path, text: str) -> int:
    """Write a file of the site; return its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(text.encode())
