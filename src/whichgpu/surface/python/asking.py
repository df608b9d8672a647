"""A command asked from Python: keywords become its flags, its own parser reads them, and the answer comes back as a value.

No config file changes what a call means.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

import click

from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.messages import english, msg
from whichgpu.base.money import Money
from whichgpu.base.names import unknown_word
from whichgpu.surface.cli.frame import FLAGS, Command, ready
from whichgpu.surface.cli.main import root, usage_error
from whichgpu.surface.cli.session import Catalogs, Session
from whichgpu.workload.kinds import KINDS, Refused

# Options that say how or what to print; a file of requests has a verb of its own.
PRINTING = (*FLAGS, "format", "columns", "config", "lang", "help", "per", "hints", "live", "requests")
# What a bare number of an option is measured in: the base unit. Others, as money, need theirs.
UNITS = {
    "s": "max_latency deadline duration startup checkpoint_every max_age latency time_limit horizon lasting".split(),
    "B": "min_memory min_ram disk egress".split(),
    "B/s": ["min_bandwidth"],
    "/s": ["rate"],
}
_UNIT = {name: unit for unit, names in UNITS.items() for name in names}
SPANS = ("gpus",)  # a pair of numbers is a range
LARGEST = 10**24  # beyond, the command says what is wrong with it
PLACES = 12  # after the point, of a number with a unit

_catalogs = Catalogs()


def asked(name: str, arguments: Sequence[object] = (), options: Mapping[str, Any] | None = None) -> Any:
    """The answer of a command (`gpus`, `catalog history`) to arguments and options by their names; None asks nothing."""
    found = command(name)
    session = Session(english(), format="json", out=io.StringIO(), err=io.StringIO(), catalogs=_catalogs)
    session.command = tuple(name.split())
    try:
        argv = [*_flags(found, options or {}), "--", *_words(arguments)]
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
    flag = max(param.opts, key=len)
    if not param.is_flag:
        many = param.multiple and isinstance(value, list | tuple)
        return [f"{flag}={_text(param.name or '', one)}" for one in (value if many else (value,))]
    if not isinstance(value, bool):
        wants = msg("hint.bad-field", name=param.name, wants=msg("wants.flag"))
        raise UsageError("bad-field", msg("error.bad-field", name=param.name, value=repr(value)), wants)
    return [flag] if value else param.secondary_opts[-1:]


def _words(arguments: Sequence[object]) -> list[str]:
    """Arguments as words; a list is as many of them."""
    words: list[str] = []
    for value in arguments:
        if isinstance(value, list | tuple):
            words += _words(value)
        elif value is not None:
            words.append(_text("model" if isinstance(value, Mapping) else "", value))
    return words


def _text(name: str, value: Any) -> str:
    """A value as the command line spells it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()[:10]
    if isinstance(value, Money):
        return f"{value.amount:f}{value.currency.lower()}"
    if isinstance(value, Mapping):
        return _mapped(name, value)
    if name in SPANS and isinstance(value, tuple) and len(value) == 2:
        return "..".join(_text("", one) for one in value)
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(_text("", one) for one in value)
    if isinstance(value, int | float | Decimal):
        return _number(name, value)
    return str(value)  # a path


def _mapped(name: str, value: Mapping[Any, Any]) -> str:
    """`{"KRW": 1190}` is KRW=1190, a histogram's `{512: 0.3}` is 512:0.3, a model's config is JSON."""
    if name == "model":
        return json.dumps(value)
    sign = ":" if name.endswith("histogram") else "="
    return ",".join(f"{key}{sign}{_text('', item)}" for key, item in value.items())


def _number(name: str, value: float | Decimal) -> str:
    kind = KINDS.get(name)
    if kind is not None and name not in SPANS:
        try:
            return kind.write_text(kind.read(value))
        except Refused:
            pass  # the command says what is wrong with it
    if name not in _UNIT or not -LARGEST < value < LARGEST:
        return str(value)
    exact = round(Decimal(repr(value)) if isinstance(value, float) else Decimal(value), PLACES)
    return f"{exact:f}".rstrip("0").rstrip(".") + _UNIT[name] if "." in f"{exact:f}" else f"{exact:f}{_UNIT[name]}"
