"""Reader of gettext catalogs (`.po` files) without a compile step, so that a checkout runs as it is.

A run prints a few dozen of some thousand sentences, so a catalog is split into entries and each is parsed on first use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_ENTRY = '\nmsgid "'
_PART = re.compile(r'^(?:(msgstr(?:\[\d\])?) )?"(.*)"$', re.MULTILINE)
_RULE = re.compile(r"plural=([^;]+);")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t"}


class PoCatalog(Mapping[str, tuple[str, ...]]):
    """Sentences of a gettext catalog by id, in file order; several forms if the sentence has plurals.

    >>> PoCatalog('\\nmsgid ""\\nmsgstr ""\\n\\nmsgid "word.yes"\\nmsgstr "yes"\\n')["word.yes"]
    ('yes',)
    """

    def __init__(self, text: str) -> None:
        entries = ("\n" + text).split(_ENTRY)[1:]
        self._entries = {_unescaped(id): rest for id, _, rest in (entry.partition('"\n') for entry in entries)}
        self._header = "".join(_forms(self._entries.pop("", "")))
        self._parsed: dict[str, tuple[str, ...]] = {}

    @property
    def plural(self) -> str:
        """Return the catalog's rule that chooses a plural form from a number, as a C expression."""
        rule = _RULE.search(self._header)
        return rule[1] if rule else "0"

    def __getitem__(self, id: str) -> tuple[str, ...]:
        if id not in self._parsed:
            self._parsed[id] = _forms(self._entries[id])
        return self._parsed[id]

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text) if "\\" in text else text


def _forms(entry: str) -> tuple[str, ...]:
    """Return the plural forms of one gettext entry; a line without a keyword continues the line before it."""
    forms: list[str] = []
    for keyword, quoted in _PART.findall(entry):
        part = _unescaped(quoted)
        if keyword:
            forms.append(part)
        elif forms:
            forms[-1] += part
    return tuple(forms)
