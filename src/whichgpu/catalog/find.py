"""Look-up of GPUs, instances, processors, regions and providers by the name a user types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from whichgpu.base.errors import AmbiguousName, NoAnswer, UnknownName, UsageError, WhichGpuError
from whichgpu.base.messages import Fact, msg
from whichgpu.base.names import nearest, split_count, squash, words
from whichgpu.catalog.exact import exact_matches
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Cpu, Instance, Region
from whichgpu.catalog.names.printed import names_in_line
from whichgpu.catalog.places.city import find_city
from whichgpu.catalog.places.country import countries, countries_named
from whichgpu.catalog.store import Catalog

T = TypeVar("T")
_CODE = re.compile(r"[$`;|<>{}\\]")  # Characters of a shell's code that no place has in its name.

# Words that people and tools add or leave out without meaning another GPU.
MAKERS = frozenset("nvidia amd intel google aws apple geforce radeon instinct generation gpu corporation graphics card".split())
FILLERS = frozenset("tensor core accelerator with design lite hash rate".split())  # Max-Q Design, Tensor Core GPU, Lite Hash Rate
BRANDS = MAKERS | FILLERS | frozenset("gtx rtx tesla quadro rx".split())

# Apple's computers and the tiers of its chips that they are sold with ("" is the plain chip).
COMPUTERS = {
    "mac": ("", "pro", "max", "ultra"), "applesilicon": ("", "pro", "max", "ultra"), "macbook": ("", "pro", "max"),
    "macbookair": ("",), "macbookpro": ("", "pro", "max"), "imac": ("",), "macmini": ("", "pro"), "macstudio": ("max", "ultra"),
    "macpro": ("ultra",),
}  # fmt: skip

MAX_NAME_CHARACTERS = 200  # Longest name to look up; no name in the catalog comes near it (set by judgement).
MAX_NAME_WORDS = 6  # Words of the longest name, such as NVIDIA RTX PRO 6000 Blackwell Server.

_SXM = re.compile(r"sxm\d")
_GIGABYTES = re.compile(r"(\d+)g(?:i?b)?")


def find_gpus(catalog: Catalog, name: str) -> tuple[Gpu, ...]:
    """Return all GPU variants that match a name: of the GPU, its family, or a cloud instance that has it.

    A leading or trailing count (`8xA100`) is ignored. An unknown name raises with the nearest known ones, an accelerator
    without published figures with what is not known of it.
    """
    if len(name) > MAX_NAME_CHARACTERS:
        raise UsageError("name-too-long", msg("error.name-too-long", n=len(name)), msg("hint.list-gpus"))
    count, bare = split_count(name)
    if count == 0 or name.lstrip().startswith("-"):
        raise UsageError("bad-count", msg("error.bad-count", name=name), msg("hint.bad-count"))
    if matches := gpus_named(catalog, name):
        return matches
    if machines := exact_instances(catalog.instances, bare):
        return tuple({machine.gpu: catalog.gpu_in(machine) for machine in machines}.values())
    if refused := exact_matches(catalog.unsupported, bare, lambda row: (row.id, row.name, *row.aliases)):
        message = msg("error.unsupported-gpu", name=refused[0].name, why=Fact(refused[0].why))
        raise NoAnswer("unsupported-gpu", message, msg("hint.list-gpus"))
    if model := next((model for model in catalog.models if squash(name) in map(squash, model.names)), None):
        message = msg("error.unknown-gpu", name=bare)
        raise UnknownName("unknown-gpu", message, msg("hint.model-for-gpu", model=model.id))
    names = [gpu.name for gpu in catalog.gpus] + [gpu.family for gpu in catalog.gpus]
    raise _unknown("gpu", bare, names)


def gpus_named(catalog: Catalog, name: str, loosely: bool = True) -> tuple[Gpu, ...]:
    """Return GPUs that match a name exactly or as a family; `loosely` also as an architecture, vendor, series or brand."""
    attempts = (_exact_gpus, _family_gpus, _printed_gpus, _group_gpus, _series_gpus)[: 5 if loosely else 3]
    for text in (name, split_count(name)[1]):  # The whole name comes first: 5700XT is not 5,700 GPUs.
        for attempt in attempts:
            if matches := attempt(catalog.gpus, text):
                return matches
    return ()


def count_in_name(catalog: Catalog, name: str) -> int | None:
    """Return the number of GPUs in a GPU's name (8 in `8xA100`); None without one, also in names such as 5700XT."""
    count, bare = split_count(name)
    return count if count is not None and gpus_named(catalog, bare, loosely=False) else None


def join_names(words: Sequence[str], is_name: Callable[[str], object]) -> tuple[str, ...]:
    """Return the names in words typed without quotes: `titan x T4` is `titan x` and `T4`, the longest known names.

    Words that are all names by themselves are not joined: `RTX 3090 Ti` and `RTX 3090` are two.
    """
    names: list[str] = []
    rest = list(words)

    def is_one_name(run: Sequence[str]) -> bool:
        return not all(is_name(word) for word in run) and bool(is_name(" ".join(run)))

    while rest:
        length = next((n for n in range(min(len(rest), MAX_NAME_WORDS), 1, -1) if is_one_name(rest[:n])), 1)
        names.append(" ".join(rest[:length]))
        del rest[:length]
    return tuple(names)


