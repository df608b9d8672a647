"""One field of a request: how it is read, what it is called on each surface, and what its help says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from whichgpu.base.kinds import Flag, ValueKind


@dataclass(frozen=True, slots=True)
class Field:
    """A field as declared; `name` and `help` are filled in from the declaration where they are not given."""

    kind: ValueKind
    metavar: str = ""  # placeholder that says the unit or form: SIZE, TIME, MONEY, N, NAME
    help: str = ""  # message id
    example: str = ""
    aliases: tuple[str, ...] = ()  # other names of the same field that are no names in Python; see `Alias` for those that are
    argument: bool = False  # positional on the command line
    required: bool = False
    repeated: bool = False  # the flag may come again and again
    has_negative: bool = False  # the command line has a --no- flag for it, too
    flag_text: str = ""  # its flag, where it is not called as the field is
    is_local: bool = False  # names a file, folder or process of the asker's own machine: nothing a web client may say
    is_display: bool = False  # says how an answer is printed on the command line
    name: str = ""

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value on the command line."""
        return isinstance(self.kind, Flag)

    @property
    def is_list(self) -> bool:
        """Whether several values may be given."""
        return getattr(self.kind, "many", False)

    @property
    def flag(self) -> str:
        """Its flag, by its first name.

        >>> Field(Flag(), name="only_owned").flag
        '--only-owned'
        """
        return self.flag_text or flag_of(self.name)

    @property
    def flags(self) -> tuple[str, ...]:
        """Its flag and those of its other names."""
        return self.flag, *map(flag_of, self.aliases)

    @property
    def choices(self) -> tuple[str, ...]:
        """Words it may be, where there is a list of them."""
        words = getattr(self.kind, "choices", ())
        return tuple(words() if callable(words) else words)


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of a field, declared so that it is a keyword of its own in Python."""

    of: str


def flag_of(name: str) -> str:
    """The flag of a field's name."""
    return "--" + name.replace("_", "-")


@cache
def fields_of(request: type) -> Mapping[str, Field]:
    """Fields of a request by name, in the order of declaration; a function in place of a `Field` is called with the name."""
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
    """The fields of a request by every name they go by."""
    by_name = dict(fields_of(request))
    for field in fields_of(request).values():
        by_name |= dict.fromkeys(field.aliases, field)
    return by_name
