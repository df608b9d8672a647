"""A value of Python or JSON as the command line spells it: one rule for both, and for which options may be given several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from decimal import Decimal, localcontext
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import click

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.money import Money
from whichgpu.surface.cli.frame import Words
from whichgpu.workload.kinds import KINDS, Refused

# What a bare number of an option is measured in: the base unit. Others, as money, need theirs.
UNITS = {
    "s": "max_latency deadline duration startup checkpoint_every max_age latency time_limit horizon lasting".split(),
    "B": "min_memory min_ram disk egress".split(),
    "B/s": ["min_bandwidth"],
    "/s": ["rate"],
}
_UNIT = {name: unit for unit, names in UNITS.items() for name in names}
LISTS = ("NAMES", "FEATURES", "GPUS", "N,N,…")  # metavars of options that take several with commas between
SPAN = "N[..M]"  # of one that takes a range, which a pair of numbers is too
MODELS = ("model", "what")  # a mapping is a config.json
MAPPED = (*MODELS, "parallel", "exchange_rate", "price", "quota", "in_histogram", "out_histogram")
LARGEST = 10**24  # beyond, the command says what is wrong with it
PLACES = 12  # after the point, of a number with a unit
DIGITS = 40  # in all, of any number below the largest
Several = (list, tuple, set, frozenset)


def takes_several(param: click.Parameter) -> bool:
    """Whether an option or argument may be given a list."""
    listed = any(word in (param.metavar or "") for word in LISTS)
    words = isinstance(param.type, Words) and param.type.many
    return listed or words or param.nargs == -1 or bool(getattr(param, "multiple", False))


def refuse_list(param: click.Parameter, value: object) -> None:
    """A list where one value is meant is an error, however few it holds."""
    if isinstance(value, Several) and not takes_several(param) and not is_span(param.metavar or "", value):
        raise no_list(param.name or "", value)


def is_span(metavar: str, value: object) -> bool:
    """Whether a value is the two ends of a range, where a range may be given."""
    return metavar == SPAN and isinstance(value, list | tuple) and len(value) == 2


def no_list(name: str, value: object) -> UsageError:
    """The error for a list or an object where one value is meant."""
    text = repr(value)
    shown = text if len(text) <= 60 else text[:57] + "…"
    hint = msg("hint.bad-field", name=name, wants=msg("wants.one-value"))
    return UsageError("bad-field", msg("error.bad-field", name=name, value=shown), hint)


def value_text(name: str, value: Any, metavar: str = "") -> str:
    """A value as the command line spells it; numbers of an option with a unit are in its base unit."""
    value = plain(value)
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
    if isinstance(value, Several):
        between = ".." if is_span(metavar, value) else ","
        return between.join(_item(name, one) for one in value)
    if isinstance(value, int | float | Decimal):
        return _number(name, value)
    return str(value)  # a path


def plain(value: Any) -> Any:
    """A number of whatever kind as Python's own: NumPy's scalars and arrays of one, fractions; all else as it is.

    >>> from fractions import Fraction
    >>> plain(Fraction(5, 2)), plain(Decimal("0.05")), plain("5/s")
    (2.5, Decimal('0.05'), '5/s')
    """
    if isinstance(value, bool | str | Decimal) or type(value) in (int, float):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if isinstance(value, Fraction) else float(str(value))  # a float32's own digits, no more
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return plain(value.item())
    return value


def _in_json(value: Any) -> Any:
    """What JSON has no word for: a number of another kind, or an error."""
    found = plain(value)
    if isinstance(found, Decimal) and found.is_finite():
        return int(found) if found == found.to_integral_value() else float(found)
    if found is value:
        raise TypeError(type(value).__name__)
    return found


def config_text(value: Mapping[Any, Any]) -> str:
    """A config as JSON; an error of ours where it holds what JSON cannot."""
    try:
        return json.dumps(value, default=_in_json)
    except (TypeError, ValueError, RecursionError) as problem:
        what = str(problem)[:80] if isinstance(problem, TypeError) else type(problem).__name__
        raise UsageError("bad-config", msg("error.config-beyond-json", what=what), msg("hint.config-beyond-json")) from problem


def _mapped(name: str, value: Mapping[Any, Any]) -> str:
    """`{"KRW": 1190}` is KRW=1190, a histogram's `{512: 0.3}` is 512:0.3, a model's config is JSON."""
    if name not in MAPPED:
        raise no_list(name, value)
    if name in MODELS:
        return config_text(value)
    sign = ":" if name.endswith("histogram") else "="
    return ",".join(f"{key}{sign}{_item(name, item)}" for key, item in value.items())


def _item(name: str, item: Any) -> str:
    """What a list or an object holds: no lists and objects again."""
    if isinstance(item, (*Several, Mapping)):
        raise no_list(name, item)
    return value_text("", item)


def _number(name: str, value: float | Decimal) -> str:
    kind = KINDS.get(name)
    if kind is not None:
        try:
            return kind.write_text(kind.read(float(value) if isinstance(value, Decimal) else value))
        except (Refused, ValueError):  # or a number that signals, and is none
            pass  # the command says what is wrong with it
    finite = not isinstance(value, Decimal) or value.is_finite()
    if name not in _UNIT or not finite or not -LARGEST < value < LARGEST:
        return str(value)
    with localcontext(prec=DIGITS):
        exact = round(Decimal(repr(value)) if isinstance(value, float) else Decimal(value), PLACES)
    return f"{exact:f}".rstrip("0").rstrip(".") + _UNIT[name] if "." in f"{exact:f}" else f"{exact:f}{_UNIT[name]}"
