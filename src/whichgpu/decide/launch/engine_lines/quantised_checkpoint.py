"""Published checkpoints with a model's weights in a lower precision, from the repositories that the catalog lists."""

from __future__ import annotations

from whichgpu.catalog.model import Model, model_key
from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import built_in_member

# Ends of the names of repositories with weights in a precision, in the order of preference.
NAME_ENDS = {
    "fp8": ("-fp8-dynamic", "-fp8"), "int8": ("-quantized.w8a8",), "nvfp4": ("-nvfp4",), "awq": ("-awq-int4", "-awq"),
    "int4": ("-quantized.w4a16", "-awq-int4", "-awq", "-gptq-int4"), "gptq": ("-gptq-int4",),
}  # fmt: skip
PUBLISHERS = ("RedHatAI", "nvidia", "hugging-quants")  # Others than the model's maker whose checkpoints are named.
ENGINES = ("vllm", "sglang")  # These read the precision of any such checkpoint from its config.json.
INSTRUCTION_TUNED = ("instruct", "chat", "-it")


def quantised_checkpoint(model: object, precision: str, engine: str, catalog: Catalog) -> str | None:
    """Return the repository of a model's weights in a precision, the instruction-tuned one first; None if none is listed.

    A model that is named as a repository gets only checkpoints of that repository's weights.
    """
    if not isinstance(model, str) or engine not in ENGINES or precision not in NAME_ENDS:
        return None
    name = model.removeprefix("hf:")
    keys = {model_key(name), model_key(built_in_member(name, catalog) or name)}
    row = next((row for row in catalog.models if keys & set(map(model_key, row.names))), None)
    if row is None:
        return None
    maker, bases = _own_names(row)
    if "/" in name:
        bases &= {name.rpartition("/")[2].lower()}
    publishers, ends = (maker, *PUBLISHERS), NAME_ENDS[precision]
    matches = []
    for repository in next((one.repositories for one in catalog.repositories if one.model == row.id), ()):
        owner, _, short = repository.partition("/")
        for order, end in enumerate(ends):
            base = short.lower().removesuffix(end)
            if owner in publishers and short.lower().endswith(end) and base in bases:
                matches.append((not is_instruction_tuned(base), order, publishers.index(owner), repository))
    return min(matches)[-1] if matches else None


def is_instruction_tuned(name: str) -> bool:
    """Whether a repository's name says that its weights are instruction-tuned."""
    return any(word in name.lower() for word in INSTRUCTION_TUNED)


def _own_names(row: Model) -> tuple[str, set[str]]:
    """Return the account of a model's maker, and the names of the maker's repositories of it in lower case."""
    repositories = [alias.split("/") for alias in row.aliases if alias.count("/") == 1]
    maker = repositories[0][0] if repositories else ""
    return maker, {short.lower() for owner, short in repositories if owner == maker}
