"""A plain sentence such as "which gpu for stable diffusion under 800 dollars" as the nearest command, by rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import built_in_member

MIN_WORDS = 3  # Fewer words are a mistyped command, not a sentence.
ABOUT_GPUS = re.compile(r"\b(gpus?|graphics|cards?|hardware|machine|rent|buy|run|train|fine-?tun\w*|serve|chat)\b")
# The first pattern that a sentence has decides its task.
TASKS = (
    (re.compile(r"\b(fine-?tun\w*|q?lora)\b"), "finetune"),
    (re.compile(r"\b(pre-?)?train(ing)?\b"), "train"),
    (re.compile(r"\b(images?|pictures?|stable[ -]diffusion|sdxl|flux|draw\w*)\b"), "images"),
    (re.compile(r"\b(batch|offline|prompts)\b"), "batch"),
    (re.compile(r"\b(serv(e|ing|ice)|api|requests?|team|people|users|employees)\b"), "serve"),
    (re.compile(r"\b(chat\w*|llms?|inference|talk|assistant|language models?|run)\b"), "chat"),
)
CURRENCIES = {
    "$": "usd",
    "dollar": "usd",
    "usd": "usd",
    "€": "eur",
    "euro": "eur",
    "eur": "eur",
    "£": "gbp",
    "gbp": "gbp",
    "pound": "gbp",
}
MONEY = re.compile(
    r"(?P<sign>[$€£])?\s?(?P<amount>\d[\d,.]*)\s?(?P<thousand>k\b)?\s?(?P<currency>dollars?|usd|euros?|eur|pounds?|gbp|[$€£])?"
    r"(\s?(/|an?|per)\s?(?P<per>hour|h|month)\b)?"
)
PEOPLE = re.compile(r"\b(\d+) (people|users|persons|employees|colleagues)\b")
RATE = re.compile(r"\b(\d+(?:\.\d+)?) ?(?:requests?|req)(?: ?/ ?| a | per )s(?:ec(?:ond)?)?\b")
DEADLINE = re.compile(r"\b(?:in|within) (\d+(?:\.\d+)?) ?(h|hours?|d|days?)\b")
SIZE = re.compile(r"\b\d+(?:\.\d+)?b\b")
OWNING = re.compile(r"\b(buy|purchase|home|desktop|cards?)\b")
PICTURES = "stable-diffusion-xl"  # The model of a question about pictures that names none.


def command_of_sentence(words: Sequence[str], catalog: Catalog) -> list[str] | None:
    """Return the arguments of the command nearest to a sentence; None if the words are no question about GPUs.

    >>> command_of_sentence("which gpu for stable diffusion under 800 dollars".split(), Catalog())
    ['recommend', 'images', 'stable-diffusion-xl', '--buy', '--budget=800usd']
    """
    flags = [word for word in words if word.startswith("-")]
    text = " ".join(word for word in words if not word.startswith("-")).lower().strip(" ?!.")
    task = next((name for pattern, name in TASKS if pattern.search(text)), None)
    if len(text.split()) < MIN_WORDS or task is None or not ABOUT_GPUS.search(text):
        return None
    model = _model(text, catalog) or (PICTURES if task == "images" else None)
    if model is None and task == "chat":
        return None
    return ["recommend", task, *([model] if model else []), *_options(text, task), *flags]


def _model(text: str, catalog: Catalog) -> str | None:
    """Return the model with the longest name in the text, else the usual one of a size such as 70b; None if there is neither."""
    plain = f" {_plain(text)} "
    names = {name: model.id for model in catalog.models for name in model.names}
    name = max((name for name in names if f" {_plain(name)} " in plain), key=len, default=None)
    if name is not None:
        return names[name]
    if "stable diffusion" in plain:
        return PICTURES
    size = SIZE.search(text)
    return size.group(0) if size and built_in_member(size.group(0), catalog) else None


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", " ", text.lower()).strip()


def _options(text: str, task: str) -> Iterator[str]:
    """Yield the flags that a sentence states: adapters, people, rate, deadline, and a budget to buy or to rent."""
    if adapter := re.search(r"\bq?lora\b", text):
        yield f"--{adapter.group(0)}"
    if task == "serve" and (people := PEOPLE.search(text)):
        yield f"--people={people.group(1)}"
    if task == "serve" and (rate := RATE.search(text)):
        yield f"--rate={rate.group(1)}/s"
    if task != "serve" and task != "chat" and (deadline := DEADLINE.search(text)):
        yield f"--deadline={deadline.group(1)}{deadline.group(2)[0]}"
    money = next((one for one in MONEY.finditer(text) if one["sign"] or one["currency"]), None)
    is_total = money is not None and not money["per"]
    if OWNING.search(text) or (is_total and task in ("chat", "images")):
        yield "--buy"
    if money is not None:
        currency = CURRENCIES[(money["sign"] or money["currency"]).rstrip("s")]
        amount = float(money["amount"].rstrip(".,").replace(",", "")) * (1000 if money["thousand"] else 1)
        per = {"hour": "/h", "h": "/h", "month": "/month"}.get(money["per"] or "", "")
        yield f"--budget={amount:g}{currency}{per}"
