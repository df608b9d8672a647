"""Flags that spell a workload, for every command that takes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from whichgpu.base.messages import Language, Message, msg
from whichgpu.surface.cli.frame import Names, Words, option
from whichgpu.workload.kinds import KINDS, LAYOUT, SWITCHES, Flag, Word
from whichgpu.workload.spelling import ALIASES, Spelled, flag_of, from_texts

LORA_RANK = 16  # of --lora alone
APART = ("task", "model", "gpu")  # arguments, or flags with a form of their own
METAVARS = {"parallel": "tp=N,…", "rate": "N/s", "ttft_max": "TIME", "tpot_max": "TIME", "lora_targets": "NAMES"}
# Defaults that need no saying.
QUIET = "gpus nodes optimizer_fused include_optimizer_step lora_targets qlora accumulation percentile task".split()


class Spelling(Words):
    """A word the workload's own reader checks; known here for completion."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return value


def workload_options(function: Any, without: tuple[str, ...] = ()) -> Any:
    """Add a flag for every field of a workload but some, and one for each degree of the layout."""
    for name in reversed(LAYOUT):
        switch = {"is_flag": True, "default": None} if name in SWITCHES else {"metavar": "N"}
        function = option(f"--{name}", help=f"option.workload-{name}", **switch)(function)
    function = option("--lora", is_flag=True, default=None, help="option.workload-lora")(function)
    for name in reversed([name for name in KINDS if name not in (*APART, *without)]):
        function = _flag(name)(function)
    return function


def _flag(name: str) -> Callable[[Any], Any]:
    kind, dashed = KINDS[name], flag_of(name)
    help = f"option.workload-{name.replace('_', '-')}"
    if isinstance(kind, Flag):
        return option(f"{dashed}/{dashed.replace('--', '--no-')}", name, default=None, help=help)
    short = [f"--{alias}" for alias, field in ALIASES.items() if field == name]
    known = (
        {"type": Spelling(name, partial(getattr, kind, "known")), "metavar": "NAME"}
        if isinstance(kind, Word)
        else {"metavar": METAVARS.get(name, "N")}
    )
    return option(dashed, *short, name, help=help, **known)


def spelled(values: dict[str, Any], **usual: Any) -> Spelled:
    """The workload of a command's flags."""
    degrees = {name: values.pop(name, None) for name in LAYOUT}
    if values.pop("lora", None) and values.get("lora_rank") is None:
        values["lora_rank"] = str(LORA_RANK)
    stated = [f"{name}={str(value).lower()}" for name, value in degrees.items() if value is not None]
    if stated:
        values["parallel"] = ",".join([*filter(None, [values.get("parallel")]), *stated])
    return from_texts(values, **usual)


def part_name(name: str, language: Language) -> str:
    """A part of memory in words."""
    id = f"part.{name}"
    return language.text(f"part.{name}") if id in language else name.replace("_", " ")


def model_names(catalog: Any) -> list[str]:
    """Built-in models, for completion."""
    return [model.id for model in catalog.models]


MODEL = Names(model_names)


def assumed(request: Mapping[str, Any]) -> Message:
    """What was taken where the user said nothing."""
    told = [name for name in request["defaults"] if name not in QUIET and isinstance(request[name], str | int)]
    shown = [f"{name} {request[name]}" for name in told if request[name] != "none"]
    return msg("fit.assumed", values=tuple(shown) or ("–",))