def find_gpu(catalog: Catalog, name: str) -> Gpu:
    """Return the one GPU variant that a name means; several matches raise an error that lists them."""
    matches = find_gpus(catalog, name)
    if len(matches) > 1:
        choices = tuple(gpu.name for gpu in matches)
        raise AmbiguousName("ambiguous-gpu", msg("error.ambiguous-gpu", name=name), msg("hint.choices", choices=choices), choices)
    return matches[0]


def find_instances(catalog: Catalog, name: str) -> tuple[Instance, ...]:
    """Return instances of that name (`aws/p3.2xlarge` names the provider too), or all whose name begins with it (`p3`)."""
    provider, slash, bare = name.rpartition("/")
    rows = [row for row in catalog.instances if not slash or squash(row.provider) == squash(provider)]
    if matches := exact_instances(rows, bare) or _begins(rows, bare, lambda row: (row.instance, *row.aliases)):
        return matches
    raise _unknown("instance", bare, [row.instance for row in catalog.instances])


def find_cpus(catalog: Catalog, name: str) -> tuple[Cpu, ...]:
    """Return processors of that name, or all whose name contains those words (`epyc`, `xeon platinum`)."""

    def names(cpu: Cpu) -> tuple[str, ...]:
        return (cpu.id, cpu.name, *cpu.aliases)

    if matches := exact_matches(catalog.cpus, name, names):
        return matches
    if matches := _with_words(catalog.cpus, name, lambda cpu: (*names(cpu), cpu.vendor)) or _begins(catalog.cpus, name, names):
        return matches
    raise _unknown("cpu", name, [cpu.name for cpu in catalog.cpus])


def find_regions(catalog: Catalog, name: str) -> tuple[Region, ...]:
    """Return regions by id, city (in any language), country, continent or the provider's name (`Seoul`, `us-east-1`, `KR`).

    A country or a continent means all regions there.
    """

    def names(region: Region) -> tuple[str, ...]:
        return (region.region, f"{region.provider}/{region.region}", region.name, region.city or "", region.country or "")

    choices = [text for region in catalog.regions for text in (region.region, region.city or region.region)]
    choices += [country.name for country in countries()]
    if _CODE.search(name):
        raise _unknown("region", name, choices)
    called = exact_matches(catalog.regions, name, names)
    inside = countries_named(name)
    if there := tuple(region for region in catalog.regions if region.country in inside or (inside and region in called)):
        return there
    if matches := called or (() if inside else _begins(catalog.regions, name, names)):
        return matches
    if not inside and (matches := _with_words(catalog.regions, name, names)):
        return matches
    if city := find_city((region.city for region in catalog.regions if region.city), name):
        return tuple(region for region in catalog.regions if region.city == city)
    raise _unknown("region", name, choices)


def is_place(catalog: Catalog, name: str) -> bool:
    """Return whether a name is a country, a continent or a city with regions."""
    return bool(countries_named(name) or any(squash(name) == squash(region.city or "") for region in catalog.regions))


def find_provider(catalog: Catalog, name: str) -> str:
    """Return the id of a provider from its id, its name or a word of it."""
    if (id := catalog.provider_id(name)) is not None:
        return id
    by_word = [provider.id for provider in catalog.providers if name.lower() in words(provider.name)]  # Such as Amazon or Google.
    if len(by_word) == 1:
        return by_word[0]
    names = [text for provider in catalog.providers for text in (provider.id, provider.name)]
    raise _unknown("provider", name, names)


def _exact_gpus(gpus: Iterable[Gpu], name: str) -> tuple[Gpu, ...]:
    return exact_matches(gpus, name, lambda gpu: (gpu.id, gpu.name, f"{gpu.vendor} {gpu.name}", *gpu.aliases))


def _family_gpus(gpus: Sequence[Gpu], name: str) -> tuple[Gpu, ...]:
    """Return GPU variants of the family in a name, filtered by its other words: `A100 80GB`, `H100 SXM5`, `titan x pascal`."""
    name_words = _gpu_words(name)
    best: dict[int, list[Gpu]] = {}
    for gpu in gpus:
        family = _gpu_words(gpu.family)
        rest = name_words - family
        own = _gpu_words(f"{gpu.name} {gpu.memory_label.replace(' ', '')} {gpu.form_factor} {gpu.architecture}")
        if family and family <= name_words and rest <= own:
            best.setdefault(len(family), []).append(gpu)
    if best:
        return _fully_named(best[max(best)], name)
    joined = squash(name)
    return tuple(gpu for gpu in gpus if joined in (squash(gpu.family), squash("".join(distinctive_words(gpu.family)))))


