"""Click commands, groups and parameters whose help texts are message ids and whose errors are this package's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from whichgpu.api.request.field import flag_of
from whichgpu.base.dates import parse_as_known, parse_as_of
from whichgpu.base.errors import UsageError
from whichgpu.base.files import user_path
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import Language, language, msg
from whichgpu.base.names import squash, unknown_word
from whichgpu.surface.cli.help_layout import WideContext
from whichgpu.surface.commands.session import Session, language_code

if TYPE_CHECKING:
    from whichgpu.api.request.field import Field
    from whichgpu.base.kinds import ValueKind
    from whichgpu.catalog.store import Catalog

FLAGS = ("json", "csv", "markdown", "tsv")
FORMATS = (*FLAGS, "table")
NOT_SETTINGS = (*FLAGS, "config", "help")  # Options that a config file cannot set.


def session_of(ctx: click.Context) -> Session:
    """Return the session (language, format, catalog) of this run of the command line."""
    session = ctx.find_root().obj
    assert isinstance(session, Session)
    return session


def _language(ctx: click.Context) -> Language:
    return session_of(ctx).language


class Option(click.Option):
    """A click option whose help text is a message id, translated when help is printed."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or not self.help:
            return record
        text = _language(ctx).text
        return record[0], record[1].replace(self.help, text(self.help)).replace("[required]", text("help.required"))


HELP_NAMES = ("-h", "--help")


class HelpCommand(click.Command):
    """A click command whose help and epilog are message ids, translated when help is printed."""

    undated: str | None = None  # hint in the error for --as-of, if the command has no dates

    context_class = WideContext

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an option given twice, of which click would ignore the first, is an error."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for param, count in Counter(order).items():
                if count > 1 and isinstance(param, Option) and not (param.multiple or param.is_flag):
                    hint = msg("hint.rate-each" if (self.name, param.name) == ("plan", "rate") else "hint.given-twice")
                    raise UsageError("given-twice", msg("error.given-times", name=param.opts[0], n=count), hint)
        return super().parse_args(ctx, args)

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
        return list(HELP_NAMES)  # Click creates the help option only once.

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option:
            option.help = _language(ctx).text("option.help")
        return option


class HelpGroup(click.Group):
    """A click group of commands whose one-line descriptions are message ids."""

    context_class = WideContext

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name, session = args[0], session_of(ctx)
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            raise unknown_word("command", " ".join([*session.command, name]), self.list_commands(ctx))
        resolved = super().resolve_command(ctx, args)
        session.command = (*session.command, name)
        return resolved

    def short(self, name: str) -> str:
        """Return the message id of a command's one-line description."""
        return f"command.{name}.short"

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        text = _language(ctx).text
        formatter.write_usage(ctx.command_path, text("help.usage-line"), prefix=text("help.usage"))
        formatter.write_paragraph()
        formatter.write_text(text(self.help or ""))
        with formatter.section(text("help.commands")):
            formatter.write_dl([(name, text(self.short(name))) for name in self.list_commands(ctx)])
        with formatter.section(text("help.options")):
            options = [param for param in self.params if isinstance(param, click.Option) and not param.hidden]
            formatter.write_dl([*((_flag(param), text(param.help or "")) for param in options), ("--help", text("option.help"))])


def _flag(param: click.Option) -> str:
    return f"{param.opts[0]} {param.metavar}" if param.metavar else param.opts[0]


