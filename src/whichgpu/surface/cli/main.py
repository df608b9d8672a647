"""Entry point of the command line: reads settings, loads one command, and converts every error to a message and an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from shlex import quote
from typing import TextIO, cast

import click
from click.shell_completion import shell_complete

from whichgpu.base.errors import DataError, UnknownName, UsageError, WhichGpuError
from whichgpu.base.messages import SOURCE_LANGUAGE, code_of, language, msg
from whichgpu.base.version import __version__
from whichgpu.surface.cli.click_parts import HELP_NAMES, HelpGroup, click_command, options_of
from whichgpu.surface.cli.settings import config_path, early_option, read_config
from whichgpu.surface.commands.render.output import CannotWrite, Output, ReaderGone, silence, write_error
from whichgpu.surface.commands.session import Session, language_code

# Commands in the order of the help; those without a declared request name their module in this package.
COMMANDS = (
    "gpus", "instances", "cpus", "regions", "offers", "compare", "models", "engines", "fit", "estimate", "recommend", "plan",
    "buy", "explain", "check", "evidence", "accuracy", "web", "mcp", "doctor", "measure", "watch", "catalog",
    "report-error", "completion",
)  # fmt: skip
MODULES = {name: name for name in ("web", "mcp", "watch", "catalog", "completion")} | {"report-error": "report"}
# Synonyms of commands.
SYNONYMS = {"price": "offers", "prices": "offers", "pricing": "offers", "cost": "offers", "history": "catalog history"}
EXTRA_WORDS = re.compile(r"Got unexpected extra arguments? \((.*)\)")  # What click says of words that no argument takes.
COMPLETION_VARIABLE = "_WHICHGPU_COMPLETE"


class Root(HelpGroup):
    """Top-level click group of all commands; a command's module is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        if name not in MODULES:
            return click_command(name)
        module = importlib.import_module(f"whichgpu.surface.cli.{MODULES[name]}")
        command = getattr(module, name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "help":
            args = ["--help"] if len(args) == 1 else [args[1], "--help"]
            if args == ["--help"]:
                ctx.obj.out.write(ctx.get_help() + "\n")
                ctx.exit()
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            args = self._read_sentence(ctx.obj, args)
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            self._suggest_command(*args)
        args = _with_task_option(args)
        if not {"--help", "-h"} & set(args):  # Help must work with a malformed config file.
            ctx.default_map = self._defaults(ctx, ctx.obj)
        return super().resolve_command(ctx, args)

    @staticmethod
    def _read_sentence(session: Session, args: list[str]) -> list[str]:
        """Return the arguments of the command nearest to a plain sentence, and show it; the arguments if they are none."""
        end = next((place for place, word in enumerate(args) if word.startswith("-")), len(args))
        words = " ".join(args[:end]).split()
        if len(words) < 3:  # Most mistyped commands end here, without loading the catalog.
            return args
        from shlex import join

        from whichgpu.catalog.store import Catalog
        from whichgpu.surface.cli.sentences import command_of_sentence, corrected_command

        if corrected := corrected_command(args, COMMANDS, Catalog()):
            hint = msg("hint.try", command=join(["whichgpu", *corrected]))
            raise UnknownName("unknown-command", msg("error.unknown-command", name=args[0]), hint, (corrected[0],))
        reading = command_of_sentence([*words, *args[end:]], Catalog())
        if reading is None:
            return args
        command, ignored = reading
        session.say(msg("sentence.read-as", command=join(["whichgpu", *command])))
        if ignored:
            session.say(msg("sentence.ignored", words=", ".join(ignored)))
        return command

    @staticmethod
    def _suggest_command(word: str, *others: str) -> None:
        """Raise an error that suggests a command if the first word is a GPU, a machine or a synonym."""
        from whichgpu.catalog.find import exact_instances, gpus_named
        from whichgpu.catalog.store import Catalog

        command, rest = SYNONYMS.get(word.lower()), "--help"
        if command == "offers" and others and not others[0].startswith("-"):
            rest = f"--gpu {quote(' '.join(others))}"
        if command is None:
            catalog, rest = Catalog(), word
            command = "gpus" if gpus_named(catalog, word) else "instances" if exact_instances(catalog.instances, word) else None
        if command:
            hint = msg("hint.try", command=f"whichgpu {command} {rest}")
            raise UnknownName("unknown-command", msg("error.unknown-command", name=word), hint, (command,))

    def _defaults(self, ctx: click.Context, session: Session) -> dict[str, object]:
        """Return default option values from the config file, for every command and subcommand."""
        path = config_path(session.config_named)
        if path is None:
            return {}
        commands = {name: self.get_command(ctx, name) for name in COMMANDS}
        shared, own = read_config(path, {name: options_of(command) for name, command in commands.items()})
        if session.format is None and shared.get("format") == "json":
            session.format = "json"  # Errors during parsing need the format.
        return {
            name: dict.fromkeys(command.commands, shared) if isinstance(command, click.Group) else shared | own.get(name, {})
            for name, command in commands.items()
        }

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(ctx.obj.language.text("help.more"))


def _with_task_option(args: list[str]) -> list[str]:
    """Return the arguments of `fit TASK MODEL`, as other commands have it, with the task as an option; others unchanged."""
    if args[0] != "fit" or len(args) < 3 or args[2].startswith("-"):
        return args
    from whichgpu.workload.tasks import TASKS

    return ["fit", args[2], "--task", args[1], *args[3:]] if args[1] in TASKS else args


def _version(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
    if requested:
        ctx.find_root().obj.out.write(f"whichgpu {__version__}\n")
        ctx.exit()


@click.group(cls=Root, invoke_without_command=True, help="help.about", context_settings={"help_option_names": [*HELP_NAMES]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    allow_from_autoenv=False,
    help="option.version",
)
@click.option("--lang", metavar="CODE", expose_value=False, help="option.lang")
@click.option("--config", expose_value=False, hidden=True)
@click.pass_context
def root(ctx: click.Context) -> None:
    """Print a greeting if no command is given."""
    if ctx.invoked_subcommand is None:
        ctx.obj.out.write(ctx.obj.language.text("greeting") + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; all exceptions are handled here."""
    args = list(sys.argv[1:] if argv is None else argv)
    is_closed = sys.stdout is None
    sys.stdout, sys.stderr = _stream(sys.stdout), _stream(sys.stderr)
    session = Session(language(_system_language()), out=cast("TextIO", Output(sys.stdout)))
    try:
        if is_closed:
            raise CannotWrite(os.strerror(errno.EBADF))
        return _run_reporting_errors(args, session)
    except ReaderGone:  # The reader closed the pipe, as `head` does.
        silence(sys.stdout)
        return 0
    except CannotWrite as problem:  # Stdout is closed or on a full disk.
        silence(sys.stdout)
        session.format = None
        return session.fail(DataError("cannot-write", msg("error.cannot-write", why=str(problem))))


def _stream(stream: TextIO | None) -> TextIO:
    """Return a stream that can be written even if the caller closed it or its encoding lacks a character."""
    if stream is None:
        return open(os.devnull, "w")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def _run_reporting_errors(args: list[str], session: Session) -> int:
    """Run a command and return its exit code; errors of this package, of click and of the system are printed."""
    try:
        if "--json" in args or (early_option(args, os.environ, "format") or "").lower() == "json":
            session.format = "json"
        if name := early_option(args, os.environ, "lang"):
            session.language = language(language_code(name))
        session.config_named = early_option(args, os.environ, "config")
        result = _run(args, session)
        session.out.flush()
        return result
    except WhichGpuError as error:
        return session.fail(error)
    except click.UsageError as error:
        return session.fail(usage_error(error, session))
    except click.exceptions.Exit as stop:
        session.out.flush()
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except (ReaderGone, CannotWrite):
        raise
    except OSError as problem:  # Click prints help without our output stream, whose errors are handled above.
        if problem.errno in (errno.EPIPE, errno.ENOSPC, errno.EIO):
            raise write_error(problem) from problem
        return session.fail(DataError("unreadable", msg("error.unreadable", why=str(problem)), msg("hint.internal")))
    except ModuleNotFoundError as problem:
        hint = msg("hint.missing-package")
        return session.fail(DataError("missing-package", msg("error.missing-package", name=problem.name or "?"), hint))
    except Exception as problem:
        if os.environ.get("WHICHGPU_DEBUG"):
            raise
        message = msg("error.internal", what=f"{type(problem).__name__}: {problem}")
        return session.fail(WhichGpuError("internal", message, msg("hint.internal")))


def _run(args: list[str], session: Session) -> int:
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        if "complete" in instruction and "COMP_WORDS" not in os.environ:
            return 2
        return shell_complete(root, {"obj": session}, "whichgpu", COMPLETION_VARIABLE, instruction)
    with root.make_context("whichgpu", args, obj=session, auto_envvar_prefix="WHICHGPU") as ctx:
        result = root.invoke(ctx)
    return result if isinstance(result, int) else 0


def _system_language() -> str:
    """Return the language of the environment, in gettext's order; the first variable set decides, and may list several."""
    names = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
    setting = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return next(filter(None, map(code_of, setting.split(":"))), SOURCE_LANGUAGE)


def usage_error(error: click.UsageError, session: Session) -> UsageError:
    """Return click's error about wrong arguments as this package's UsageError, with a hint."""
    hint = msg("hint.see-help", command=" ".join(["whichgpu", *session.command]))
    if isinstance(error, click.NoSuchOption):
        if error.option_name.removeprefix("--") in ("json", "csv", "markdown", "tsv", "columns") and not session.command:
            hint = msg("hint.flag-after-command", flag=error.option_name)
        choices = tuple(error.possibilities or ())
        hint = msg("hint.nearest", choices=choices) if choices and session.command else hint
        return UsageError("unknown-option", msg("error.unknown-option", name=error.option_name), hint, choices)
    if isinstance(error, click.MissingParameter):
        name = error.param.human_readable_name if error.param else "?"
        hint = msg("hint.fit-model") if session.command == ("fit",) else hint
        return UsageError("missing-argument", msg("error.missing-argument", name=name), hint)
    if isinstance(error, click.BadOptionUsage):
        return UsageError("missing-value", msg("error.missing-value", name=error.option_name), hint)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return UsageError("missing-argument", msg("error.missing-argument", name="COMMAND"), hint)
    if extra := EXTRA_WORDS.match(error.format_message()):
        command = f"whichgpu offers --gpu {quote(extra[1])}"
        hint = msg("hint.try", command=command) if session.command == ("offers",) else msg("hint.extra-words")
    return UsageError("usage", msg("error.usage", text=error.format_message()), hint)
