"""The pieces commands are made of: help by message id, shared options, values with our own errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from whichgpu.base.dates import parse_as_of, parse_known
from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.messages import Language, code_of, language, languages, msg
from whichgpu.base.names import squash, unknown_word
from whichgpu.surface.cli.helping import Context
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.settings import user_path

if TYPE_CHECKING:
    from whichgpu.catalog.store import Catalog

FLAGS = ("json", "csv", "markdown", "tsv")
FORMATS = (*FLAGS, "table")
SKIPPED = (*FLAGS, "config", "help")  # options that are no settings
Shows = TypeVar("Shows", bound=Callable[[Session, Any], "int | None"])


def session_of(ctx: click.Context) -> Session:
    """The session of this run."""
    session = ctx.find_root().obj
    assert isinstance(session, Session)
    return session


def _language(ctx: click.Context) -> Language:
    return session_of(ctx).language


class Option(click.Option):
    """An option whose help is a message id."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or not self.help:
            return record
        text = _language(ctx).text
        return record[0], record[1].replace(self.help, text(self.help)).replace("[required]", text("help.required"))


HELP_NAMES = ("-h", "--help")


class Command(click.Command):
    """A command whose help and epilog are message ids. What it asks and how the answer is shown are two functions.

    `ask` makes the answer of a session and the flags' values; `show`, where there is one, prints it and tells the exit code.
    """

    ask: Callable[..., Any]
    show: Callable[[Session, Any], int | None] | None = None
    undated: str | None = None  # the hint for who asks a command for a day that knows of none

    def shows(self, function: Shows) -> Shows:
        """Decorate the function that shows this command's answers; they need not come from the command line."""
        self.show = function
        return function

    context_class = Context

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        pieces = " ".join(self.collect_usage_pieces(ctx))
        formatter.write_usage(ctx.command_path, pieces, prefix=_language(ctx).text("help.usage"))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = [param.get_help_record(ctx) for param in self.get_params(ctx) if isinstance(param, click.Option)]
        with formatter.section(_language(ctx).text("help.options")):
            formatter.write_dl([record for record in records if record is not None])

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_language(ctx).text(self.help or ""))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(_language(ctx).text(self.epilog) + "\n")

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        return list(HELP_NAMES)  # whoever asks first: the option is made once

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option:
            option.help = _language(ctx).text("option.help")
        return option


class Group(click.Group):
    """Commands under one name; what they are for comes from their message ids."""

    context_class = Context

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name, session = args[0], session_of(ctx)
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            raise unknown_word("command", " ".join([*session.command, name]), self.list_commands(ctx))
        found = super().resolve_command(ctx, args)
        session.command = (*session.command, name)
        return found

    def short(self, name: str) -> str:
        """The id of what a command is for, in a line."""
        return f"command.{name}.short"

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        text = _language(ctx).text
        formatter.write_usage(ctx.command_path, text("help.usage-line"), prefix=text("help.usage"))
        formatter.write_paragraph()
        formatter.write_text(text(self.help or ""))
        with formatter.section(text("help.commands")):
            formatter.write_dl([(name, text(self.short(name))) for name in self.list_commands(ctx)])
        with formatter.section(text("help.options")):
            shown = [param for param in self.params if isinstance(param, click.Option) and not param.hidden]
            formatter.write_dl([*((_flag(param), text(param.help or "")) for param in shown), ("--help", text("option.help"))])


def _flag(param: click.Option) -> str:
    return f"{param.opts[0]} {param.metavar}" if param.metavar else param.opts[0]


def options_of(command: click.Command | None) -> tuple[str, ...]:
    """Names of a command's own options, as its flags are written."""
    if command is None:
        return ()
    return tuple(
        param.name for param in command.params if isinstance(param, click.Option) and param.name and param.name not in SKIPPED
    )


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """`click.option` with help by message id: `option.<name>` unless another is given."""
    long = next(name for name in names if name.startswith("--"))
    settings.setdefault("help", f"option.{long.lstrip('-').partition('/')[0]}")
    return click.option(*names, **{"cls": Option, **settings})


def command(
    name: str, arguments: str = "", epilog: bool = False, id: str | None = None, undated: str | None = None
) -> Callable[[Callable[..., Any]], Command]:
    """A command with the shared options, whose body gets the session first; `id` where its messages go by another name.

    `undated` is the hint of one that --as-of means nothing to.
    """

    def wrap(function: Callable[..., Any]) -> Command:
        def call(**values: Any) -> Any:
            session = ready(session_of(click.get_current_context()), values)
            told = function(session, **values)
            return made.show(session, told) if made.show else told

        call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        shared = call
        for decorate in reversed(_SHARED_OPTIONS):
            shared = decorate(shared)
        params = shared.__click_params__  # type: ignore[attr-defined]
        own = [param for param in params[::-1] if param.name not in SHARED_NAMES]
        common = [param for param in params[::-1] if param.name in SHARED_NAMES]
        made = Command(
            name,
            params=own + common,
            callback=call,
            help=f"command.{id or name}.help",
            epilog=f"command.{id or name}.examples" if epilog else None,
            options_metavar=arguments or "[OPTIONS]",
        )
        made.ask, made.undated = function, undated
        return made

    return wrap


