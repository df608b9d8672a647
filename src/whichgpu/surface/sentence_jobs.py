"""Sentences that ask about two jobs, such as chatting and making pictures, as one sentence for each job."""

from __future__ import annotations

import re

# Words of a job, by its kind, at the beginning of a phrase: a verb, or a verb with what it makes.
_PICTURES = r"(?:images?|pictures?|photos?|videos?|sdxl|flux|stable[ -]diffusion|comfyui)\b"
_VERBS = {
    "chat": r"(?:chat\w*|talk|serve|host|run (?:an? )?(?:llms?|language models?|chat\w*|assistant))\b",
    "images": rf"(?:make|making|generat\w+|creat\w+|draw|render\w*|produce|run|do) (?:[\w.-]+ ){{0,2}}{_PICTURES}|draw\b",
    "finetune": r"fine[ -]?tun(?:e|ing)\b",
    "train": r"(?:pre-?)?train(?:ing)?\b",
    "transcribe": r"transcri\w+",
    "embed": r"embed(?:ding)?\b",
}
_AND = re.compile(r"[ ,]+(?:and(?: also| then)?|then|plus|as well as|&)[ ,]+(?:to )?")
# Conditions after the last job that hold for all of them.
_SHARED = re.compile(r"(?:,|\b(?:at home|under|below|within|less than|up to|for (?=[$€£₩\d]))).*")


def separate_jobs(text: str) -> tuple[str, ...]:
    """Return a sentence for each of the two jobs that a text asks about; the text alone if it asks about one.

    >>> separate_jobs("a card to chat with a 14b and run flux at home, 800 usd")
    ('a card to chat with a 14b at home, 800 usd', 'a card to run flux at home, 800 usd')
    """
    for conjunction in _AND.finditer(text):
        first, second = text[: conjunction.start()], text[conjunction.end() :]
        jobs = [(match.start(), job) for job, verb in _VERBS.items() for match in re.finditer(rf"\b(?:{verb})", first)]
        later = next((job for job, verb in _VERBS.items() if re.match(verb, second)), None)
        if not jobs or later is None or later in {job for _, job in jobs}:
            continue
        beginning, work = first[: min(jobs)[0]] or "which gpu to ", first[min(jobs)[0] :]
        conditions = _SHARED.search(second)
        conditions_text = conditions[0] if conditions else ""
        alone = second[: len(second) - len(conditions_text)].rstrip()
        end = conditions_text if conditions_text.startswith(",") else f" {conditions_text}".rstrip()
        return f"{beginning}{work}{end}", f"{beginning}{alone}{end}"
    return (text,)
