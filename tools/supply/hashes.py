"""SHA-256 digests of every file that an index offers for the pinned versions: `PYTHONPATH=tools python -m supply.hashes`.

Writes `requirements-run.txt`, `-dev` and `-long`, which `tools/environment` installs first, with pip's --require-hashes.
All files of a version are listed, so that every platform's wheel is included; without addresses, so that any mirror works. Needs
the network: the index is pip's own (PIP_INDEX_URL, else PyPI).
"""

from __future__ import annotations

import html
import os
import re
import sys
from collections.abc import Mapping

import httpx

from supply.closure import ROOT, TOOLS, closure, pins

INDEX = "https://pypi.org/simple"
RUN = ("plot", "web", "yaml")
KINDS: Mapping[str, tuple[str, ...]] = {"run": RUN, "dev": ("dev", *RUN), "long": ("long", "dev", *RUN)}
_FILE = re.compile(r'<a[^>]*href="[^"#]*#sha256=([0-9a-f]{64})"[^>]*>([^<]+)</a>')


def digests(page: str, name: str, version: str) -> tuple[str, ...]:
    """Digests of the files of one version on an index's page of a package.

    >>> digests('<a href="x/a_b-1.0.tar.gz#sha256=' + 64 * "0" + '">a_b-1.0.tar.gz</a>', "a-b", "1.0") == (64 * "0",)
    True
    """
    squashed = re.sub(r"[-_.]+", "[-_.]+", name)
    pattern = re.compile(rf"{squashed}-{re.escape(version)}(-.*\.whl|\.tar\.gz|\.zip)", re.IGNORECASE)
    return tuple(sorted({digest for digest, file in _FILE.findall(page) if pattern.fullmatch(html.unescape(file).strip())}))


def requirements(kind: str, digests_by_name: Mapping[str, tuple[str, ...]]) -> str:
    """Text of the requirements file of one kind of environment."""
    names = sorted(name for name in closure(*KINDS[kind]) if name not in TOOLS)
    lines = [f"# Made by supply.hashes; `tools/environment {kind}` installs these, each held against its digests."]
    for name in names:
        hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in digests_by_name[name])
        lines.append(f"{name}=={pins()[name]}{hashes}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Query the index and write the files."""
    index = os.environ.get("PIP_INDEX_URL", INDEX).rstrip("/")
    digests_by_name: dict[str, tuple[str, ...]] = {}
    with httpx.Client(follow_redirects=True, timeout=60) as client:
        for name in sorted(closure(*KINDS["long"])):
            if name not in TOOLS:
                digests_by_name[name] = digests(client.get(f"{index}/{name}/").raise_for_status().text, name, pins()[name])
    if lacking := [name for name, file_digests in digests_by_name.items() if not file_digests]:
        print(f"the index has no digests of: {', '.join(lacking)}", file=sys.stderr)
        return 1
    for kind in KINDS:
        (ROOT / f"requirements-{kind}.txt").write_text(requirements(kind, digests_by_name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
