"""The question about GPUs that a plain sentence such as "which gpu for stable diffusion under 800 dollars" asks, by rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from whichgpu.catalog.find import gpus_in_computer, gpus_named, is_place
from whichgpu.catalog.store import Catalog
from whichgpu.surface.sentence_rules import AUDIO, MEMBERS, READ, RULES, TRAINING
from whichgpu.workload.models import built_in_member

TOKEN = re.compile(r"[a-z]+|\d+(?:\.\d+)*")
MAX_GAP = 3  # Characters between two parts of a name.
MEMORY = re.compile(
    r"(with )?(\b\d+ ?gb or )?\b\d+ ?gb\b( of)?( (v?ram|memory))?"
)  # A question whether it fits shows what is needed.
MIN_WORDS = 3  # Fewer words are a mistyped command, not a sentence.
ABOUT_GPUS = re.compile(
    r"\b(gpus?|v?ram|graphics|cards?|hardware|machine|rent|buy|run(ning)?|(pre-?)?train(ing)?|fine[ -]?tun\w*|serv(e|ing)|chat\w*"
    r"|fits?|generate|llms?|inference|transcri\w+|ollama|comfyui|workstation|(machine|deep) learning)\b"
)
FIT = re.compile(
    r"\b(does|do|will|can|would|fits?)\b.*\bfits?\b|^fits?\b|\bhow (much|many gb of) (v?ram|(gpu )?memory)\b"
    r"|\benough\b|\b\d+ ?gb or \d+ ?gb\b|\b(my|our|i have|we have)\b( [a-z]+){0,4} \d+ ?gb\b"
)
ASKS_WHETHER = re.compile(
    r"(can|could|do|does|will|would) (i|we|you|my|our|an?|one|it|this|the)\b"
)  # With a GPU: whether it fits.
PRICES = re.compile(
    r"\bprices?\b.*\b(history|trends?|over time|of|for)\b|\bhow much (is|does|are|do)\b|\bwhat (do|does|would) .*\bcosts?\b"
)
COMPARE = re.compile(
    r"\b(compare|comparison|versus|vs|better|faster)\b|^((should|would) (i|we) \w+ |is |are )?(an? |the )?[^,]{2,25} or "
)
SPEED = re.compile(r"\bhow (fast|quick(ly)?|long|many tokens)\b|\btokens? ?(/|per|a) ?s(ec(ond)?)?\b|\bspeed\b")
RUNNABLE = re.compile(
    r"\b(what|which)( \w+){0,2} can (i|we) (run|use|serve|host)\b|\b(what|which) (models?|llms?) (fits?|runs?)\b"
)
FLEET = re.compile(
    r"\b((plan|size)\b.* )?fleets?\b|\b(request|traffic) (logs?|traces?)\b|\btraces? of (my |our )?(requests|traffic)\b"
)
PLANNED = ("rate", "seq_in", "seq_out", "ttft_max", "tpot_max", "provider", "region", "budget", "gpu")  # Fields of a plan.
# GPUs that most people mean by a size of memory, those for a desktop first (chosen).
USUAL_GPUS = (
    "rtx-3070", "rtx-4060", "rtx-3060-12gb", "rtx-4070", "rtx-4060-ti-16gb", "rtx-5080", "t4", "rtx-4090", "rtx-3090", "l4",
    "rtx-5090", "a100-sxm-40gb", "rtx-6000-ada", "l40s", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200", "mi300x",
)  # fmt: skip
COMPARED_TASKS = {"train": "train", "finetune": "finetune", "batch": "batch", "images": "batch"}  # Others: the speed of a chat.
# The first pattern that a sentence has decides its task.
TASKS = (
    (FIT, "fit"),
    (re.compile(r"\b(fine[ -]?tun\w*|q?lora)\b"), "finetune"),
    (re.compile(r"\b(pre-?)?train(ing)?\b"), "train"),
    (re.compile(r"\b(images?|pictures?|photos?|stable[ -]diffusion|sdxl|flux|draw\w*|videos?|comfyui)\b"), "images"),
    (re.compile(rf"\bhours? of (\w+ )?{AUDIO}\b"), "batch"),
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
    (re.compile(rf"\b(service|api|requests?|team|{MEMBERS})\b"), "serve"),
    (re.compile(r"\b(chat\w*|llms?|inference|talk|assistant|language models?|run(ning)?|ollama|ai)\b"), "chat"),
    (re.compile(r"\b((machine|deep) learning|ml)\b"), "train"),
)
# Tasks of models that do not chat, by their kind or the type of their configuration.
TASKS_OF_MODELS = {"diffusion": "images", "whisper": "transcribe", "vision": "batch"} | dict.fromkeys(
    ("bert", "roberta", "xlm-roberta", "deberta-v2", "distilbert", "modernbert", "mpnet", "nomic_bert"), "embed"
)
FITTED = ("finetune", "train", "serve", "chat", "images")  # Tasks of which one asks whether a GPU can do them.
CURRENCIES = {
    "$": "usd",
    "dollar": "usd",
    "usd": "usd",
    "buck": "usd",
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
THOUSANDS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+")  # An amount with a point between thousands, as many languages write it.
OWNING = re.compile(r"\b(buy|purchase|home|desktop|workstation|cards?)\b")
PICTURES = "stable-diffusion-xl"  # The model of a question about pictures that names none.
VIDEOS = "wan2.2-a14b"  # The model of a question about videos that names none.
COMMON = "llama-3.1-8b"  # The model of a question about LoRA, QLoRA or a chat within a budget that names none.
ADAPTERS = re.compile(r"\bq?lora\b")
ONE = re.compile(r"\bone(?= (thousand|[mb]illion|trillion|requests?|hours?|days?|weeks?|months?|years?|seconds?)\b)")
LASTING = re.compile(r"\b((for|per) )?(an?|per|1) (hour|day|week|month|year)\b|\bper hour\b")  # Prices are listed by the hour.
ALWAYS = re.compile(r"\b24/7\b")  # A service runs all the time anyway.
EITHER = re.compile(r"\b(macs?|macbook|pcs?|windows|linux) or (an? )?(macs?|macbook|pcs?|windows|linux)\b")  # All are considered.
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
    " full fully local way compare many company traffic less than get then via year below budget max cheap needs enough fast long"
    " better second take lowest cost locally server good".split()
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
    text = EITHER.sub("", ALWAYS.sub("", ONE.sub("1", text)))
    if len(text.split()) < MIN_WORDS:
        return None
    if FLEET.search(text):
        return _plan(text, catalog)
    if PRICES.search(text) and (offers := _offers(text, catalog)):
        return offers
    tasks = [name for pattern, name in TASKS if pattern.search(text)]
    task, work = next(iter(tasks), None), next((name for name in tasks if name != "fit"), None)
    if COMPARE.search(text) and (comparison := _comparison(text, work, catalog)):
        return comparison
    if RUNNABLE.search(text) and (models := _runnable(text, catalog)):
        return models
    if SPEED.search(text) and (speed := _speed(text, work, catalog)):
        return speed
    if not ABOUT_GPUS.search(text) and not (task and _names_work(text, catalog)):
        return None
    if task in FITTED and ASKS_WHETHER.match(text) and (fit := _fit(text, task, catalog)):
        return fit
    reader = _Reader(text, catalog)
    model = reader.named_model()
    is_owning, fields = bool(OWNING.search(text)), dict(reader.figures(task or "chat"))
    model = model or reader.sized_model()
    task = _task_of_model(model, task, catalog)
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


def _plan(text: str, catalog: Catalog) -> SentenceQuestion:
    """Return the question for a fleet; of the model that most people mean if a sentence names none."""
    reader = _Reader(FLEET.sub(READ, text), catalog)
    model = reader.named_model()
    fields = {name: value for name, value in reader.figures("serve") if name in PLANNED}
    return SentenceQuestion(
        "plan", {"model": model or reader.sized_model() or COMMON} | fields, reader.unread(), reader.ignored()
    )


def _usual_model(task: str | None, text: str) -> str | None:
    """Return the model that is meant if a sentence names none; None for a task that any model may have."""
    if task == "images":
        return VIDEOS if re.search(r"\bvideos?\b", text) else PICTURES
    return COMMON if task in ("chat", "serve") or ADAPTERS.search(text) else None


def _task_of_model(model: str | None, task: str | None, catalog: Catalog) -> str | None:
    """Return the task of a question; for a model that does not chat, that of its kind if the question names no other."""
    if task not in (None, "chat"):
        return task
    kinds = next(((one.kind, str(one.config.get("model_type"))) for one in catalog.models if one.id == model), ())
    return next((TASKS_OF_MODELS[kind] for kind in kinds if kind in TASKS_OF_MODELS), task)


def _runnable(text: str, catalog: Catalog) -> SentenceQuestion | None:
    """Return the question for the models that fit the GPU that a sentence names; None if it names a model, or no GPU."""
    reader = _Reader(text, catalog)
    fields = {} if reader.named_model() else dict(reader.figures("fit"))
    if "gpu" not in fields:
        return None
    return SentenceQuestion("models", {"fits": fields["gpu"]}, reader.unread(), reader.ignored())


def _speed(text: str, task: str | None, catalog: Catalog) -> SentenceQuestion | None:
    """Return the question for the speed of a model on the GPUs that a sentence names; None if it lacks either."""
    reader = _Reader(SPEED.sub("", text), catalog)
    model = reader.named_model()
    fields = dict(reader.figures("fit"))
    model = model or reader.sized_model()
    if model is None or "," in fields.get("gpu", ","):
        return None
    if len(gpus_named(catalog, fields["gpu"])) > 1:  # An estimate is of one GPU; a family is compared.
        fields = {"name": fields.pop("gpu")} | fields
    task = COMPARED_TASKS.get(_task_of_model(model, task, catalog) or "", "decode")
    work = {"task": task, "model": model} | _adapter(text)
    return SentenceQuestion("compare" if "name" in fields else "estimate", work | fields, reader.unread(), reader.ignored())


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
        self._unused = list[str]()  # quantities that no flag of the command takes

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if match := pattern.search(self.rest):
            self._remove(match)
        return match

    def _remove(self, match: re.Match[str]) -> None:
        self.rest = f"{self.rest[: match.start()]} {READ} {self.rest[match.end() :]}"

    def named_model(self) -> str | None:
        """Return the model with the longest name in the text; None if there is none."""
        names = {_tokens(name): model.id for model in self.catalog.models for name in model.names}
        names.setdefault(("stable", "diffusion"), PICTURES)
        longest = max(map(len, names))
        tokens = list(TOKEN.finditer(self.rest))
        runs = (tokens[first:end] for first in range(len(tokens)) for end in range(first + 1, first + longest + 1))
        matches = [run for run in runs if tuple(one[0] for one in run) in names and _is_phrase(self.rest, run)]
        if not matches:
            return None
        run = max(matches, key=lambda run: sum(len(one[0]) for one in run))
        self.rest = f"{self.rest[: run[0].start()]} {READ} {self.rest[run[-1].end() :]}"
        return names[tuple(one[0] for one in run)]

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
            yield from self._region()
        gpus = list(self._gpus(may_be_owned=task != "fit", is_counted="gpus" in fields_read))
        yield from gpus
        if task == "fit" and (memory := self._take(MEMORY)):
            if names := () if gpus else self._cards(memory[0]):
                yield "gpu", ",".join(names)
            else:
                self._unused.append(memory[0])

    def _cards(self, memory: str) -> tuple[str, ...]:
        """Return the usual GPUs with a size of memory such as 24 gb, or 16 gb or 24 gb."""
        labels = [f"{size} GB" for size in re.findall(r"\d+", memory)]
        return tuple(id for id in USUAL_GPUS if self.catalog.gpu_by_id[id].memory_label in labels)

    def _budget(self) -> Iterator[tuple[str, str]]:
        money = next((one for one in MONEY.finditer(self.rest) if one["sign"] or one["currency"]), None)
        if money is None:
            return
        self._remove(money)
        currency = CURRENCIES[(money["sign"] or money["currency"]).rstrip("s")]
        factor = 1e6 if money["million"] else 1e3 if money["thousand"] else 1.0
        digits = money["amount"].rstrip(".,").replace(",", "")
        if THOUSANDS.fullmatch(digits) and not money["per"]:
            digits = digits.replace(".", "")
        amount = float(digits) * factor
        per = {"hour": "/h", "h": "/h", "month": "/month"}.get(money["per"] or "", "")
        yield "budget", f"{amount:.15g}{currency}{per}"

    def _providers(self) -> Iterator[tuple[str, str]]:
        ids = {re.sub(r" \(.*", "", name.lower()): one.id for one in self.catalog.providers for name in (one.id, one.name)}
        ids = {name: id for name, id in ids.items() if name not in EVERYDAY_PROVIDERS} | PROVIDER_NAMES
        name = "|".join(map(re.escape, sorted(ids, key=len, reverse=True)))
        pattern = rf"\b(?:on|at|from|in|with|via|using) ((?:{name})\b(?:(?:,| or| and)+ (?:{name})\b)*)"
        if match := self._take(re.compile(pattern)):
            yield "provider", ",".join(dict.fromkeys(ids[one] for one in re.findall(rf"\b(?:{name})\b", match[1])))

    def _region(self) -> Iterator[tuple[str, str]]:
        """Yield the country, continent or city that a sentence names after `in` or `near`."""
        for match in re.finditer(r"\b(?:in|near) ((?:the )?[^\W\d_]+(?: [^\W\d_]+)?)", self.rest):
            for name in (match[1].removeprefix("the "), match[1].split()[0]):
                if is_place(self.catalog, name):
                    self.rest = re.sub(rf"\b(?:in|near) (?:the )?{name}\b", f" {READ} ", self.rest, count=1)
                    yield "region", name
                    return

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
        if not re.search(r"\d|titan|mac", text) or READ in text:
            return None
        with_count = re.fullmatch(r"(\d{1,3})(?: x |x | |x)(\S.*)", text)
        count, name = (with_count[1], with_count[2]) if with_count else ("", text)
        for one in (name, name.removesuffix("s")):
            if matches := gpus_named(self.catalog, one, loosely=False) or gpus_in_computer(self.catalog.gpus, one):
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
        words = (word for word in words if re.search(r"[^\W\d_]", word) and word not in FILLERS and not _is_quantity(word))
        return tuple(dict.fromkeys((*self._unused, *words)))


def _is_quantity(word: str) -> bool:
    return bool(QUANTITIES.fullmatch(word.strip(",;:()?!.")))


def _tokens(name: str) -> tuple[str, ...]:
    """Return the runs of letters and the numbers of a name, so that qwen2.5-7b and Qwen 2.5 7B are the same."""
    return tuple(TOKEN.findall(name.lower()))


def _is_phrase(text: str, run: Sequence[re.Match[str]]) -> bool:
    """Return whether the tokens of a run are whole words of a text with nothing but blanks and signs between them."""
    edges = text[: run[0].start()][-1:] + text[run[-1].end() :][:1]
    gaps = (text[one.end() : other.start()] for one, other in pairwise(run))
    return not any(map(str.isalnum, edges)) and all(len(gap) <= MAX_GAP and not re.search(r"[\0,;]", gap) for gap in gaps)
