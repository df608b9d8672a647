"""The question about GPUs that a plain sentence such as "which gpu for stable diffusion under 800 dollars" asks, by rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from whichgpu.catalog.find import gpus_named
from whichgpu.catalog.store import Catalog
from whichgpu.surface.sentence_rules import READ, RULES, TRAINING
from whichgpu.workload.models import built_in_member

MIN_WORDS = 3  # Fewer words are a mistyped command, not a sentence.
ABOUT_GPUS = re.compile(
    r"\b(gpus?|v?ram|graphics|cards?|hardware|machine|rent|buy|run|(pre-?)?train(ing)?|fine-?tun\w*|serv(e|ing)|chat|fits?"
    r"|generate)\b"
)
FIT = re.compile(r"\b(does|do|will|can|would|fits?)\b.*\bfits?\b|^fits?\b|\bhow (much|many gb of) (v?ram|(gpu )?memory)\b")
ASKS_WHETHER = re.compile(r"(can|could|will|would) (i|we|you|my|our|an?|one|it|this)\b")  # With a GPU: whether it fits.
PRICES = re.compile(r"\bprices?\b.*\b(history|trends?|over time|of|for)\b|\bhow much (is|does|are|do)\b")
COMPARE = re.compile(r"\b(compare|comparison|versus|vs)\b")
COMPARED_TASKS = {"train": "train", "finetune": "finetune", "batch": "batch", "images": "batch"}  # Others: the speed of a chat.
# The first pattern that a sentence has decides its task.
TASKS = (
    (FIT, "fit"),
    (re.compile(r"\b(fine-?tun\w*|q?lora)\b"), "finetune"),
    (re.compile(r"\b(pre-?)?train(ing)?\b"), "train"),
    (re.compile(r"\b(images?|pictures?|photos?|stable[ -]diffusion|sdxl|flux|draw\w*|videos?)\b"), "images"),
    (re.compile(r"\bhours? of (audio|speech|recordings?)\b"), "batch"),
    (re.compile(r"\b(embed\w*)\b"), "embed"),
    (re.compile(r"\b(transcri\w+|speech to text)\b"), "transcribe"),
    (
        re.compile(
            r"\b(serve|serving|host(ing)?|deploy\w*|rps|qps|tpot|ttft|(a|1|all|whole) year)\b"
            r"|\b(requests?|req|queries)( ?/ ?| an? | per )s"
        ),
        "serve",
    ),
    (re.compile(r"\b(batch|offline|prompts)\b|\d( ?([kmb]|thousand|[mb]illion))? requests\b(?! ?(/|an?\b|per\b))"), "batch"),
    (re.compile(r"\b(service|api|requests?|team|people|users|employees)\b"), "serve"),
    (re.compile(r"\b(chat\w*|llms?|inference|talk|assistant|language models?|run)\b"), "chat"),
)
FITTED = ("finetune", "train", "serve", "chat")  # Tasks of which one asks whether a GPU can do them.
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
    "₩": "krw",
    "krw": "krw",
    "won": "krw",
    "vnd": "vnd",
    "dong": "vnd",
    "cny": "cny",
    "rmb": "cny",
    "yuan": "cny",
    "jpy": "jpy",
    "yen": "jpy",
    "inr": "inr",
    "rupee": "inr",
}
MONEY = re.compile(
    r"(?P<sign>[$€£₩])?\s?(?P<amount>\d[\d,.]*)\s?((?P<thousand>k|thousand)\b|(?P<million>m|million)\b)?\s?"
    rf"(?P<currency>(?:{'|'.join(name for name in CURRENCIES if name.isalpha())})s?\b|[$€£₩])?"
    r"(\s?(/|an?|per)\s?(?P<per>hour|h|month)\b)?"
)
SIZE = re.compile(r"\b\d+(?:\.\d+)?b\b")
OWNING = re.compile(r"\b(buy|purchase|home|desktop|cards?)\b")
PICTURES = "stable-diffusion-xl"  # The model of a question about pictures that names none.
COMMON = "llama-3.1-8b"  # The model of a question about LoRA, QLoRA or a chat within a budget that names none.
ADAPTERS = re.compile(r"\bq?lora\b")
ONE = re.compile(r"\bone(?= (thousand|[mb]illion|trillion|requests?|hours?|days?|weeks?|months?|years?|seconds?)\b)")
LASTING = re.compile(r"\bfor an? (hour|day|week|month|year)\b")  # Prices are listed by the hour.
ALWAYS = re.compile(r"\b24/7\b")  # A service runs all the time anyway.
DIGITS = {word: str(n) for n, word in enumerate("two three four five six seven eight nine ten".split(), 2)}
# A word of these left over is a condition that no rule has read, as is any word with a digit.
QUANTITIES = re.compile(
    r".*\d.*|(ms|(milli)?seconds?|minutes?|hours?|days?|weeks?|months?|years?|dozens?|hundreds?|thousands?|[mb]illions?|trillions?)"
)
# Words that add nothing to a question; the words that decide its task are another list.
FILLERS = frozenset(
    "a an and any are at be best by can card cards cheapest could do does for from gpu gpus graphics hardware have how i in into"
    " is it its kind machine me mine model much my need needed of on one or our own per please rent run should that the them this"
    " to under use using want we what what's which will with within would you your generate token tokens about around through as"
    " full fully local way compare many company traffic less than get then via year".split()
)
OWNER = frozenset({"my", "our", "own", "have"})
MAX_GPU_WORDS = 4  # Words of the longest name of a GPU, with its count.
# Providers by names people write that the catalog lacks; the catalog's own for those whose id is an everyday word.
PROVIDER_NAMES = {"amazon": "aws", "google": "gcp", "oracle": "oci", "digitalocean": "do"}
EVERYDAY_PROVIDERS = frozenset({"do", "nvidia"})


class SentenceQuestion(NamedTuple):
    """A command with its fields, the phrases with quantities that were not understood, and the words that were ignored."""

    command: str
    fields: dict[str, str]
    unread: tuple[str, ...]
    ignored: tuple[str, ...]


def question_of_sentence(sentence: str, catalog: Catalog) -> SentenceQuestion | None:
    """Return the question nearest to a sentence; None if it is no question about GPUs.

    >>> question_of_sentence("which gpu for stable diffusion under 800 dollars", Catalog()).fields
    {'task': 'images', 'model': 'stable-diffusion-xl', 'buy': 'true', 'budget': '800usd'}
    """
    text = re.sub(r"\w+", lambda word: DIGITS.get(word[0], word[0]), " ".join(sentence.lower().split()).strip(" ?!."))
    text = ALWAYS.sub("", ONE.sub("1", text))
    if len(text.split()) < MIN_WORDS:
        return None
    if PRICES.search(text) and (offers := _offers(text, catalog)):
        return offers
    tasks = [name for pattern, name in TASKS if pattern.search(text)]
    task, work = next(iter(tasks), None), next((name for name in tasks if name != "fit"), None)
    if COMPARE.search(text) and (comparison := _comparison(text, work, catalog)):
        return comparison
    if not ABOUT_GPUS.search(text) and not (task and _names_work(text, catalog)):
        return None
    if task in FITTED and ASKS_WHETHER.match(text) and (fit := _fit(text, task, catalog)):
        return fit
    reader = _Reader(text, catalog)
    model = reader.named_model()
    is_owning, fields = bool(OWNING.search(text)), dict(reader.figures(task or "chat"))
    model = model or reader.sized_model()
    # A model alone is for a chat with it; a GPU alone, for its price.
    if model is None and task in (None, "fit"):
        return _offers(text, catalog)
    if model is None and task == "chat" and not is_owning and "budget" not in fields:
        return None
    task, model = task or "chat", model or _usual_model(task, text)
    if task == "fit" and model:
        return SentenceQuestion("fit", {"model": model} | _training(work, text) | fields, reader.unread(), reader.ignored())
    if (is_owning and "owned" not in fields) or (
        "budget" in fields and "/" not in fields["budget"] and task in ("chat", "images")
    ):
        fields = {"buy": "true", **fields}
    first = {"task": task, **({"model": model} if model else {})}
    return SentenceQuestion("recommend", first | _adapter(text) | fields, reader.unread(), reader.ignored())


def _usual_model(task: str | None, text: str) -> str | None:
    """Return the model that is meant if a sentence names none; None for a task that any model may have."""
    if task == "images":
        return PICTURES
    return COMMON if task == "chat" or ADAPTERS.search(text) else None


def _offers(text: str, catalog: Catalog) -> SentenceQuestion | None:
    """Return the question for the prices of the GPUs that a sentence names; None if it names a model, or no GPU."""
    reader = _Reader(LASTING.sub("", text), catalog)
    fields = {} if reader.named_model() else dict(reader.figures("fit"))
    return SentenceQuestion("offers", {"gpu": fields["gpu"]}, reader.unread(), ()) if "gpu" in fields else None


def _fit(text: str, task: str, catalog: Catalog) -> SentenceQuestion | None:
    """Return the question whether a task's model fits the GPUs that a sentence names; None if it lacks either."""
    reader = _Reader(text, catalog)
    model = reader.named_model()
    fields = dict(reader.figures("fit"))
    model = model or reader.sized_model()
    if model is None or "gpu" not in fields:
        return None
    return SentenceQuestion("fit", {"model": model} | _training(task, text) | fields, reader.unread(), reader.ignored())


