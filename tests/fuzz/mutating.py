"""Inputs like those of a corpus, changed here and there: bytes, numbers, words, lines, pieces of one another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

MAX_BYTES = 1 << 16
NUMBERS = [
    str(number).encode()
    for number in (
        0,
        1,
        -1,
        2,
        7,
        255,
        65536,
        2**31,
        2**32,
        2**53 + 1,
        2**63,
        2**64,
        10**18,
        10**30,
        -(10**30),
        0.5,
        1e-320,
        1e308,
    )
] + [b"nan", b"inf", b"-0", b"1e400", b"1e999999999", b"9" * 400, b"0x10", b"1_000", b"\xef\xbc\x91", b"\xd9\xa3"]
ODD = [
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"\xf0\x9f\x98\x80",
    b"\x1b[31m",
    b"\r",
    b"\n",
    b"'",
    b'"',
    b"\\",
    b"%",
    b"{0}",
    b"{}",
    b"[]",
    b"null",
    b"true",
    b"../",
    b"/dev/zero",
    b"[" * 2000,
    b'{"a":' * 500,
    b" " * 300,
    b",",
    b";",
    b"=",
    b":",
    b"&",
    b"*",
]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def mutated(random: Random, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One of the pool, changed a few times."""
    data = random.choice(pool)
    for _ in range(1 + min(int(random.expovariate(0.5)), 12)):
        data = random.choice(_WAYS)(random, data, pool, words)[:MAX_BYTES]
    return data


def _flip(random: Random, data: bytes, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    if not data:
        return bytes([random.randrange(256)])
    changed = bytearray(data)
    place = random.randrange(len(data))
    changed[place] = random.choice((changed[place] ^ (1 << random.randrange(8)), random.randrange(256), 0, 255))
    return bytes(changed)


def _cut(random: Random, data: bytes, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    start = random.randint(0, len(data))
    return data[:start] + data[start + int(random.expovariate(1 / 8)) :] if random.random() < 0.8 else data[:start]


def _put(random: Random, data: bytes, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    place = random.randint(0, len(data))
    piece = random.choice(random.choice([list(words) or ODD, NUMBERS, ODD]))
    return data[:place] + piece + data[place + random.choice((0, len(piece))) :]


def _number(random: Random, data: bytes, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    matches = list(_NUMBER.finditer(data))
    if not matches:
        return _put(random, data, pool, words)
    match = random.choice(matches)
    return data[: match.start()] + random.choice(NUMBERS) + data[match.end() :]


def _again(random: Random, data: bytes, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """A piece said more than once: a line, some bytes."""
    if random.random() < 0.5 and b"\n" in data:
        lines = data.split(b"\n")
        place = random.randrange(len(lines))
        return b"\n".join([*lines[:place], *[lines[place]] * random.choice((0, 2, 3, 50)), *lines[place + 1 :]])
    start = random.randint(0, len(data))
    piece = data[start : start + int(random.expovariate(1 / 16))]
    return data[:start] + piece * random.choice((2, 3, 100)) + data[start:]


def _joined(random: Random, data: bytes, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    other = random.choice(pool)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


_WAYS = (_flip, _flip, _cut, _put, _put, _number, _number, _again, _joined)
