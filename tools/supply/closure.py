"""Which distributions an extra brings, told by what is installed."""

from __future__ import annotations

import importlib.metadata as metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
TOOLS = ("pip", "setuptools", "wheel")  # come with a virtual environment


def key(name: str) -> str:
    """A name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Versions by name, from constraints.txt."""
    lines = (line.partition("#")[0].strip() for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines())
    return {key(name): version for name, equals, version in (line.partition("==") for line in lines) if equals}


def stated() -> dict[str, list[Requirement]]:
    """What pyproject.toml asks for, by extra; "" is what every installation has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [Requirement(text) for text in texts] for extra, texts in found.items()}


def closure(*extras: str) -> dict[str, metadata.Distribution]:
    """Every installed distribution that the base and these extras lead to, by name."""
    asked = stated()
    left = [requirement for extra in ("", *extras) for requirement in asked[extra]]
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    while left:
        requirement = left.pop()
        for extra in ("", *requirement.extras):
            if (key(requirement.name), extra) in seen:
                continue
            seen.add((key(requirement.name), extra))
            try:
                one = found[key(requirement.name)] = metadata.distribution(requirement.name)
            except metadata.PackageNotFoundError:
                continue
            left += _wanted(one, extra)
    return found


def _wanted(one: metadata.Distribution, extra: str) -> Iterator[Requirement]:
    for text in one.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement
