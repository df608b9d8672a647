"""Reads the flags that `to_argv` writes, as the command line does."""

from __future__ import annotations

from collections.abc import Sequence

from whichgpu.workload.spelling import ParsedWorkload, from_texts


def read_flags(words: Sequence[str]) -> ParsedWorkload:
    texts: dict[str, str | bool] = {}
    for word in words:
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        texts[name if equals else name.removeprefix("no_")] = value if equals else not name.startswith("no_")
    return from_texts(texts)
