"""The pieces commands are made of: help by message id, shared options, values with our own errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from whichgpu.base.dates import parse_as_known, parse_as_of
from whichgpu.base.errors import UsageError
from whichgpu.base.files import user_path
from whichgpu.base.messages import Language, msg
from whichgpu.base.names import squash, unknown_word
from whichgpu.surface.cli.help_layout import Context
from whichgpu.surface.commands.session import Session, chosen_language

if TYPE_CHECKING:
    from whichgpu.api.request.field import Field
    from whichgpu.catalog.store import Catalog

FLAGS = ("json", "csv", "markdown", "tsv")
FORMATS = (*FLAGS, "table")
SKIPPED = (*FLAGS, "config", "help")  # options that are no settings


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
    """A command whose help and epilog are message ids."""

    undated: str | None = None  # the hint for who asks a command for a day that knows of none

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
    name: str,
    epilog: bool = False,
    id: str | None = None,
    undated: str | None = None,
) -> Callable[[Callable[..., Any]], Command]:
    """A command of the command line alone, whose body gets the session first; `id` where its messages go by another name.

    `undated` is the hint of one that --as-of means nothing to.
    """

    def wrap(function: Callable[..., Any]) -> Command:
        def call(**values: Any) -> Any:
            session = ready(session_of(click.get_current_context()), values)
            return function(session, **values)

        params = getattr(function, "__click_params__", [])[::-1]
        return _made(name, params, call, f"command.{id or name}", epilog, undated)

    return wrap


def click_command(name: str) -> Command:
    """The flags and arguments of a declared command, made from the request it takes."""
    from whichgpu.api.request.read import given  # the list of commands does without declarations
    from whichgpu.surface.commands.command import command_named

    asked = command_named(name)

    def call(**values: Any) -> Any:
        session = ready(session_of(click.get_current_context()), values)
        session.spell = partial(spelled, asked.fields)
        request = given(asked.request, values)
        session.asked = request | asked.display(session, request)
        return asked.show(session, asked.ask(session, request))

    fields = [field for field in asked.fields.values() if field.name not in SHARED_NAMES]
    alone = any(field.name == "requests" for field in fields)  # a file of requests stands for all arguments
    params = [_parameter(field, alone) for field in sorted(fields, key=lambda field: not field.argument)]
    word = name.rpartition(" ")[2]
    return _made(word, params, call, f"command.{word}", asked.has_examples, asked.undated)


def _parameter(field: Field, alone: bool) -> click.Parameter:
    """The argument or option of a field; its text goes on as it was typed."""
    type = FieldType(field)
    if field.argument:
        nargs = -1 if field.is_list else 1
        return click.Argument([field.name], nargs=nargs, type=type, metavar=field.metavar, required=field.required and not alone)
    if field.is_switch:
        flags = f"{field.flag}/{field.flag.replace('--', '--no-', 1)}" if field.has_negative else field.flag
        return Option([flags, field.name], is_flag=True, default=None, help=field.help)
    kind = Repeated if field.repeated else Option
    return kind(
        [*field.flags, field.name], type=type, metavar=field.metavar, help=field.help, multiple=field.repeated,
        required=field.required,
    )  # fmt: skip


def flag_of(name: str) -> str:
    """The flag of a field's name."""
    return "--" + name.replace("_", "-")


def spelled(fields: Mapping[str, Field], name: str) -> str:
    """A field in an error by each of its flags: the one that was typed is among them (`--tpot (--tpot-max)`)."""
    field = fields.get(name)
    short = next((alias for alias in field.aliases if len(alias) < len(name)), None) if field else None
    return f"{flag_of(short)} ({flag_of(name)})" if short else flag_of(name)


def _made(
    name: str, params: Sequence[click.Parameter], call: Callable[..., Any], id: str, has_examples: bool, undated: str | None
) -> Command:  # fmt: skip
    made = Command(
        name,
        params=[*params, *_shared_options()],
        callback=call,
        help=f"{id}.help",
        epilog=f"{id}.examples" if has_examples else None,
        options_metavar="[OPTIONS]",
    )
    made.undated = undated
    return made


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
    session.as_known = None if as_known is None else parse_as_known(as_known, session.today)
    session.asked = dict(values)
    return session


