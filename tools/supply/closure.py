"""Distributions that an extra installs, from the metadata of the installed ones."""

from __future__ import annotations

import importlib.metadata as metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
TOOLS = ("pip", "setuptools", "wheel")  # part of every virtual environment


def key(name: str) -> str:
    """A package name in the normalised form of package indexes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Versions by name, from constraints.txt."""
    lines = (line.partition("#")[0].strip() for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines())
    return {key(name): version for name, equals, version in (line.partition("==") for line in lines) if equals}


def stated() -> dict[str, list[Requirement]]:
    """Requirements of pyproject.toml by extra; "" are those of every installation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [Requirement(text) for text in texts] for extra, texts in requirements.items()}


def closure(*extras: str) -> dict[str, metadata.Distribution]:
    """Installed distributions that the base and these extras require, directly or not, by name."""
    requirements = stated()
    left = [requirement for extra in ("", *extras) for requirement in requirements[extra]]
    distributions: dict[str, metadata.Distribution] = {}
    visited: set[tuple[str, str]] = set()
    while left:
        requirement = left.pop()
        for extra in ("", *requirement.extras):
            if (key(requirement.name), extra) in visited:
                continue
            visited.add((key(requirement.name), extra))
            try:
                one = distributions[key(requirement.name)] = metadata.distribution(requirement.name)
            except metadata.PackageNotFoundError:
                continue
            left += _requirements(one, extra)
    return distributions


def _requirements(one: metadata.Distribution, extra: str) -> Iterator[Requirement]:
    for text in one.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement
