"""A plain sentence on the command line as the nearest command."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import join

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.store import Catalog
from whichgpu.surface.sentence_question import question_of_sentence

SWITCHES = ("buy", "lora", "qlora")  # Fields of a question whose flag has no value.
ARGUMENTS = {"recommend": ("task", "model"), "fit": ("model",), "compare": ("name",), "offers": ()}  # Without a flag.
SHORT_FLAGS = {"seq_in": "in", "seq_out": "out", "ttft_max": "ttft", "tpot_max": "tpot"}


def command_of_sentence(words: Sequence[str], catalog: Catalog) -> tuple[list[str], tuple[str, ...]] | None:
    """Return the arguments of the command nearest to a sentence and the words ignored; None if it is no question about GPUs.

    Flags at the end, with their values, are passed on.

    >>> command_of_sentence("which gpu for stable diffusion under 800 dollars".split(), Catalog())
    (['recommend', 'images', 'stable-diffusion-xl', '--buy', '--budget=800usd'], ())
    """
    end = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    question, flags = question_of_sentence(" ".join(words[:end]), catalog), words[end:]
    if question is None:
        return None
    names = [name for name in ARGUMENTS[question.command] if name in question.fields]
    options = [_option(name, value) for name, value in question.fields.items() if name not in names]
    command = [question.command, *(question.fields[name] for name in names), *options, *flags]
    if question.unread:
        hint = msg("hint.read-so-far", command=join(["whichgpu", *command]))
        raise UsageError("unread-quantity", msg("error.unread-quantity", words=", ".join(question.unread)), hint)
    return command, question.ignored


def _option(name: str, value: str) -> str:
    flag = f"--{SHORT_FLAGS.get(name, name).replace('_', '-')}"
    return flag if name in SWITCHES else f"{flag}={value}"
