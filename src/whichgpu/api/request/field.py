"""One field of a request: how it is read, its name on each surface, and its help message."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec
from msgspec.structs import replace

from whichgpu.base.kinds import Flag, ValueKind


class Field(msgspec.Struct, frozen=True):
    """A request field; without `name` or `help`, `fields_of` fills them in from the name under which it is declared."""

    kind: ValueKind
    metavar: str = ""  # placeholder of the value in help texts: SIZE, TIME, MONEY, N, NAME
    help: str = ""  # id of the message with the help text
    example: str = ""
    aliases: tuple[str, ...] = ()  # other names for flags and URLs, but not for Python keywords; see `Alias` for those
    argument: bool = False  # True if it is positional on the command line
    required: bool = False
    has_negative: bool = False  # The command line also has a --no- flag for it.
    flag_text: str = ""  # the flag, if it differs from the field's name
    is_local: bool = False  # True if it names a local file, folder or process, which a web client may not do.
    is_display: bool = False  # True if it only changes how the command line displays an answer.
    name: str = ""

    @property
    def is_switch(self) -> bool:
        """Return whether the field is a yes-or-no switch, which takes no value on the command line."""
        return isinstance(self.kind, Flag)

    @property
    def is_list(self) -> bool:
        """Return whether the field takes several values."""
        return getattr(self.kind, "many", False)

    @property
    def flag(self) -> str:
        """Return the field's command-line flag, made from its main name.

        >>> Field(Flag(), name="only_owned").flag
        '--only-owned'
        """
        return self.flag_text or flag_of(self.name)

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the field's command-line flag and those of its other names."""
        return self.flag, *map(flag_of, self.aliases)

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the words that the field accepts; empty unless they are a fixed list."""
        words = getattr(self.kind, "choices", ())
        return tuple(words() if callable(words) else words)


class Alias(msgspec.Struct, frozen=True):
    """Another name of the field `of`, declared so that Python callers can use it as a keyword too."""

    of: str


def flag_of(name: str) -> str:
    """Return the command-line flag for a field's name: `--` and the name with dashes."""
    return "--" + name.replace("_", "-")


@cache
def fields_of(request: type) -> Mapping[str, Field]:
    """Return the fields of a request type by name; a function in an annotation is called with the name to make the `Field`."""
    fields: dict[str, Field] = {}
    aliases: dict[str, list[str]] = {}
    for name, hint in request.__annotations__.items():
        match getattr(hint, "__metadata__", ()):
            case (Alias(of=field),):
                aliases.setdefault(field, []).append(name)
            case (Field() as declared,):
                fields[name] = declared
            case (declare,) if callable(declare):
                fields[name] = declare(name)
            case _:
                raise TypeError(f"{request.__name__}.{name} has no Field")
    return {
        name: replace(
            field,
            name=name,
            help=field.help or f"option.{name.replace('_', '-')}",
            aliases=(*field.aliases, *aliases.get(name, ())),
        )
        for name, field in fields.items()
    }


@cache
def names_of(request: type) -> Mapping[str, Field]:
    """Return the fields of a request type by each of their names, aliases included."""
    by_name = dict(fields_of(request))
    for field in fields_of(request).values():
        by_name |= dict.fromkeys(field.aliases, field)
    return by_name