def _comparison(text: str, task: str | None, catalog: Catalog) -> SentenceQuestion | None:
    """Return the comparison of the GPUs that a sentence names, for a task if it names a model; None if it names one GPU."""
    reader = _Reader(text, catalog)
    model = reader.named_model()
    fields = dict(reader.figures("fit"))
    model = model or reader.sized_model()
    names = fields.pop("gpu", "")
    if "," not in names:
        return None
    work = {"task": COMPARED_TASKS.get(task or "", "decode"), "model": model} | _adapter(text) if model else {}
    return SentenceQuestion("compare", {"name": names} | work | fields, reader.unread(), reader.ignored())


def _training(task: str | None, text: str) -> dict[str, str]:
    return {"task": task, **_adapter(text)} if task in TRAINING else {}


def _names_work(text: str, catalog: Catalog) -> bool:
    """Return whether a text names a model, its size, or a kind of adapter."""
    reader = _Reader(text, catalog)
    return bool(ADAPTERS.search(text) or reader.named_model() or reader.sized_model())


def _adapter(text: str) -> dict[str, str]:
    adapter = ADAPTERS.search(text)
    return {adapter[0]: "true"} if adapter else {}


class _Reader:
    """A sentence of which each part is read once; `rest` is what no rule has read yet."""

    def __init__(self, text: str, catalog: Catalog) -> None:
        self.rest, self.catalog = text, catalog

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if match := pattern.search(self.rest):
            self._remove(match)
        return match

    def _remove(self, match: re.Match[str]) -> None:
        self.rest = f"{self.rest[: match.start()]} {READ} {self.rest[match.end() :]}"

    def named_model(self) -> str | None:
        """Return the model with the longest name in the text; None if there is none."""
        plain = f" {_plain(self.rest)} "
        names = {name: model.id for model in self.catalog.models for name in model.names}
        name = max((name for name in names if f" {_plain(name)} " in plain), key=len, default=None)
        if name is None and "stable diffusion" in plain:
            name, names = "stable diffusion", {"stable diffusion": PICTURES}
        if name is None:
            return None
        self._take(re.compile(r"[^a-z0-9.]+".join(map(re.escape, _plain(name).split()))))
        return names[name]

    def sized_model(self) -> str | None:
        """Return a size such as 70b, or the family and the size, that a built-in model has; None if there is none."""
        for pattern in (re.compile(rf"\b[a-z]+[ -]{SIZE.pattern[2:]}"), SIZE):
            match = pattern.search(self.rest)
            if match and built_in_member(match[0].replace(" ", "-"), self.catalog):
                self._remove(match)
                return match[0].replace(" ", "-")
        return None

    def figures(self, task: str) -> Iterator[tuple[str, str]]:
        """Yield the fields that the sentence states for a task: figures, a budget, GPUs and providers."""
        fields_read = set[str]()
        for rule in RULES:
            if task in rule.tasks and rule.field not in fields_read and (match := self._take(rule.pattern)):
                fields_read.add(rule.field)
                yield rule.field, rule.form(match[1])
        if task != "fit":
            yield from self._budget()
            yield from self._providers()
        yield from self._gpus(may_be_owned=task != "fit", is_counted="gpus" in fields_read)

    def _budget(self) -> Iterator[tuple[str, str]]:
        money = next((one for one in MONEY.finditer(self.rest) if one["sign"] or one["currency"]), None)
        if money is None:
            return
        self._remove(money)
        currency = CURRENCIES[(money["sign"] or money["currency"]).rstrip("s")]
        factor = 1e6 if money["million"] else 1e3 if money["thousand"] else 1.0
        amount = float(money["amount"].rstrip(".,").replace(",", "")) * factor
        per = {"hour": "/h", "h": "/h", "month": "/month"}.get(money["per"] or "", "")
        yield "budget", f"{amount:.15g}{currency}{per}"

    def _providers(self) -> Iterator[tuple[str, str]]:
        ids = {re.sub(r" \(.*", "", name.lower()): one.id for one in self.catalog.providers for name in (one.id, one.name)}
        ids = {name: id for name, id in ids.items() if name not in EVERYDAY_PROVIDERS} | PROVIDER_NAMES
        name = "|".join(map(re.escape, sorted(ids, key=len, reverse=True)))
        pattern = rf"\b(?:on|at|from|in|with|via|using) ((?:{name})\b(?:(?:,| or| and)+ (?:{name})\b)*)"
        if match := self._take(re.compile(pattern)):
            yield "provider", ",".join(dict.fromkeys(ids[one] for one in re.findall(rf"\b(?:{name})\b", match[1])))

    def _gpus(self, may_be_owned: bool, is_counted: bool) -> Iterator[tuple[str, str]]:
        """Yield the GPUs in the text, as one's own after `my`, and their number where only one kind is named."""
        matches, is_owned = list[tuple[str, str]](), False
        words, at = self.rest.split(), 0
        while at < len(words):
            match = next(filter(None, (self._gpu(words[at : at + n]) for n in range(MAX_GPU_WORDS, 0, -1))), None)
            if match:
                is_owned = is_owned or bool(OWNER & set(words[max(at - 2, 0) : at]))
                matches.append(match[:2])
                words[at : at + match[2]] = [READ]
            at += 1
        is_owned, counts = is_owned and may_be_owned, [count for count, _ in matches if count]
        if not matches or (counts and not is_owned and (is_counted or len(matches) > 1)):  # One number fits one kind only.
            return
        self.rest = " ".join(words)
        if is_owned:
            yield "owned", ",".join(f"{count}x{name}" if count else name for count, name in matches)
            return
        yield "gpu", ",".join(dict.fromkeys(name for _, name in matches))
        if counts:
            yield "gpus", counts[0]

    def _gpu(self, words: list[str]) -> tuple[str, str, int] | None:
        """Return the count, the name and the number of words if the words are a GPU's name, with or without a count."""
        text = " ".join(words).strip(",;:()")
        if not re.search(r"\d|titan", text) or READ in text:
            return None
        with_count = re.fullmatch(r"(\d{1,3})(?: x |x | |x)(\S.*)", text)
        count, name = (with_count[1], with_count[2]) if with_count else ("", text)
        for one in (name, name.removesuffix("s")):
            if matches := gpus_named(self.catalog, one, loosely=False):
                return count, matches[0].id if len(matches) == 1 else one, len(words)
        return None

    def unread(self) -> tuple[str, ...]:
        """Return the phrases left over that have a number or a unit, each to the end of its part of the sentence."""
        parts = (part.split() for part in self.rest.split(READ))
        firsts = ((next((n for n, word in enumerate(part) if _is_quantity(word)), None), part) for part in parts)
        return tuple(" ".join(part[first:]).strip(",;:") for first, part in firsts if first is not None)

    def ignored(self) -> tuple[str, ...]:
        """Return the words left over that decide nothing."""
        rest = self.rest
        for pattern in (ABOUT_GPUS, OWNING, COMPARE, *(pattern for pattern, task in TASKS if task != "fit")):
            rest = pattern.sub(" ", rest)
        words = (word.strip(",;:()?!.'\"") for word in rest.replace(READ, " ").split())
        return tuple(
            dict.fromkeys(
                word for word in words if re.search(r"[^\W\d_]", word) and word not in FILLERS and not _is_quantity(word)
            )
        )


def _is_quantity(word: str) -> bool:
    return bool(QUANTITIES.fullmatch(word.strip(",;:()?!.")))


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", " ", text.lower()).strip()