def _fully_named(gpus: Sequence[Gpu], name: str) -> tuple[Gpu, ...]:
    """Return the variants whose own name has no word that `name` lacks (RTX 4000 Ada, not SFF); all if every one has.

    A name that several makers use (`M4`) means all of them.
    """
    if len({gpu.vendor for gpu in gpus}) > 1:
        return tuple(gpus)
    name_words = _gpu_words(name, MAKERS)
    return tuple(gpu for gpu in gpus if _gpu_words(gpu.name, MAKERS) <= name_words) or tuple(gpus)


def _printed_gpus(gpus: Sequence[Gpu], line: str) -> tuple[Gpu, ...]:
    """Return GPUs named within a line that another tool printed, such as `lspci`: all products that share the device."""
    for products in names_in_line(line):
        matches = {gpu.id: gpu for name in products for gpu in _exact_gpus(gpus, name) or _family_gpus(gpus, name)}
        if matches:
            return tuple(matches.values())
    return ()


def distinctive_words(family: str, ignored: frozenset[str] = BRANDS) -> tuple[str, ...]:
    """Return the words of a family name that distinguish it from others (no brand names), in their order."""
    distinct = tuple(word for word in words(family) if word not in ignored)
    return distinct or words(family)


def _series_gpus(gpus: Iterable[Gpu], name: str) -> tuple[Gpu, ...]:
    """Return GPUs whose name begins with a text, not cut within a number (`MI300`, `TPU`), or of that brand (`Radeon`)."""
    joined = squash(name)
    if len(joined) < 3:
        return ()

    def continues(text: str) -> bool:
        rest = squash(text).removeprefix(joined)
        return rest != squash(text) and not (joined[-1].isdigit() and rest[:1].isdigit())

    matches = tuple(gpu for gpu in gpus if continues(gpu.family) or continues(gpu.name))
    return matches or tuple(gpu for gpu in gpus if joined in _alias_words(gpu.aliases))


@lru_cache(maxsize=1024)
def _alias_words(aliases: tuple[str, ...]) -> frozenset[str]:
    return frozenset(word for alias in aliases for word in words(alias))


def _group_gpus(gpus: Iterable[Gpu], name: str) -> tuple[Gpu, ...]:
    """Return the GPUs of the architecture, vendor or computer that a name means; () if it means none of them."""
    joined = squash(name)
    return tuple(gpu for gpu in gpus if joined in (squash(gpu.architecture), gpu.vendor)) or gpus_in_computer(gpus, name)


def gpus_in_computer(gpus: Iterable[Gpu], name: str) -> tuple[Gpu, ...]:
    """Return the GPUs that a computer of Apple's is sold with (`mac studio`); () for any other name."""
    tiers = COMPUTERS.get(squash(name).removeprefix("apple")) or COMPUTERS.get(squash(name)) or ()
    every = COMPUTERS["mac"]
    chips = ((gpu, next((tier for tier in every[1:] if tier in words(gpu.name)), "")) for gpu in gpus if gpu.vendor == "apple")
    return tuple(gpu for gpu, tier in chips if tier in tiers)


@lru_cache(maxsize=4096)
def _gpu_words(name: str, ignored: frozenset[str] = BRANDS) -> frozenset[str]:
    parts: list[str] = []
    for word in distinctive_words(name, ignored):
        if word in ("gb", "gib", "g") and parts and parts[-1].isdigit():
            parts[-1] += "gb"
        elif match := _GIGABYTES.fullmatch(word):
            parts.append(f"{match[1]}gb")
        else:
            parts.append("sxm" if _SXM.fullmatch(word) else "laptop" if word in ("mobile", "notebook") else word)
    return frozenset(parts)


def exact_instances(rows: Iterable[Instance], name: str) -> tuple[Instance, ...]:
    """Return the cloud instances of exactly that name."""
    return exact_matches(rows, name, lambda row: (row.instance, *row.aliases))


def _begins(rows: Iterable[T], name: str, names: Callable[[T], tuple[str, ...]]) -> tuple[T, ...]:
    """Return rows with a name that begins with the text: `p3` matches all P3 instances, p3dn included."""
    start = name.strip().lower()
    return tuple(row for row in rows if start and any(text.lower().startswith(start) for text in names(row)))


def _with_words(rows: Iterable[T], name: str, names: Callable[[T], tuple[str, ...]]) -> tuple[T, ...]:
    """Return rows whose names (by `names`) together contain all words of a typed name."""
    name_words = set(words(name))
    return tuple(row for row in rows if name_words and name_words <= set(words(" ".join(names(row)))))


def _unknown(what: str, name: str, names: Sequence[str]) -> WhichGpuError:
    if not names:  # A catalog as known at an early date may be empty.
        return NoAnswer("nothing-known", msg(f"error.no-{what}", n=0), msg("hint.nothing-known"))
    choices = nearest(name, names)
    hint = msg("hint.nearest", choices=choices) if choices else msg(f"hint.list-{what}s")
    return UnknownName(f"unknown-{what}", msg(f"error.unknown-{what}", name=name), hint, choices)