def _refuse_day(ctx: click.Context) -> None:
    """A day asked of a command that knows of none; one that a variable or a file sets for all commands asks nothing of it."""
    told = ctx.get_parameter_source("as_of") is click.core.ParameterSource.COMMANDLINE
    if told and isinstance(ctx.command, Command) and ctx.command.undated is not None:
        message = msg("error.no-as-of", command=" ".join(session_of(ctx).command))
        raise UsageError("no-as-of", message, msg(ctx.command.undated))


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


class FieldType(click.ParamType[Any]):
    """The value of a declared field as it was typed; its kind reads it later. Known here for completion."""

    envvar_list_splitter = ","

    def __init__(self, field: Field) -> None:
        self.name = field.name
        self._field = field

    def known(self) -> tuple[str, ...]:
        """The words allowed, where there is a list of them."""
        return self._field.choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        done, comma, last = incomplete.rpartition(",") if self._field.is_list else ("", "", incomplete)
        names = self._field.choices or completions(self._field, session_of(ctx))
        start = squash(last)
        return [CompletionItem(done + comma + word) for word in names if squash(word).startswith(start)]


def completions(field: Field, session: Session) -> Sequence[str]:
    """Names of the catalog that a field may be."""
    listed = NAMED.get(getattr(field.kind, "complete", ""))
    return listed(session.catalog) if listed else ()


class Repeated(Option):
    """An option that may come again and again; a config file gives it one text."""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        return super().type_cast_value(ctx, [value] if isinstance(value, str) else value)


class Names(click.ParamType[Any]):
    """Free names, completed from the catalog."""

    name = "name"

    def __init__(self, known: Callable[[Catalog], Sequence[str]]) -> None:
        self._known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        start = squash(incomplete)
        return [CompletionItem(word) for word in self._known(session_of(ctx).catalog) if squash(word).startswith(start)]


def gpu_names(catalog: Catalog) -> list[str]:
    """Names that need no quotes in a shell."""
    return [gpu.id for gpu in catalog.gpus]


def instance_names(catalog: Catalog) -> list[str]:
    """Machines by their own names."""
    return sorted({row.instance for row in catalog.instances})


NAMED: dict[str, Callable[[Catalog], Sequence[str]]] = {
    "gpus": gpu_names,
    "instances": instance_names,
    "providers": lambda catalog: [provider.id for provider in catalog.providers],
    "models": lambda catalog: [model.id for model in catalog.models],
    "engines": lambda catalog: [engine.id for engine in catalog.engines],
    "cpus": lambda catalog: [cpu.id for cpu in catalog.cpus],
    "regions": lambda catalog: sorted({region.region for region in catalog.regions}),
}
GPU = Names(gpu_names)
SELLER = Names(lambda catalog: [provider.id for provider in catalog.providers])  # or one of the user's own lists

_SHARED: dict[str, dict[str, Any]] = {
    "json": {"is_flag": True},
    "csv": {"is_flag": True},
    "markdown": {"is_flag": True},
    "tsv": {"is_flag": True},
    "format": {"metavar": "FORM", "type": Words("format", FORMATS)},
    "columns": {"metavar": "NAMES"},
    "as_of": {"metavar": "DATE"},
    "catalog_as_known": {"metavar": "DATE"},
    "catalog": {"metavar": "DIR"},
    "lang": {"metavar": "CODE"},
    "config": {"metavar": "FILE"},
}


def _shared_options() -> list[Option]:
    """Options of every command; those with a value may also be set by a variable."""
    return [
        Option([flag_of(name)], help=f"option.{name.replace('_', '-')}", **settings)
        if "is_flag" in settings
        else Option([flag_of(name)], help=f"option.{name.replace('_', '-')}", envvar=f"WHICHGPU_{name.upper()}", **settings)
        for name, settings in _SHARED.items()
    ]


SHARED_NAMES = tuple(_SHARED)
