"""Names as people type them: normalisation, nearest matches, and GPU counts as in `8xA100`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.messages import msg

MAX_NAMED_COUNT = 999_999  # Largest number of GPUs in a name such as `8xA100`; a larger one is assumed to be a typing error.
_WORD = re.compile(r"(?:[^\W_]|\.)+")  # Accented letters are kept, since a word without its accents (Mỹ, My) may be another name.
MIN_SIMILARITY = 0.55  # SequenceMatcher ratio from which a name is suggested (set by judgement).
_COUNT_FIRST = re.compile(r"([0-9]{1,18})\s*[x×*]\s*(.+)", re.IGNORECASE)


@lru_cache(maxsize=65536)
def squash(name: str) -> str:
    """Return a name without case, spaces and punctuation.

    >>> squash("NVIDIA A100-SXM4-80GB")
    'nvidiaa100sxm480gb'
    """
    return re.sub(r"[^a-z0-9+]", "", name.lower())


def unaccented(name: str) -> str:
    """Return a name with accented letters replaced by plain ones.

    >>> unaccented("São Paulo"), unaccented("Hà Nội")
    ('Sao Paulo', 'Ha Noi')
    """
    return "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))


def normalized_name(name: str) -> str:
    """Return a name in any script for comparison: NFC (macOS types 한 as ㅎ, ㅏ, ㄴ), casefolded, spaces collapsed.

    >>> normalized_name(unicodedata.normalize("NFD", " 한국 ")) == "한국"
    True
    """
    return " ".join(unicodedata.normalize("NFC", name).split()).casefold()


def words(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case.

    >>> words("RTX 3080 Ti"), words("A100-SXM-80GB")
    (('rtx', '3080', 'ti'), ('a100', 'sxm', '80gb'))
    """
    return tuple(_WORD.findall(name.lower()))


def split_count(name: str) -> tuple[int | None, str]:
    """Split `8xA100`, `8 x A100` or `A100:8` into count and name; the count is None if there is none.

    >>> split_count("8xA100-SXM-80GB"), split_count("T4:2"), split_count("T4")
    ((8, 'A100-SXM-80GB'), (2, 'T4'), (None, 'T4'))
    """
    text = name.strip()
    if match := _COUNT_FIRST.fullmatch(text):
        return _count(match[1], text), match[2]
    bare, colon, count = text.rpartition(":")
    if colon and bare.strip() and re.fullmatch(r"[0-9]{1,18}", count.strip()):
        return _count(count.strip(), text), bare.strip()
    return None, text


def _count(digits: str, text: str) -> int:
    if int(digits) > MAX_NAMED_COUNT:
        message = msg("error.span-too-large", text=text[:80])
        raise UsageError("bad-field", message, msg("hint.span-too-large", most=f"{MAX_NAMED_COUNT:,}"))
    return int(digits)


def unknown_word(what: str, word: str, valid_words: Sequence[str]) -> UnknownName:
    """Return the error for a `word` not among `valid_words` of a field `what`, with the nearest words or all as choices."""
    near = nearest(word, valid_words)
    hint = msg("hint.nearest", choices=near) if near else msg("hint.choices", choices=tuple(valid_words))
    return UnknownName(f"unknown-{what}", msg(f"error.unknown-{what}", name=word), hint, near or tuple(valid_words))


def nearest(name: str, names: Iterable[str], max_count: int = 5) -> tuple[str, ...]:
    """Return the known names most similar to a wrong one, best first.

    >>> nearest("H10 SXM", ["H100 SXM", "H100 PCIe", "T4"], max_count=1)
    ('H100 SXM',)
    """
    squashed = squash(name)[:80]
    if not squashed:
        return ()
    from difflib import SequenceMatcher

    scored = []
    for candidate in dict.fromkeys(names):
        other = squash(candidate)
        score = SequenceMatcher(None, squashed, other, autojunk=False).ratio()
        if other.startswith(squashed) or squashed.startswith(other):
            score = max(score, 0.9)
        if score >= MIN_SIMILARITY:
            scored.append((-score, candidate))
    return tuple(candidate for _, candidate in sorted(scored)[:max_count])
