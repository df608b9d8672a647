"""A command asked from Python: keywords become its flags, its own parser reads them, and the answer comes back as a value.

No config file changes what a call means.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import click

from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.messages import english, msg
from whichgpu.base.names import unknown_word
from whichgpu.surface.cli.frame import FLAGS, Command, ready
from whichgpu.surface.cli.main import root, usage_error
from whichgpu.surface.commands.session import Catalogs, Session
from whichgpu.surface.values import Several, refuse_list, takes_several, value_text

# Options that say how or what to print; a file of requests has a verb of its own.
PRINTING = (*FLAGS, "format", "columns", "config", "lang", "help", "per", "hints", "live", "requests")

_catalogs = Catalogs()


def asked(name: str, arguments: Sequence[object] = (), options: Mapping[str, Any] | None = None) -> Any:
    """The answer of a command (`gpus`, `catalog history`) to arguments and options by their names; None asks nothing."""
    found = command(name)
    session = Session(english(), format="json", out=io.StringIO(), err=io.StringIO(), catalogs=_catalogs)
    session.command = tuple(name.split())
    try:
        argv = [*_flags(found, options or {}), "--", *_words(found, arguments)]
        with _context(found, argv, session) as context:
            values = dict(context.params)
            ready(session, values)
            session.format = "json"  # all of an answer is wanted, and no words on the way
            return found.ask(session, **values)
    except click.UsageError as problem:
        raise noted(usage_error(problem, session)) from None
    except WhichGpuError as problem:
        raise noted(problem) from problem.__cause__


def noted(error: WhichGpuError) -> WhichGpuError:
    """With its hint where a traceback shows it."""
    if error.hint is not None:
        error.add_note(f"{english().text('word.hint')}: {english().render(error.hint)}")
    return error


@cache
def command(name: str) -> Command:
    """The command of that name."""
    above = click.Context(root, info_name="whichgpu")
    found: click.Command | None = root
    for word in name.split():
        assert isinstance(found, click.Group)
        found = found.get_command(above, word)
    assert isinstance(found, Command)
    return found


def options_of(found: Command) -> dict[str, click.Option]:
    """A command's options by every name a keyword may have: its own and its flags'."""
    known: dict[str, click.Option] = {}
    for param in found.params:
        if isinstance(param, click.Option) and param.name not in PRINTING:
            flags = [flag.lstrip("-").replace("-", "_") for flag in param.opts if flag.startswith("--")]
            known |= dict.fromkeys([param.name or "", *flags], param)
    return known


def _context(found: Command, argv: list[str], session: Session) -> click.Context:
    above = click.Context(root, info_name="whichgpu", obj=session)
    for word in session.command[:-1]:
        above = click.Context(click.Group(word), info_name=word, parent=above)
    return found.make_context(session.command[-1], argv, parent=above)


def _flags(found: Command, options: Mapping[str, Any]) -> list[str]:
    known, given, argv = options_of(found), set[str](), list[str]()
    for name, value in options.items():
        param = known.get(name)
        if param is None:
            raise unknown_word("field", name, sorted(known))
        if value is None:
            continue
        if param.name in given:
            raise UsageError("given-twice", msg("error.given-twice", name=name), msg("hint.given-twice"))
        given.add(param.name or "")
        argv += _flag(param, value)
    return argv


def _flag(param: click.Option, value: Any) -> list[str]:
    flag, name = max(param.opts, key=len), param.name or ""
    refuse_list(param, value)
    if not param.is_flag:
        if isinstance(value, Several) and not value:
            return []  # of a list, none means not given
        many = param.multiple and isinstance(value, list | tuple)
        return [f"{flag}={value_text(name, one, param.metavar or '')}" for one in (value if many else (value,))]
    if not isinstance(value, bool):
        wants = msg("hint.bad-field", name=name, wants=msg("wants.flag"))
        raise UsageError("bad-field", msg("error.bad-field", name=name, value=repr(value)), wants)
    return [flag] if value else param.secondary_opts[-1:]


def _words(found: Command, arguments: Sequence[object]) -> list[str]:
    """Arguments as words; a list is as many of them where a command takes several."""
    places = [param for param in found.params if isinstance(param, click.Argument)]
    words: list[str] = []
    for place, value in enumerate(arguments):
        param = places[min(place, len(places) - 1)]
        refuse_list(param, value)
        each = _flat(value) if takes_several(param) else (value,)
        words += [value_text("model" if isinstance(one, Mapping) else "", one) for one in each if one is not None]
    return words


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, Several):
        for one in value:
            yield from _flat(one)
    else:
        yield value