def options_of(command: click.Command | None) -> tuple[str, ...]:
    """Return the names of a command's own options that a config file can set."""
    if command is None:
        return ()
    return tuple(
        param.name
        for param in command.params
        if isinstance(param, click.Option) and param.name and param.name not in NOT_SETTINGS
    )


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds a click option; its help is the message `option.<name>` unless another is given."""
    long = next(name for name in names if name.startswith("--"))
    settings.setdefault("help", f"option.{long.lstrip('-').partition('/')[0]}")
    return click.option(*names, **{"cls": Option, **settings})


def command(
    name: str, epilog: bool = False, id: str | None = None, undated: str | None = None
) -> Callable[[Callable[..., Any]], HelpCommand]:
    """Declare a command that only the command line has; its function takes the session first.

    `id` replaces the name in message ids. `undated` is the hint in the error for --as-of, if the command has no dates.
    """

    def wrap(function: Callable[..., Any]) -> HelpCommand:
        def call(**values: Any) -> Any:
            session = _prepare(session_of(click.get_current_context()), values)
            return function(session, **values)

        params = getattr(function, "__click_params__", [])[::-1]
        return _click_command(name, params, call, f"command.{id or name}", epilog, undated)

    return wrap


def click_command(name: str) -> HelpCommand:
    """Return the click command of a declared command, with the flags and arguments of its request."""
    from whichgpu.api.request.read import present_fields  # Imported here: it is slow to load and not needed to list commands.
    from whichgpu.surface.commands.command import command_named

    declared = command_named(name)

    def call(**values: Any) -> Any:
        session = _prepare(session_of(click.get_current_context()), values)
        session.spell = partial(flag_spelling, declared.fields)
        request = present_fields(declared.request, values)
        session.request = request | declared.display(session, request)
        return declared.show(session, declared.ask(session, request))

    fields = [field for field in declared.fields.values() if field.name not in SHARED_OPTIONS]
    alone = any(field.name == "requests" for field in fields)  # A file of requests replaces all other arguments.
    params = [_parameter(field, alone) for field in sorted(fields, key=lambda field: not field.argument)]
    word = name.rpartition(" ")[2]
    id = "catalog-check" if name == "catalog check" else word  # `check` is another command.
    return _click_command(word, params, call, f"command.{id}", declared.has_examples, declared.undated)


def _parameter(field: Field, alone: bool) -> click.Parameter:
    """Return a request field's click argument or option, which keeps text; with `alone`, arguments are never required."""
    type = ValueType(field)
    if field.argument:
        nargs = -1 if field.is_list else 1
        return click.Argument([field.name], nargs=nargs, type=type, metavar=field.metavar, required=field.required and not alone)
    if field.is_switch:
        flags = f"{field.flag}/{field.flag.replace('--', '--no-', 1)}" if field.has_negative else field.flag
        return Option([flags, field.name], is_flag=True, default=None, help=field.help)
    kind = Repeated if field.is_list else Option
    return kind(
        [*field.flags, field.name], type=type, metavar=field.metavar, help=field.help, multiple=field.is_list,
        required=field.required,
    )  # fmt: skip


def flag_spelling(fields: Mapping[str, Field], name: str) -> str:
    """Return the flags of a field for errors, the short one first: `--tpot (--tpot-max)`; of an argument its placeholder."""
    field = fields.get(name)
    if field is not None and field.argument and field.metavar:
        return field.metavar.strip("[]…")
    short = next((alias for alias in field.aliases if len(alias) < len(name)), None) if field else None
    return f"{flag_of(short)} ({flag_of(name)})" if short else flag_of(name)


def _click_command(
    name: str, params: Sequence[click.Parameter], call: Callable[..., Any], id: str, has_examples: bool, undated: str | None
) -> HelpCommand:  # fmt: skip
    command = HelpCommand(
        name,
        params=[*params, *_shared_options()],
        callback=call,
        help=f"{id}.help",
        epilog=f"{id}.examples" if has_examples else None,
        options_metavar="[OPTIONS]",
    )
    command.undated = undated
    return command


def _prepare(session: Session, values: dict[str, Any]) -> Session:
    """Move the options that all commands share (language, format, day) from a command's values into the session."""
    forms = [form for form in FLAGS if values.pop(form)]
    if len(forms) > 1:
        raise UsageError("two-forms", msg("error.two-forms", forms=tuple(f"--{form}" for form in forms)), msg("hint.two-forms"))
    name = values.pop("format")
    session.format = forms[0] if forms else name
    session.columns = values.pop("columns")
    folder = values.pop("catalog")
    session.catalog_folder = user_path(folder) if folder else None
    lang, _ = values.pop("lang"), values.pop("config")
    session.language = language(language_code(lang)) if lang else session.language
    as_of, as_known = values.pop("as_of"), values.pop("catalog_as_known")
    _refuse_day(click.get_current_context())
    session.as_of = None if as_of is None else parse_as_of(as_of, session.today)
    session.as_known = None if as_known is None else parse_as_known(as_known, session.today)
    session.request = dict(values)
    return session


