"""Software bill of materials (CycloneDX 1.6, JSON) of the default installation: `PYTHONPATH=tools python -m supply.sbom [FILE]`.

Lists every package with its version, licence and the SHA-256 digests of the files that an index offers for it, as pinned in
`requirements-run.txt`. The same tree gives the same bytes: it has no time and no random serial number.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from supply.closure import ROOT, TOOLS, closure, key, stated
from supply.licences import SHIPPED, licence

PINNED_FILES = ROOT / "requirements-run.txt"
NAME = "whichgpu"
_VERSION = re.compile(r'__version__ = "(.+)"')


def version() -> str:
    """This project's version."""
    match = _VERSION.search((ROOT / "src" / NAME / "base" / "version.py").read_text(encoding="utf-8"))
    assert match is not None
    return match[1]


def pinned_digests() -> dict[str, tuple[str, ...]]:
    """SHA-256 digests of the files of each pinned package."""
    text = PINNED_FILES.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line for line in text.splitlines() if "==" in line and not line.startswith("#"))
    return {key(line.partition("==")[0]): tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", line)) for line in lines}


def bill() -> dict[str, Any]:
    """The bill of materials as a JSON document."""
    packages = {name: one for name, one in closure(*SHIPPED).items() if name not in TOOLS}
    own, references = f"pkg:pypi/{NAME}@{version()}", {name: f"pkg:pypi/{name}@{one.version}" for name, one in packages.items()}
    direct = {key(requirement.name) for extra in ("", *SHIPPED) for requirement in stated()[extra]}
    digests = pinned_digests()
    components = [
        {
            "type": "library",
            "bom-ref": references[name],
            "name": name,
            "version": one.version,
            "purl": references[name],
            "licenses": [{"expression": licence(one)}],
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"https://pypi.org/project/{name}/{one.version}/",
                    "hashes": _hashes(digests[name]),
                }
            ],
        }
        for name, one in sorted(packages.items())
    ]
    needs = {
        name: {key(Requirement(text).name) for text in one.requires or ()} & packages.keys() for name, one in packages.items()
    }
    dependencies = [{"ref": own, "dependsOn": sorted(references[name] for name in direct & packages.keys())}]
    dependencies += [
        {"ref": references[name], "dependsOn": sorted(references[other] for other in others)}
        for name, others in sorted(needs.items())
    ]
    project = {"type": "application", "bom-ref": own, "name": NAME, "version": version(), "purl": own,
               "licenses": [{"expression": "Apache-2.0"}]}  # fmt: skip
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": project}}
    return head | {"components": components, "dependencies": dependencies}


def _hashes(digests: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest} for digest in digests]


def main() -> None:
    """Write the document to a file or to standard output."""
    text = json.dumps(bill(), indent=1) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
