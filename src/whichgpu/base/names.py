"""Names as people type them: compared loosely, suggested when wrong, counted as in `8xA100`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.messages import msg

MAX_NAMED_COUNT = 999_999  # of a GPU, in one name
_WORD = re.compile(r"(?:[^\W_]|\.)+")  # letters of any script: what is left of "Mỹ" without its mark is another name
_COUNT_FIRST = re.compile(r"([0-9]{1,18})\s*[x×*]\s*(.+)", re.IGNORECASE)


@lru_cache(maxsize=65536)
def squash(name: str) -> str:
    """A name without case, blanks and punctuation.

    >>> squash("NVIDIA A100-SXM4-80GB")
    'nvidiaa100sxm480gb'
    """
    return re.sub(r"[^a-z0-9+]", "", name.lower())


def unaccented(name: str) -> str:
    """A name without the marks on its letters.

    >>> unaccented("São Paulo"), unaccented("Hà Nội")
    ('Sao Paulo', 'Ha Noi')
    """
    return "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))


def normalized_name(name: str) -> str:
    """A name as it is compared in scripts of their own: composed (macOS types 한 as ㅎ, ㅏ, ㄴ), without case and outer blanks.

    >>> normalized_name(unicodedata.normalize("NFD", " 한국 ")) == "한국"
    True
    """
    return " ".join(unicodedata.normalize("NFC", name).split()).casefold()


def words(name: str) -> tuple[str, ...]:
    """Its words in small letters.

    >>> words("RTX 3080 Ti"), words("A100-SXM-80GB")
    (('rtx', '3080', 'ti'), ('a100', 'sxm', '80gb'))
    """
    return tuple(_WORD.findall(name.lower()))


def split_count(name: str) -> tuple[int | None, str]:
    """The count and the name of `8xA100`, `8 x A100`, `A100:8`; None where no count is given.

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


def unknown_word(what: str, word: str, known: Sequence[str]) -> UnknownName:
    """The error for a word that is none of a list: the nearest ones, or the whole list where nothing is near."""
    near = nearest(word, known)
    hint = msg("hint.nearest", choices=near) if near else msg("hint.choices", choices=tuple(known))
    return UnknownName(f"unknown-{what}", msg(f"error.unknown-{what}", name=word), hint, near or tuple(known))


def nearest(name: str, known: Iterable[str], most: int = 5, least: float = 0.55) -> tuple[str, ...]:
    """Known names most like a wrong one, best first.

    >>> nearest("H10 SXM", ["H100 SXM", "H100 PCIe", "T4"], most=1)
    ('H100 SXM',)
    """
    wanted = squash(name)[:80]
    if not wanted:
        return ()
    scored = []
    for candidate in dict.fromkeys(known):
        other = squash(candidate)
        score = SequenceMatcher(None, wanted, other, autojunk=False).ratio()
        if other.startswith(wanted) or wanted.startswith(other):
            score = max(score, 0.9)
        if score >= least:
            scored.append((-score, candidate))
    return tuple(candidate for _, candidate in sorted(scored)[:most])