def _refuse_day(ctx: click.Context) -> None:
    """Raise if --as-of is given to a command without dates; a variable or config file may set it for all commands."""
    is_typed = ctx.get_parameter_source("as_of") is click.core.ParameterSource.COMMANDLINE
    if is_typed and isinstance(ctx.command, HelpCommand) and ctx.command.undated is not None:
        message = msg("error.no-as-of", command=" ".join(session_of(ctx).command))
        raise UsageError("no-as-of", message, msg(ctx.command.undated))


class ValueType(click.ParamType[Any]):
    """Click type of a field, whose shell completion offers the field's choices or names of the catalog.

    With `is_read` the text is parsed here; without it the command's verb parses it later.
    """

    envvar_list_splitter = ","

    def __init__(self, field: Field, is_read: bool = False) -> None:
        self.name = field.name or "value"
        self._field, self._is_read = field, is_read

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the words that the field accepts, empty if it accepts any; some are slow to list."""
        return self._field.choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not (self._is_read and isinstance(value, str)):
            return value
        try:
            return self._field.kind.read_text(value)
        except InvalidValue as invalid:
            from whichgpu.workload.field_errors import invalid_field

            raise invalid_field(param.opts[0] if param else self.name, value, invalid) from invalid

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        done, comma, last = incomplete.rpartition(",") if self._field.is_list else ("", "", incomplete)
        names = self._field.choices or completions(self._field, session_of(ctx))
        start = squash(last)
        return [CompletionItem(done + comma + word) for word in names if squash(word).startswith(start)]


def value_type(kind: ValueKind) -> ValueType:
    """Return a click parameter type that parses text as a request field of that kind does."""
    from whichgpu.api.request.field import Field

    return ValueType(Field(kind), is_read=True)


def completions(field: Field, session: Session) -> Sequence[str]:
    """Return the catalog's names that complete a field in a shell."""
    names = CATALOG_NAMES.get(getattr(field.kind, "complete", ""))
    return names(session.catalog) if names else ()


class Repeated(Option):
    """A click option for several values: given once with commas, or several times, or as one text of a config file."""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        values = super().type_cast_value(ctx, [value] if isinstance(value, str) else value)
        return ",".join(values) if values else None


def _gpus(catalog: Catalog) -> list[str]:
    return [gpu.id for gpu in catalog.gpus]  # Ids need no quotes in a shell.


def _instances(catalog: Catalog) -> list[str]:
    return sorted({row.instance for row in catalog.instances})


# Functions that return the catalog's names, by the word with which a kind asks for completion.
CATALOG_NAMES: dict[str, Callable[[Catalog], Sequence[str]]] = {
    "gpus": _gpus,
    "instances": _instances,
    "gpus and instances": lambda catalog: _gpus(catalog) + _instances(catalog),
    "providers": lambda catalog: [provider.id for provider in catalog.providers],
    "models": lambda catalog: [model.id for model in catalog.models],
    "engines": lambda catalog: [engine.id for engine in catalog.engines],
    "cpus": lambda catalog: [cpu.id for cpu in catalog.cpus],
    "regions": lambda catalog: sorted({region.region for region in catalog.regions}),
}

# Placeholder of each option that every command has; options without one are switches.
SHARED_OPTIONS = {
    "json": "", "csv": "", "markdown": "", "tsv": "", "format": "FORM", "columns": "NAMES", "as_of": "DATE",
    "catalog_as_known": "DATE", "catalog": "DIR", "lang": "CODE", "config": "FILE",
}  # fmt: skip


def _shared_options() -> list[Option]:
    """Return the options of every command; those with a value may also be set by a variable."""
    from whichgpu.api.request.kinds import Words

    types = {"format": value_type(Words("format", FORMATS))}
    return [
        Option(
            [flag_of(name)], help=f"option.{name.replace('_', '-')}", metavar=metavar, type=types.get(name),
            envvar=f"WHICHGPU_{name.upper()}",
        )
        if metavar
        else Option([flag_of(name)], help=f"option.{name}", is_flag=True)
        for name, metavar in SHARED_OPTIONS.items()
    ]  # fmt: skip
