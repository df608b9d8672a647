"""The question about GPUs that a plain sentence such as "which gpu for stable diffusion under 800 dollars" asks, by rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

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


def question_of_sentence(sentence: str, catalog: Catalog) -> dict[str, str] | None:
    """Return the fields of the recommendation nearest to a sentence; None if it is no question about GPUs.

    >>> question_of_sentence("which gpu for stable diffusion under 800 dollars", Catalog())
    {'task': 'images', 'model': 'stable-diffusion-xl', 'buy': 'true', 'budget': '800usd'}
    """
    text = sentence.lower().strip(" ?!.")
    if len(text.split()) < MIN_WORDS or not ABOUT_GPUS.search(text):
        return None
    task, model = next((name for pattern, name in TASKS if pattern.search(text)), None), _model(text, catalog)
    if task is None and model is not None:  # A model alone is for a chat with it.
        task = "chat"
    if task is None or (task == "chat" and model is None and not OWNING.search(text)):
        return None
    model = model or (PICTURES if task == "images" else None)
    return {"task": task, **({"model": model} if model else {}), **dict(_constraints(text, task))}


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


def _constraints(text: str, task: str) -> Iterator[tuple[str, str]]:
    """Yield the fields that a sentence states: adapters, people, rate, deadline, and a budget to buy or to rent."""
    if adapter := re.search(r"\bq?lora\b", text):
        yield adapter.group(0), "true"
    if task == "serve" and (people := PEOPLE.search(text)):
        yield "people", people.group(1)
    if task == "serve" and (rate := RATE.search(text)):
        yield "rate", f"{rate.group(1)}/s"
    if task != "serve" and task != "chat" and (deadline := DEADLINE.search(text)):
        yield "deadline", f"{deadline.group(1)}{deadline.group(2)[0]}"
    money = next((one for one in MONEY.finditer(text) if one["sign"] or one["currency"]), None)
    is_total = money is not None and not money["per"]
    if OWNING.search(text) or (is_total and task in ("chat", "images")):
        yield "buy", "true"
    if money is not None:
        currency = CURRENCIES[(money["sign"] or money["currency"]).rstrip("s")]
        amount = float(money["amount"].rstrip(".,").replace(",", "")) * (1000 if money["thousand"] else 1)
        per = {"hour": "/h", "h": "/h", "month": "/month"}.get(money["per"] or "", "")
        yield "budget", f"{amount:g}{currency}{per}"