def ready(session: Session, values: dict[str, Any]) -> Session:
    """Take the shared options out of a command's values and into the session."""
    forms = [form for form in FLAGS if values.pop(form)]
    if len(forms) > 1:
        raise UsageError("two-forms", msg("error.two-forms", forms=tuple(f"--{form}" for form in forms)), msg("hint.two-forms"))
    named = values.pop("format")
    session.format = forms[0] if forms else named
    session.columns = values.pop("columns")
    folder = values.pop("catalog")
    session.catalog_folder = user_path(folder) if folder else None
    lang, _ = values.pop("lang"), values.pop("config")
    session.language = chosen_language(lang) if lang else session.language
    as_of, as_known = values.pop("as_of"), values.pop("catalog_as_known")
    _refuse_day(click.get_current_context())
    session.as_of = None if as_of is None else parse_as_of(as_of, session.today)
    session.as_known = None if as_known is None else parse_known(as_known, session.today)
    session.asked = dict(values)
    return session


def _refuse_day(ctx: click.Context) -> None:
    """A day asked of a command that knows of none; one that a variable or a file sets for all commands asks nothing of it."""
    told = ctx.get_parameter_source("as_of") is click.core.ParameterSource.COMMANDLINE
    if told and isinstance(ctx.command, Command) and ctx.command.undated is not None:
        message = msg("error.no-as-of", command=" ".join(session_of(ctx).command))
        raise UsageError("no-as-of", message, msg(ctx.command.undated))


def chosen_language(named: str) -> Language:
    """The language a user names, which must be one there is."""
    code = code_of(named)
    if code is None:
        choices = languages()
        raise UnknownName(
            "unknown-language", msg("error.unknown-language", name=named), msg("hint.choices", choices=choices), choices
        )
    return language(code)


def catalog_of(session: Session) -> Catalog:
    """The catalog this run asks: the bundled one or the user's folder, as known now or then."""
    from whichgpu.catalog.store import Catalog  # help does without it, and it takes longer to load than all the rest

    key = (session.catalog_folder, session.as_known)
    if session.catalogs is None:
        return Catalog(*key)
    if key not in session.catalogs:
        session.catalogs[key] = Catalog(*key)
    return session.catalogs[key]


class Words(click.ParamType[Any]):
    """One or several words out of a list, with the nearest suggested when wrong."""

    def __init__(self, what: str, known: Sequence[str] | Callable[[], Sequence[str]], many: bool = False) -> None:
        self.name = what
        self._known = known
        self.many = many

    def known(self) -> tuple[str, ...]:
        """The words allowed."""
        return tuple(self._known() if callable(self._known) else self._known)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        words = [self._one(word.strip()) for word in str(value).split(",")] if self.many else [self._one(str(value))]
        return tuple(words) if self.many else words[0]

    def _one(self, word: str) -> str:
        known = self.known()
        for candidate in known:
            if squash(candidate) == squash(word):
                return candidate
        raise unknown_word(self.name, word, known)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        done, comma, last = incomplete.rpartition(",") if self.many else ("", "", incomplete)
        return [CompletionItem(done + comma + word) for word in self.known() if word.lower().startswith(last.lower())]


class Parsed(click.ParamType[Any]):
    """A value read by one of our own parsers, whose errors say what would work."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._parse(value) if isinstance(value, str) else value


class Names(click.ParamType[Any]):
    """Free names, completed from the catalog."""

    name = "name"

    def __init__(self, known: Callable[[Catalog], Sequence[str]]) -> None:
        self._known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        start = squash(incomplete)
        return [CompletionItem(word) for word in self._known(catalog_of(session_of(ctx))) if squash(word).startswith(start)]


def gpu_names(catalog: Catalog) -> list[str]:
    """Names that need no quotes in a shell."""
    return [gpu.id for gpu in catalog.gpus]


def instance_names(catalog: Catalog) -> list[str]:
    """Machines by their own names."""
    return sorted({row.instance for row in catalog.instances})


def provider_names() -> list[str]:
    """Ids of all providers."""
    from whichgpu.catalog.store import Catalog

    return [provider.id for provider in Catalog().providers]


class Provider(Words):
    """A provider by its id, its name or a word of it."""

    def _one(self, word: str) -> str:
        from whichgpu.catalog.find import find_provider
        from whichgpu.catalog.store import Catalog

        return find_provider(Catalog(), word)


GPU = Names(gpu_names)
INSTANCE = Names(instance_names)
SELLER = Names(lambda catalog: [provider.id for provider in catalog.providers])  # or one of the user's own lists
PROVIDER = Provider("provider", provider_names)

_SHARED_OPTIONS = (
    option("--json", is_flag=True),
    option("--csv", is_flag=True),
    option("--markdown", is_flag=True),
    option("--tsv", is_flag=True),
    option("--format", metavar="FORM", envvar="WHICHGPU_FORMAT", type=Words("format", FORMATS)),
    option("--columns", metavar="NAMES", envvar="WHICHGPU_COLUMNS"),
    option("--as-of", metavar="DATE", envvar="WHICHGPU_AS_OF"),
    option("--catalog-as-known", metavar="DATE", envvar="WHICHGPU_CATALOG_AS_KNOWN"),
    option("--catalog", metavar="DIR", envvar="WHICHGPU_CATALOG"),
    option("--lang", metavar="CODE", envvar="WHICHGPU_LANG"),
    option("--config", metavar="FILE", envvar="WHICHGPU_CONFIG"),
)
SHARED_NAMES = (*FLAGS, "format", "columns", "as_of", "catalog_as_known", "catalog", "lang", "config")
