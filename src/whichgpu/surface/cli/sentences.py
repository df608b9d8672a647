"""A plain sentence on the command line as the nearest command."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from shlex import join

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.store import Catalog
from whichgpu.surface.sentence_question import question_of_sentence
from whichgpu.workload.models import built_in, built_in_member
from whichgpu.workload.tasks import TASK_OF_WORD, TASKS

MIN_SIMILARITY = 0.75  # difflib's ratio from which a word is a mistyped command (set by judgement)
QUESTION_TASKS = (*TASKS, *TASK_OF_WORD)
SWITCHES = ("buy", "lora", "qlora")  # Fields of a question whose flag has no value.
ARGUMENTS = {  # Without a flag.
    "recommend": ("task", "model"), "estimate": ("task", "model"), "fit": ("model",), "compare": ("name",), "offers": (),
    "models": (), "plan": ("model",),
}  # fmt: skip
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


def corrected_command(args: Sequence[str], commands: Sequence[str], catalog: Catalog) -> list[str] | None:
    """Return the arguments of a mistyped command and task with the nearest names; None unless a task follows the first word.

    >>> corrected_command(["recomend", "serve", "lama-3.1-8b", "--rate", "2/s"], ["recommend"], Catalog())
    ['recommend', 'serve', 'llama-3.1-8b', '--rate', '2/s']
    """
    near = get_close_matches(args[0].lower(), commands, 1, MIN_SIMILARITY)
    if not near or len(args) < 2 or args[1] not in QUESTION_TASKS:
        return None
    model = list(args[2:3])
    if model and not model[0].startswith("-") and not (built_in(model[0], catalog) or built_in_member(model[0], catalog)):
        model = get_close_matches(model[0].lower(), [name for one in catalog.models for name in one.names], 1) or model
    return [near[0], args[1], *model, *args[3:]]
