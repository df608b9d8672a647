"""A plain sentence on the command line as the nearest command."""

from __future__ import annotations

from collections.abc import Sequence

from whichgpu.catalog.store import Catalog
from whichgpu.surface.sentence_question import question_of_sentence

SWITCHES = ("buy", "lora", "qlora")  # Fields of a question whose flag has no value.


def command_of_sentence(words: Sequence[str], catalog: Catalog) -> list[str] | None:
    """Return the arguments of the command nearest to a sentence; None if the words are no question about GPUs.

    >>> command_of_sentence("which gpu for stable diffusion under 800 dollars".split(), Catalog())
    ['recommend', 'images', 'stable-diffusion-xl', '--buy', '--budget=800usd']
    """
    flags = [word for word in words if word.startswith("-")]
    fields = question_of_sentence(" ".join(word for word in words if not word.startswith("-")), catalog)
    if fields is None:
        return None
    arguments = [fields.pop(name) for name in ("task", "model") if name in fields]
    options = [f"--{name}" if name in SWITCHES else f"--{name}={value}" for name, value in fields.items()]
    return ["recommend", *arguments, *options, *flags]
