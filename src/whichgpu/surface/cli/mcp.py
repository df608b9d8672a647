"""`whichgpu mcp`: the same answers as tools of the Model Context Protocol, for assistants and editors."""

from __future__ import annotations

import sys

from whichgpu.surface.cli.click_parts import command
from whichgpu.surface.commands.session import Session


@command("mcp", epilog=True)
def mcp(session: Session) -> int:
    """Serve tools on standard input and output until the client closes them."""
    from whichgpu.surface.mcp.server import serve

    if session.catalog_folder:
        from whichgpu.surface.web.command_replies import use_catalog_folder

        _ = session.catalog  # Load the catalog, so that an invalid folder is an error before anything is served.
        use_catalog_folder(str(session.catalog_folder.absolute()))
    serve(sys.stdin.buffer, sys.stdout.buffer, session.language)
    return 0
