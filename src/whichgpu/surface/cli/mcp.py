"""`whichgpu mcp`: the same answers as tools of the Model Context Protocol, for assistants and editors."""

from __future__ import annotations

from importlib.util import find_spec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.surface.cli.click_parts import command
from whichgpu.surface.commands.session import Session


@command("mcp", epilog=True)
def mcp(session: Session) -> int:
    """Serve tools on standard input and output until the client closes them."""
    if find_spec("mcp") is None:
        raise UsageError("needs-extra", msg("error.needs-mcp-extra"), msg("hint.needs-mcp-extra"))
    from whichgpu.surface.mcp.server import serve
    from whichgpu.surface.web.command_replies import use_catalog_folder

    use_catalog_folder(str(session.catalog_folder.absolute()) if session.catalog_folder else None)
    serve(session.language)
    return 0
