"""`whichgpu mcp`: the same answers as tools of the Model Context Protocol, for assistants and editors."""

from __future__ import annotations

import sys

import click

from whichgpu.base.messages import msg
from whichgpu.surface.cli.click_parts import command, option
from whichgpu.surface.commands.session import Session


@command("mcp", epilog=True)
@option("--http", type=click.IntRange(0, 65535), metavar="PORT", help="option.mcp-http")
def mcp(session: Session, http: int | None) -> int:
    """Serve tools on standard input and output until the client closes them, or over HTTP until interrupted."""
    if session.catalog_folder:
        from whichgpu.surface.web.command_replies import use_catalog_folder

        _ = session.catalog  # Load the catalog, so that an invalid folder is an error before anything is served.
        use_catalog_folder(str(session.catalog_folder.absolute()))
    if http is None:
        from whichgpu.surface.mcp.server import serve

        serve(sys.stdin.buffer, sys.stdout.buffer, session.language)
    else:
        from whichgpu.surface.mcp.http import serve_http

        serve_http(http, session.language, lambda url: session.say(msg("mcp.serving", url=url)))
    return 0
