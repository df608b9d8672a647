"""Models, GPUs, money and other quantities of a plain sentence, each part of it read once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from whichgpu.catalog.find import gpus_in_computer, gpus_named, is_place
from whichgpu.catalog.store import Catalog
from whichgpu.surface.sentence_rules import AUDIO, MEMBERS, READ, RULES
from whichgpu.workload.models import built_in_member

TOKEN = re.compile(r"[a-z]+|\d+(?:\.\d+)*")
MAX_GAP = 3  # Characters between two parts of a name.
MEMORY = re.compile(
    r"(with )?(\b\d+ ?gb or )?\b\d+ ?gb\b( of)?( (v?ram|memory))?"
)  # A question whether it fits shows what is needed.
ABOUT_GPUS = re.compile(
    r"\b(gpus?|v?ram|graphics|cards?|hardware|machine|rent|buy|run(ning)?|(pre-?)?train(ing)?|fine[ -]?tun\w*|serv(e|ing)|chat\w*"
    r"|fits?|generate|llms?|inference|transcri\w+|ollama|comfyui|workstation|(machine|deep) learning)\b"
)
FIT = re.compile(
    r"\b(does|do|will|can|would|fits?)\b.*\bfits?\b|^fits?\b|\bhow (much|many gb of) (v?ram|(gpu )?memory)\b"
    r"|\benough\b|\b\d+ ?gb or \d+ ?gb\b|\b(my|our|i have|we have)\b( [a-z]+){0,4} \d+ ?gb\b"
)
COMPARE = re.compile(
    r"\b(compare|comparison|versus|vs|better|faster)\b|^((should|would) (i|we) \w+ |is |are )?(an? |the )?[^,]{2,25} or "
)
# GPUs that most people mean by a size of memory, those for a desktop first (chosen).
USUAL_GPUS = (
    "rtx-3070", "rtx-4060", "rtx-3060-12gb", "rtx-4070", "rtx-4060-ti-16gb", "rtx-5080", "t4", "rtx-4090", "rtx-3090", "l4",
    "rtx-5090", "a100-sxm-40gb", "rtx-6000-ada", "l40s", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200", "mi300x",
)  # fmt: skip
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


class SentenceReader:
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
