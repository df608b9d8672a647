"""`whichgpu catalog`: commands about the data and the user's own price store."""

from __future__ import annotations

import click

from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.catalog.live.rows import OWN_LIST
from whichgpu.catalog.live.sources import source_names
from whichgpu.surface.cli.click_parts import HelpGroup, click_command, command, option
from whichgpu.surface.cli.price_watch import watch
from whichgpu.surface.cli.prices import export, forget, import_, refresh
from whichgpu.surface.commands.session import Session

QUARANTINE = ("source", "scope", "reason", "detail", "instance", "region", "term", "price")


@command("quarantine", epilog=True, undated="hint.no-as-of-now")
@option("--source", metavar="NAME", help="option.quarantine-source")
def quarantine(session: Session, source: str | None) -> int:
    """Print prices of the newest snapshots that were rejected as implausible, with reasons; exit code 1 if there are none."""
    from whichgpu.api.prices.store import catalog_quarantine

    if source is not None and source not in (*source_names(), OWN_LIST):
        raise unknown_word("source", source, (*source_names(), OWN_LIST))
    rows = catalog_quarantine(source)
    session.say(msg("prices.quarantined", n=len(rows)))
    if rows or session.format == "json":
        session.show({"quarantined": rows}, rows, QUARANTINE)
    return 0 if rows else 1


class CatalogGroup(HelpGroup):
    """Click group of the `catalog` subcommands; its `watch` and `check` have other help texts than the commands of that name."""

    def short(self, name: str) -> str:
        return f"command.catalog-{name}.short" if name in ("watch", "check") else super().short(name)


DECLARED = ("check", "diff", "history", "sources", "status")  # Subcommands that are declared by their requests.
CLI_ONLY = (refresh, import_, export, watch, quarantine, forget)
catalog = CatalogGroup(
    "catalog",
    commands=[*(click_command(f"catalog {name}") for name in DECLARED), *CLI_ONLY],
    help="command.catalog.short",
    no_args_is_help=True,
    # --lang is declared for help only: the language is read before all other options.
    params=[click.Option(["--lang"], metavar="CODE", expose_value=False, help="option.lang")],
)
