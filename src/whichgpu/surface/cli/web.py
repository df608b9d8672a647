"""`whichgpu web`: serve the same answers as pages and REST on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import click

from whichgpu.api.request.kinds import File, Words
from whichgpu.base.errors import UsageError
from whichgpu.base.files import read_regular_file
from whichgpu.base.messages import msg
from whichgpu.surface.cli.click_parts import command, option, value_type
from whichgpu.surface.commands.session import Session

PACKAGES = ("starlette", "uvicorn", "jinja2", "vl_convert")
PROGRESS_PAGES = 50  # Pages between two messages of an export.
TOKEN_VARIABLE = "WHICHGPU_WEB_TOKEN"


@command("web", epilog=True)
@option("--host", metavar="ADDRESS", default="127.0.0.1")
@option("--port", type=click.IntRange(0, 65535), metavar="N", default=8765)
@option("--token-file", type=value_type(File()), metavar="FILE")
@option("--host-name", metavar="NAMES", multiple=True)
@option("--proxy", metavar="ADDRESSES", multiple=True)
@option("--workers", type=click.IntRange(1, 64), metavar="N")
@option("--allow", type=value_type(Words("permission", ("hf",), many=True)), metavar="WHAT")
@option("--export", type=value_type(File()), metavar="DIR", help="option.web-export")
@option("--open", "look", is_flag=True, help="option.web-open")
def web(
    session: Session,
    host: str,
    port: int,
    token_file: Path | None,
    host_name: tuple[str, ...],
    proxy: tuple[str, ...],
    workers: int | None,
    allow: tuple[str, ...] | None,
    export: Path | None,
    look: bool,
) -> int:
    """Run the web server until interrupted, or `export` its catalog pages; `allow` permits Hugging Face models to clients."""
    _check_extra()
    if export is not None:
        return _export(session, export)
    from whichgpu.surface.web.server.clients import parse_proxies
    from whichgpu.surface.web.server.gate import AccessRules, host_names
    from whichgpu.surface.web.server.limits import Limits
    from whichgpu.surface.web.server.serve import serve
    from whichgpu.surface.web.server.service import Service

    token = _token(token_file)

    def ready(url: str) -> None:
        session.say(msg("web.serving", url=url))
        if token is not None:
            session.say(msg("web.with-token", url=url))
        if look:
            import webbrowser

            webbrowser.open(url)

    _ = session.catalog  # Load the catalog, so that an invalid folder is an error before anything is started.
    folder = str(session.catalog_folder.absolute()) if session.catalog_folder else None
    names = [name.strip() for text in host_name for name in text.split(",") if name.strip()]
    rules = AccessRules(host_names(host, names), token, parse_proxies(proxy))
    serve(host, port, Service(Limits(), workers, allow or (), catalog=folder), rules, ready)
    return 0


def _export(session: Session, folder: Path) -> int:
    """Write the pages of the catalog, GPUs and models into a folder as a static site."""
    from whichgpu.surface.web.command_replies import use_catalog_folder
    from whichgpu.surface.web.static_site import export_site

    def progress(done: int, total: int) -> None:
        if done % PROGRESS_PAGES == 0:
            session.say(msg("web.exporting", done=done, total=total))

    catalog_folder = str(session.catalog_folder.absolute()) if session.catalog_folder else None
    use_catalog_folder(catalog_folder)
    site = export_site(folder, session.language, progress=progress, catalog_folder=catalog_folder)
    session.say(msg("web.exported", n=site.pages, size=f"{site.bytes / 1e6:.1f} MB", path=str(folder)))
    return 0


def _check_extra() -> None:
    from importlib.util import find_spec

    missing = next((name for name in PACKAGES if find_spec(name) is None), None)
    if missing:
        raise UsageError("needs-extra", msg("error.needs-web-extra", name=missing), msg("hint.needs-web-extra"))


def _token(path: Path | None) -> str | None:
    """Return the server's access token from a file or a variable (a flag would be visible to other users); None if not set."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return read_regular_file(path, 4096).decode("utf-8").strip()
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        message = msg("error.token-unreadable", path=str(path), why=why)
        raise UsageError("token-unreadable", message, msg("hint.needs-token")) from problem
