"""A fuzz target: a parser of bytes, its random inputs, and the tokens that mutations insert."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from hypothesis.strategies import SearchStrategy

from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Message, english

Feed = Callable[[bytes], Hashable]


class Rude(Exception):
    """A refusal that is ours in shape but not in manner: without a hint, or of a fault of our own."""


@dataclass(frozen=True)
class Target:
    """`feed` parses one input and returns its outcome, so that inputs with new outcomes are saved; a refusal in the
    project's own errors is as good as an answer."""

    name: str
    feed: Feed
    draw: SearchStrategy[bytes]
    words: tuple[bytes, ...] = ()
    seconds: float = 2.0  # of one input


def refusal(error: WhichGpuError) -> Hashable:
    """What kind of refusal it is; `Rude` where it is none that a user should meet."""
    if error.kind == "internal":
        raise Rude(str(error)) from error
    if error.exit_code == 2 and error.hint is None:
        raise Rude(f"no hint: {error}") from error
    for message in (error.message, error.hint):
        if message is not None:
            english().render(message)
    return (error.kind, *_ids(error.message))


def each(readers: Iterable[Callable[[str], object]]) -> Feed:
    """Feed texts to several parsers, one after another."""
    every = tuple(readers)

    def feed(data: bytes) -> Hashable:
        text = data.decode("utf-8", "surrogateescape" if data[:1] == b"\xff" else "replace")
        return tuple(_outcome(reader, text) for reader in every)

    return feed


def _outcome(reader: Callable[[str], object], text: str) -> Hashable:
    try:
        reader(text)
    except WhichGpuError as error:
        return refusal(error)
    return True


def _ids(message: Message) -> tuple[str, ...]:
    inside = [value for value in message.values.values() if isinstance(value, Message)]
    return (message.id, *(id for one in inside for id in _ids(one)))
