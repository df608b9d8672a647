"""The entry: reads settings, loads the one command asked for, and turns every error into one shape and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from whichgpu import __version__
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.messages import language, msg
from whichgpu.surface.cli.frame import unknown_command
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.settings import check_keys, config_path, early, read_config

# command -> module that holds it, in the order help lists them
COMMANDS = {
    "gpus": "gpus",
    "instances": "instances",
    "cpus": "hosts",
    "regions": "hosts",
    "compare": "compare",
    "catalog": "catalog",
    "report-error": "report",
    "completion": "completion",
}


class Root(click.Group):
    """All commands, each loaded when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"whichgpu.surface.cli.{COMMANDS[name]}")
        found = getattr(module, name.replace("-", "_"))
        assert isinstance(found, click.Command)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise unknown_command(args[0], args[0], tuple(COMMANDS))
        name, found, rest = super().resolve_command(ctx, args)
        if found is not None and name and ctx.default_map and ctx.obj.config_path:
            known = [param.name or "" for param in found.params]
            check_keys(ctx.default_map[name], known, ctx.obj.config_path)
        return name, found, rest

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        session = ctx.obj
        text = session.language.text
        formatter.write_usage(ctx.command_path, text("help.usage-line"), prefix=text("help.usage"))
        formatter.write_paragraph()
        formatter.write_text(text("help.about"))
        with formatter.section(text("help.commands")):
            formatter.write_dl([(name, text(f"command.{name}.short")) for name in COMMANDS])
        with formatter.section(text("help.options")):
            formatter.write_dl([("--version", text("option.version")), ("--help", text("option.help"))])
        formatter.write_paragraph()
        formatter.write_text(text("help.more"))


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        print(f"whichgpu {__version__}")
        ctx.exit()


@click.group(cls=Root, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version)
@click.option("--lang", expose_value=False)
@click.option("--config", expose_value=False)
@click.pass_context
def root(ctx: click.Context) -> None:
    """Greet whoever comes without a question."""
    if ctx.invoked_subcommand is None:
        print(ctx.obj.language.text("greeting"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Nothing but an exit code leaves here."""
    args = list(sys.argv[1:] if argv is None else argv)
    session = Session(language(early(args, os.environ, "lang") or _system_language()))
    if "--json" in args:
        session.format = "json"
    try:
        return _run(args, session)
    except WhichGpuError as error:
        return session.fail(error)
    except click.UsageError as error:
        return session.fail(_usage_error(error))
    except (KeyboardInterrupt, click.Abort):
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has gone (`| head`): nothing more to say, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as problem:
        if os.environ.get("WHICHGPU_DEBUG"):
            raise
        message = msg("error.internal", what=f"{type(problem).__name__}: {problem}")
        return session.fail(WhichGpuError("internal", message, msg("hint.internal")))


def _run(args: list[str], session: Session) -> int:
    session.config_path = config_path(early(args, os.environ, "config"))
    result = root.main(
        args,
        prog_name="whichgpu",
        complete_var="_WHICHGPU_COMPLETE",
        standalone_mode=False,
        obj=session,
        default_map=read_config(session.config_path, tuple(COMMANDS)),
        auto_envvar_prefix="WHICHGPU",
    )
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _system_language() -> str:
    """What the environment asks for, in gettext's order."""
    names = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
    return next((os.environ[name] for name in names if os.environ.get(name)), "en")


def _usage_error(error: click.UsageError) -> UsageError:
    """The parser's complaint in our words."""
    command = error.ctx.command_path if error.ctx else "whichgpu"
    hint = msg("hint.see-help", command=command)
    if isinstance(error, click.NoSuchOption):
        choices = tuple(error.possibilities or ())
        hint = msg("hint.choices", choices=choices) if choices else hint
        return UsageError("unknown-option", msg("error.unknown-option", name=error.option_name), hint, choices)
    if isinstance(error, click.MissingParameter):
        name = error.param.human_readable_name if error.param else "?"
        return UsageError("missing-argument", msg("error.missing-argument", name=name), hint)
    if isinstance(error, click.BadOptionUsage):
        return UsageError("missing-value", msg("error.missing-value", name=error.option_name), hint)
    return UsageError("usage", msg("error.usage", text=error.format_message()), hint)
