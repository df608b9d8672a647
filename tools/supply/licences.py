"""Licences of the packages that users install, as in docs/licences.md; and a check of every package's licence.

`PYTHONPATH=tools python -m supply.licences` writes the page.
"""

from __future__ import annotations

import importlib.metadata as metadata
import re

from supply.closure import ROOT, closure, key, stated

PAGE = ROOT / "docs" / "licences.md"
SHIPPED = ("web", "plot")  # extras of the default installation
# Large optional extras that are not installed here, with the licences that their metadata state.
APART = {"pyarrow": "Apache-2.0", "ray": "Apache-2.0", "torch": "BSD-3-Clause"}

# Licences of packages that may be used and redistributed with this project; MPL-2.0 covers changes of its own files only.
ACCEPTED = frozenset(
    "MIT MIT-0 MIT-CMU BSD BSD-2-Clause BSD-3-Clause 0BSD ISC Apache-2.0 PSF-2.0 Python-2.0 MPL-2.0 Zlib CC0-1.0 Unlicense HPND "
    "BSL-1.0".split()
)
_WORDS = (
    (r"mit license|^mit$|the mit license", "MIT"),
    (r"apache.*2|apache software", "Apache-2.0"),
    (r"bsd.?2|2.clause", "BSD-2-Clause"),
    (r"bsd.?3|3.clause", "BSD-3-Clause"),
    (r"bsd", "BSD"),
    (r"mozilla public license 2|mpl.?2", "MPL-2.0"),
    (r"python software foundation|^psf", "PSF-2.0"),
    (r"isc", "ISC"),
    (r"historical permission", "HPND"),
)


def licence(one: metadata.Distribution) -> str:
    """SPDX expression of a distribution's licence; the text of its metadata if that is none, "unknown" without any."""
    fields = one.metadata
    if "License-Expression" in fields:
        return fields["License-Expression"]
    classifiers = [text.rpartition("::")[2] for text in fields.get_all("Classifier") or () if text.startswith("License ::")]
    for text in (*(fields.get_all("License") or ()), *classifiers, _text(one)):
        short = text.strip().partition("\n")[0].lower()
        for pattern, name in _WORDS:
            if re.search(pattern, short):
                return name
    return "unknown"


def accepted(expression: str) -> bool:
    """Whether every part joined by AND is accepted, or one of those joined by OR.

    >>> accepted("MIT AND PSF-2.0"), accepted("GPL-3.0 OR MIT"), accepted("AGPL-3.0-only"), accepted("unknown")
    (True, True, False, False)
    """
    plain = expression.replace("(", " ").replace(")", " ")
    return any(all(part.partition(" WITH ")[0].strip() in ACCEPTED for part in one.split(" AND ")) for one in plain.split(" OR "))


def page() -> str:
    """Text of the page."""
    names = {extra: {key(one.name) for one in requirements} for extra, requirements in stated().items()}
    base = closure()
    rows = []
    for name, one in sorted(closure(*SHIPPED).items()):
        why = "base" if name in base else ", ".join(extra for extra in SHIPPED if name in closure(extra))
        direct = any(name in names[extra] for extra in ("", *SHIPPED))
        rows.append(f"| {one.metadata['Name']} | {licence(one)} | {why} | {'yes' if direct else 'through another'} |")
    for name, expression in APART.items():
        rows.append(f"| {name} | {expression} | {', '.join(extra for extra in names if name in names[extra])} | yes |")
    return "\n".join((HEAD, *rows, ""))


HEAD = """\
# Licences of what it stands on

whichgpu itself is under [Apache-2.0](../LICENSE). It copies no code of others; these packages are installed beside it. Made by
`PYTHONPATH=tools python -m supply.licences` from their own metadata; a test fails where a package, also one for development, has
a licence that is not accepted (`tools/supply/licences.py`). The extra `trace` brings torch, which may bring CUDA libraries under
NVIDIA's own terms.

| package | licence | comes with | asked for |
|---|---|---|---|"""


def _text(one: metadata.Distribution) -> str:
    """First non-empty line of the licence file."""
    for path in one.files or ():
        if path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            return " ".join(lines[:2])
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
