"""Reader of a config.json's keys with bounds; a missing or implausible value raises an error that names the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg

MAX_SIZE = 10**7  # Largest width or count accepted; no published model has a width near it.
MAX_LAYERS = 10_000  # Largest number of layers or items accepted (set by judgement).
MAX_VALUE_CHARACTERS = 40  # Characters of an invalid value that are quoted to the user.


def printable(text: str) -> str:
    """Return a text from a file, shortened and without control characters."""
    return "".join(letter for letter in text[:80] if letter.isprintable())


class Fields:
    """Reader of the keys of one (perhaps nested) config.json; missing keys have the defaults of the model type."""

    def __init__(self, config: Mapping[str, Any], name: str, prefix: str = "", defaults: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.name = name
        self.prefix = prefix
        self.defaults = defaults or {}

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, *keys: str) -> Any:
        """Return the value of the first of these keys that has one, else the model type's default, else None."""
        for source in (self.config, self.defaults):
            for key in keys:
                if source.get(key) is not None:
                    return source[key]
        return None

    def size(self, *keys: str, default: int | None = None, low: int = 1, high: int = MAX_SIZE) -> int:
        """Return a whole number from the first of these keys that is present; raise if none is and there is no default."""
        value = self.get(*keys)
        if value is None:
            if default is None:
                raise self.error(keys[0], msg("config.missing"))
            return default
        key = self._spelled(*keys)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, msg("config.not-whole", value=_shorten(value)))
        if not low <= value <= high:
            raise self.error(key, msg("config.range", value=_shorten(value), low=low, high=high))
        return value

    def heads(self, hidden: int, *keys: str, whole: str = "hidden_size") -> int:
        """Return a number of attention heads from these keys; raise if it does not divide `hidden`, the size named by `whole`."""
        heads = self.size(*keys, high=100_000)
        if hidden % heads:
            raise self.error(keys[0], msg("config.indivisible", value=heads, whole=hidden, other=whole))
        return heads

    def layers(self, *keys: str, default: int | None = None, low: int = 1) -> int:
        """Return a number of layers from the first of these config keys that is present, at least `low`."""
        return self.size(*keys, default=default, low=low, high=MAX_LAYERS)

    def sizes(
        self, key: str, low: int = 1, high: int = MAX_SIZE, min_count: int = 1, max_count: int = MAX_LAYERS
    ) -> tuple[int, ...]:
        """Return a list of whole numbers from a config key, within bounds of value and length."""
        values = self.get(key)
        if values is None:
            raise self.error(key, msg("config.missing"))
        if not isinstance(values, list | tuple) or not min_count <= len(values) <= max_count:
            raise self.error(key, msg("config.not-list", low=min_count, high=max_count))
        return tuple(Fields({key: item}, self.name, self.prefix).size(key, low=low, high=high) for item in values)

    def flag(self, *keys: str, default: bool) -> bool:
        """Return a boolean from the first of these config keys that is present, else `default`."""
        value = self.get(*keys)
        if value is None:
            return default
        if not isinstance(value, bool | int):
            raise self.error(self._spelled(*keys), msg("config.not-flag", value=_shorten(value)))
        return bool(value)

    def word(self, *keys: str, default: str = "") -> str:
        """Return a short text from the first of these config keys; any other value counts as missing."""
        value = self.get(*keys)
        return printable(value) if isinstance(value, str) else default

    def fraction(self, *keys: str, default: float = 0.0, high: int = 1) -> float:
        """Return a number from 0 to `high` from a config, such as a dropout rate or a factor of a width."""
        value = self.get(*keys)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= high:
            raise self.error(self._spelled(*keys), msg("config.range", value=_shorten(value), low=0, high=high))
        return float(value)

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of short texts from a config key; () if there is none."""
        values = self.get(key)
        if not isinstance(values, list | tuple) or len(values) > MAX_LAYERS:
            return ()
        return tuple(printable(item) for item in values if isinstance(item, str))

    def nested(self, *keys: str, defaults: Mapping[str, Any] | None = None) -> Fields | None:
        """Return a reader of a config nested in this one under one of these keys; None if it has none."""
        value = self.get(*keys)
        if not isinstance(value, Mapping):
            return None
        return Fields(value, self.name, f"{self.prefix}{self._spelled(*keys)}.", defaults)

    def error(self, key: str, why: Message) -> UsageError:
        """Return the error for an invalid key of the config, with the reason."""
        message = msg("error.bad-config", name=self.name, field=self.prefix + key, why=why)
        return UsageError("bad-config", message, msg("hint.bad-config"))

    def _spelled(self, *keys: str) -> str:
        for source in (self.config, self.defaults):
            for key in keys:
                if source.get(key) is not None:
                    return key
        return keys[0]


def _shorten(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # The text has an integer of thousands of digits or very deeply nested lists.
        return "…"
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[:MAX_VALUE_CHARACTERS] + "…"
