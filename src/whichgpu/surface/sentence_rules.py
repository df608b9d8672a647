"""Patterns of the figures that a plain sentence states, each with the field of the request that it fills."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_NUMBER = r"(?<![\w.])(\d[\d,]*(?:\.\d+)?(?: ?(?:thousand|million|billion|trillion|[kmbt])\b)?)"
_SHORT_TIME = r"(\d+(?:\.\d+)? ?(?:ms|milliseconds?|s|secs?|seconds?)\b|an? second\b)"
_LONG_TIME = r"(\d+(?:\.\d+)? ?(?:h|hours?|d|days?|w|weeks?|months?|y|years?)\b|an? (?:hour|day|week|month|year)\b)"
_PAIR = r"(?= ?/ ?\d[\d,]*k?(?: tokens?)?\b)"  # Before the output tokens of "1000/300 tokens".
_AT_MOST = r"(?:(?:under|below|within|at most|less than|up to|max(?:imum)?|<=?|≤) ?)?"
_AT_LEAST = r"(?:\b(?:at|with) )?(?:\b(?:at least|least|minimum|over|more than) )?"
_IS = r"[ :=]*(?:(?:of|is|under|below|within|at most|less than|up to|max(?:imum)?|<=?|≤) ?)*"
_EACH = "(?:(?:/|an?|per|each|between) ?)?(?:output )?"
_REQUESTS = "(?:requests?|req|queries|messages)(?: ?/ ?| an? | per )"
_REQUESTS_A_SECOND = f"{_REQUESTS}s(?:ec(?:ond)?)?"
_INPUTS = "(?:prompts?|inputs?|contexts?|sequences?)"
_OUTPUTS = "(?:answers?|outputs?|repl(?:y|ies)|responses?)"
_THEN_OUT = r"[\d,k]* (?:tokens? )?out\b"  # The rest of a number of output tokens.
_TOKENS_IN = rf"tokens? in(?! (?:\d(?!{_THEN_OUT})|an? ))"  # Not those read in a time, as in "tokens in 90 days".
_PROMPTS = (
    "(?:prompts|requests|samples|documents|docs|texts|questions|pages|sentences|articles|emails|reviews|tickets|paragraphs"
    "|chunks)"
)
_YEAR = r"\b(?:back in|in|as of|of|from|an?) (20[012]\d)\b(?: (?:prices?|budget)\b(?: of\b)?|(?! ?\w))"
_API_PRICE = (
    r"(?:\ban? )?(?:\bapi )?(?:\b(?:at|for|of) )?\$?(\d+(?:\.\d+)?) ?(?:\$|usd|dollars?)? ?(?:an?|per|/) ?(?:1 ?)?m(?:illion)? "
    r"(?:input |output )?tokens\b"
)
_PICTURES = "pictures|images|photos"
MEMBERS = "(?:people|users|persons|employees|colleagues|developers|engineers|members|customers|clients|students)"
_PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}  # seconds; a month is written mo
_FACTORS = {"k": 10**3, "t": 10**12, "m": 10**6, "b": 10**9}

AUDIO = "(?:audio|speech|recordings?|podcasts?|calls?|meetings?|lectures?|interviews?)"

READ = "\0"  # Replaces in the text what has been read.
RUNS = frozenset({"train", "finetune", "batch", "images", "embed"})  # Tasks that end.
TRAINING = frozenset({"train", "finetune"})
SERVICES = frozenset({"serve", "chat"})
TEXTS = TRAINING | SERVICES | {"batch", "embed", "fit"}  # Tasks whose models may read tokens.
ALL = RUNS | SERVICES | {"fit"}


def _count(text: str) -> str:
    """Return a number as flags for large counts take it.

    >>> _count("1.5 million"), _count("10,000"), _count("1t")
    ('1.5M', '10000', '1T')
    """
    number, suffix = _parts(text)
    return number + ("k" if suffix == "k" else suffix.upper())


def _whole(text: str) -> str:
    """Return a number as digits.

    >>> _whole("32k"), _whole("1,000")
    ('32000', '1000')
    """
    number, suffix = _parts(text)
    return f"{float(number) * _FACTORS.get(suffix, 1):.15g}"


def _per_second(text: str) -> str:
    """Return a request rate per second.

    >>> _per_second("5"), _per_second("600 requests per minute"), _per_second("86,400 queries a day")
    ('5/s', '10/s', '1/s')
    """
    period = re.search(r"(?:/|an?|per) ?(minute|min|hour|day|week|month)$", text)
    unit = "" if not period else "mo" if period[1] == "month" else period[1][0]
    seconds = 365 * 86400 / 12 if unit == "mo" else _PERIODS.get(unit, 1)
    number = re.match(_NUMBER, text)
    assert number
    return f"{float(_whole(number[1])) / seconds:.4g}/s"


def _pace(tokens: str) -> str:
    """Return the time between tokens at a number of tokens a second.

    >>> _pace("20")
    '50ms'
    """
    return f"{1000 / float(_whole(tokens)):.4g}ms"


def _parts(text: str) -> tuple[str, str]:
    """Return the digits of a number and the first letter of its multiplier: k of thousand."""
    match = re.fullmatch(r"([\d,.]+) ?(\w*)", text)
    assert match
    suffix = "k" if match[2] == "thousand" else match[2][:1]
    return match[1].replace(",", ""), suffix


def _time(text: str) -> str:
    """Return a time with the unit's symbol.

    >>> _time("90 days"), _time("50 milliseconds"), _time("a week"), _time("3 months")
    ('90d', '50ms', '1w', '3mo')
    """
    text = re.sub(r"^an? ", "1 ", text)
    number, unit = re.match(r"([\d.]+) ?(\w+)", text).groups()  # type: ignore[union-attr]
    return number + (unit[:2] if unit.startswith("mo") else "ms" if unit.startswith("m") else unit[0])


def _power(text: str) -> str:
    number, unit = re.match(r"([\d.]+) ?(\w+)", text).groups()  # type: ignore[union-attr]
    return number + ("kW" if unit == "kw" else "W")


def _windows(hours: str) -> str:
    """Return the windows of 30 seconds, the input of a speech model such as Whisper, in hours of audio.

    >>> _windows("2,000")
    '240000'
    """
    return f"{float(_whole(hours)) * 3600 / 30:.0f}"


def _one(unit: str) -> str:
    return _time(f"1 {unit}")


class Rule(NamedTuple):
    """A field, the tasks that have it, the pattern whose first group is its value, and the form of that value."""

    field: str
    tasks: frozenset[str]
    pattern: re.Pattern[str]
    form: Callable[[str], str]


def _rule(field: str, tasks: frozenset[str], pattern: str, form: Callable[[str], str]) -> Rule:
    return Rule(field, tasks, re.compile(pattern), form)


# The order matters: "1000-token prompts" is read before "1000 tokens", and that before "1000 prompts".
RULES = (
    _rule("api_price", SERVICES | {"batch"}, _API_PRICE, lambda price: f"{price}usd"),
    _rule("ttft_max", SERVICES, rf"\b(?:ttft|(?:time to )?(?:the )?first token)\b{_IS}{_SHORT_TIME}", _time),
    _rule("ttft_max", SERVICES, rf"{_AT_MOST}{_SHORT_TIME} (?:ttft|to (?:the )?first token)\b", _time),
    _rule("tpot_max", SERVICES, rf"\b(?:tpot|itl)\b{_IS}{_SHORT_TIME}", _time),
    _rule("tpot_max", SERVICES, rf"{_AT_MOST}{_SHORT_TIME} ?{_EACH}(?:tokens?|tpot)\b", _time),
    _rule("rate", frozenset({"serve"}), rf"(?:\bat )?{_NUMBER} ?{_REQUESTS_A_SECOND}\b", _per_second),
    _rule("rate", frozenset({"serve"}), rf"(?:\bat )?{_NUMBER} ?(?:rps|qps)\b", _per_second),
    _rule("rate", frozenset({"serve"}), rf"(?:\bat )?({_NUMBER} {_REQUESTS}(?:minute|min|hour|day|week|month))\b", _per_second),
    _rule("tpot_max", SERVICES, rf"{_AT_LEAST}{_NUMBER} (?:tokens?|tok) ?(?:/|per|an?) ?s(?:ec(?:ond)?)?\b", _pace),
    _rule("samples", TRAINING | {"batch"}, rf"{_NUMBER} hours? of (?:\w+ )?{AUDIO}\b", _windows),
    _rule("samples", frozenset({"batch", "embed"}), rf"{_NUMBER} (?:[a-z]+ )?{_PROMPTS}\b", _count),
    _rule("seq_in", TEXTS, rf"{_NUMBER}{_PAIR}", _whole),
    _rule("seq_out", TEXTS, rf"{READ} +/ ?{_NUMBER}(?: tokens?\b)?", _whole),
    _rule("seq_in", TEXTS - TRAINING, rf"{READ} +(?:of|with|,) {_NUMBER}[ -]tokens?\b(?! (?:out|answers?))", _whole),
    _rule("seq_in", TEXTS, rf"{_NUMBER}[ -]?(?:{_TOKENS_IN}|input tokens?|tokens?[ -]{_INPUTS})\b", _whole),
    _rule("seq_in", TEXTS, rf"\b(?:prompts?|inputs?|contexts?|sequence length) (?:of )?{_NUMBER}(?: tokens?\b)?", _whole),
    _rule("seq_in", TEXTS, rf"{_NUMBER} (?:in\b(?=[ ,/]+(?:and )?\d{_THEN_OUT})|(?:context|sequence)(?: lengths?|s)?\b)", _whole),
    _rule("seq_out", TEXTS, rf"{_NUMBER}[ -]?(?:(?:tokens? )?out|output tokens?|tokens?[ -]{_OUTPUTS})\b", _whole),
    _rule("seq_out", TEXTS, rf"\b(?:answers?|outputs?|replies|responses?) of {_NUMBER}(?: tokens?\b)?", _whole),
    _rule("tokens", TRAINING, rf"{_NUMBER}[ -]tokens?\b", _count),
    _rule("epochs", TRAINING, rf"{_NUMBER} epochs?\b", _whole),
    _rule("steps", TRAINING, rf"{_NUMBER} (?:training )?steps\b", _whole),
    _rule("batch", frozenset({"serve"}), rf"{_NUMBER} (?:concurrent|simultaneous) (?:{MEMBERS}|requests|chats)\b", _whole),
    _rule("people", frozenset({"serve"}), rf"\bteam of {_NUMBER}(?: {MEMBERS}\b)?", _whole),
    _rule("people", frozenset({"serve"}), rf"{_NUMBER} (?:(?:daily|active|monthly|regular) )*{MEMBERS}\b", _whole),
    _rule("max_power", ALL - {"fit"}, rf"{_AT_MOST}\b(\d+(?:\.\d+)? ?(?:kw|watts?|w)\b)(?: of power)?", _power),
    _rule("deadline", RUNS, rf"\b(?:in|within|under|less than|at most) {_LONG_TIME}", _time),
    _rule("deadline", RUNS, r"\b(?:for|over|in|within|on) (?:a|the|1) (weekend)\b", lambda _: "2d"),
    _rule("duration", SERVICES, rf"\bfor {_LONG_TIME}", _time),
    _rule("duration", SERVICES, rf"{_LONG_TIME} of\b", _time),
    _rule("duration", SERVICES, r"\b(?:all|the whole) (year)\b(?:[ -](?:round|long))?", lambda _: "1y"),
    _rule("image", frozenset({"images"}), r"(?:\b(?:of|at|in) )?\b(\d{3,4}) ?(?:[x×] ?\1\b|²|\^2)(?: ?(?:px|pixels?)\b)?", str),
    _rule("image", frozenset({"images"}), r"(?:\b(?:of|at|in) )?\b(\d{3,4}) ?(?:px|pixels?)\b", str),
    _rule("samples", frozenset({"images"}), rf"{_NUMBER}[ {READ}]+(?:{_PICTURES}|videos|clips|prompts|samples)\b", _count),
    _rule("samples", TRAINING, rf"{_NUMBER} (?:{_PICTURES}|samples|examples|documents)\b", _count),
    _rule("deadline", frozenset({"batch", "images"}), rf"{READ} +(?:an?|per|each|every|/) ?(hour|day|week|month)\b", _one),
    _rule("term", RUNS, r"(?:\b(?:on|as|with) )?\b(spot)\b(?: (?:instances?|machines?))?", str),
    _rule("as_of", ALL, _YEAR, lambda year: f"{year}-07-01"),
    _rule("min_memory", ALL - {"fit"}, r"\b(\d+) ?gb (?:of )?(?:v?ram|memory|gpu|card)\b", lambda n: f"{n}GB"),
    _rule("min_memory", ALL - {"fit"}, r"\b(\d+) ?gb\b(?= \w+ (?:gpu|card)\b)", lambda n: f"{n}GB"),
    _rule("gpus", ALL, rf"{_NUMBER} (?:gpus?|cards?)\b", _whole),
    _rule("batch", ALL, rf"\bbatch(?: size)?(?: of)? {_NUMBER}", _whole),
    _rule("precision", ALL, r"\b(?:in |at )?(fp32|tf32|bf16|fp16|fp8|int8|int4|nvfp4|mxfp4)\b", str),
    _rule("precision", ALL, r"\b(?:in |at )?([48])[ -]?bits?\b", lambda bits: f"int{bits}"),
)  # fmt: skip
