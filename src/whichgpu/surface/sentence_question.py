"""The question about GPUs that a plain sentence such as "which gpu for stable diffusion under 800 dollars" asks, by rules."""

from __future__ import annotations

import re
from typing import NamedTuple

from whichgpu.catalog.find import gpus_named
from whichgpu.catalog.store import Catalog
from whichgpu.surface.sentence_reader import ABOUT_GPUS, COMPARE, OWNING, PICTURES, TASKS, SentenceReader
from whichgpu.surface.sentence_rules import READ, TRAINING

MIN_WORDS = 3  # Fewer words are a mistyped command, not a sentence.
ASKS_WHETHER = re.compile(
    r"(can|could|do|does|will|would) (i|we|you|my|our|an?|one|it|this|the)\b"
)  # With a GPU: whether it fits.
PRICES = re.compile(
    r"\bprices?\b.*\b(history|trends?|over time|of|for)\b|\bhow much (is|does|are|do)\b|\bwhat (do|does|would) .*\bcosts?\b"
)
SPEED = re.compile(r"\bhow (fast|quick(ly)?|long|many tokens)\b|\btokens? ?(/|per|a) ?s(ec(ond)?)?\b|\bspeed\b")
RUNNABLE = re.compile(
    r"\b(what|which)( \w+){0,2} can (i|we) (run|use|serve|host)\b|\b(what|which) (models?|llms?) (fits?|runs?)\b"
)
FLEET = re.compile(
    r"\b((plan|size)\b.* )?fleets?\b|\b(request|traffic) (logs?|traces?)\b|\btraces? of (my |our )?(requests|traffic)\b"
)
PLANNED = ("rate", "seq_in", "seq_out", "ttft_max", "tpot_max", "provider", "region", "budget", "gpu")  # Fields of a plan.
COMPARED_TASKS = {"train": "train", "finetune": "finetune", "batch": "batch", "images": "batch"}  # Others: the speed of a chat.
# Tasks of models that do not chat, by their kind or the type of their configuration.
TASKS_OF_MODELS = {"diffusion": "images", "whisper": "transcribe", "vision": "batch"} | dict.fromkeys(
    ("bert", "roberta", "xlm-roberta", "deberta-v2", "distilbert", "modernbert", "mpnet", "nomic_bert"), "embed"
)
FITTED = ("finetune", "train", "serve", "chat", "images")  # Tasks of which one asks whether a GPU can do them.
VIDEOS = "wan2.2-a14b"  # The model of a question about videos that names none.
COMMON = "llama-3.1-8b"  # The model of a question about LoRA, QLoRA or a chat within a budget that names none.
CHATTING = re.compile(r"\b(chat\w*|talk|assistant|llms?)\b")
ADAPTERS = re.compile(r"\bq?lora\b")
ONE = re.compile(r"\bone(?= (thousand|[mb]illion|trillion|requests?|hours?|days?|weeks?|months?|years?|seconds?)\b)")
LASTING = re.compile(r"\b((for|per) )?(an?|per|1) (hour|day|week|month|year)\b|\bper hour\b")  # Prices are listed by the hour.
ALWAYS = re.compile(r"\b24/7\b")  # A service runs all the time anyway.
EITHER = re.compile(r"\b(macs?|macbook|pcs?|windows|linux) or (an? )?(macs?|macbook|pcs?|windows|linux)\b")  # All are considered.
DIGITS = {word: str(n) for n, word in enumerate("two three four five six seven eight nine ten".split(), 2)}


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
    reader = SentenceReader(text, catalog)
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
    other_job = CHATTING.search(text) if task == "images" else None  # One question is about one kind of work.
    ignored = (*((other_job[0],) if other_job else ()), *reader.ignored())
    return SentenceQuestion("recommend", first | _adapter(text) | fields, reader.unread(), ignored)


def _plan(text: str, catalog: Catalog) -> SentenceQuestion:
    """Return the question for a fleet; of the model that most people mean if a sentence names none."""
    reader = SentenceReader(FLEET.sub(READ, text), catalog)
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
    reader = SentenceReader(text, catalog)
    fields = {} if reader.named_model() else dict(reader.figures("fit"))
    if "gpu" not in fields:
        return None
    several = (f"{fields['gpus']}x",) if fields.get("gpus", "1") != "1" else ()  # The list is for one GPU.
    return SentenceQuestion("models", {"fits": fields["gpu"]}, reader.unread(), (*several, *reader.ignored()))


def _speed(text: str, task: str | None, catalog: Catalog) -> SentenceQuestion | None:
    """Return the question for the speed of a model on the GPUs that a sentence names; None if it lacks either."""
    reader = SentenceReader(SPEED.sub("", text), catalog)
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
    reader = SentenceReader(LASTING.sub("", text), catalog)
    fields = {} if reader.named_model() else dict(reader.figures("fit"))
    return SentenceQuestion("offers", {"gpu": fields["gpu"]}, reader.unread(), ()) if "gpu" in fields else None


def _fit(text: str, task: str, catalog: Catalog) -> SentenceQuestion | None:
    """Return the question whether a task's model fits the GPUs that a sentence names; None if it lacks either."""
    reader = SentenceReader(text, catalog)
    model = reader.named_model()
    fields = dict(reader.figures("fit"))
    model = model or reader.sized_model()
    if model is None or "gpu" not in fields:
        return None
    return SentenceQuestion("fit", {"model": model} | _training(task, text) | fields, reader.unread(), reader.ignored())


def _comparison(text: str, task: str | None, catalog: Catalog) -> SentenceQuestion | None:
    """Return the comparison of the GPUs that a sentence names, for a task if it names a model; None if it names one GPU."""
    reader = SentenceReader(text, catalog)
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
    reader = SentenceReader(text, catalog)
    return bool(ADAPTERS.search(text) or reader.named_model() or reader.sized_model())


def _adapter(text: str) -> dict[str, str]:
    adapter = ADAPTERS.search(text)
    return {adapter[0]: "true"} if adapter else {}
