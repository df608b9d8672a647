"""Check whether this tree can be released: `make release-check`.

Builds wheel, sdist and bill of materials, installs the wheel into an empty environment, runs the README's examples as written
(with the installed program in place of ./whichgpu), and checks the version, the changelog and the tree. Prints the checks it left
out and why.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "src/whichgpu/base/version.py").read_text(encoding="utf-8"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SKIPPED = {
    "make test": "is run by itself",
    "catalog refresh": "needs the network",
    "catalog watch": "needs prices that catalog refresh fetched",
    "measure": "needs a GPU",
    "watch --price": "needs a GPU, and goes on until it is stopped",
    "web": "serves until it is stopped",
}
SBOM = f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); from supply.sbom import main; main()"
MAY_EXIT_ONE = ("doctor", "fit")  # commands that may exit with 1: without a GPU, or if nothing fits
TRACE = "time,prompt_tokens,output_tokens\n" + "".join(f"{0.5 * n},{200 + 37 * n % 900},{50 + 11 * n % 200}\n" for n in range(60))


def main() -> int:
    """Run all checks; return 1 if one fails."""
    faults = [*version(), *tree(), *digests()]
    with tempfile.TemporaryDirectory() as folder:
        program = installed(Path(folder))
        faults += examples(program, Path(folder))
    for fault in faults:
        print(f"FAILED  {fault}")
    print("not ready" if faults else "ready to be released")
    return 1 if faults else 0


def version() -> Iterator[str]:
    """Check that the changelog's newest heading but Unreleased is this version, with its date or marked as unreleased."""
    assert VERSION is not None
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    newest = headings[1:] if headings[:1] == ["Unreleased"] else headings
    heading = re.compile(rf"{re.escape(VERSION[1])} (\((unreleased|\d{{4}}-\d\d-\d\d)\)|- \d{{4}}-\d\d-\d\d)")
    print(f"version {VERSION[1]}, changelog {headings[:2]}")
    if not newest or not heading.fullmatch(newest[0]):
        yield f"CHANGELOG.md begins with {headings[:2]}, the version is {VERSION[1]}"


def tree() -> Iterator[str]:
    """Check that nothing is changed or untracked."""
    status = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=False)
    if status.returncode or status.stdout.strip():
        yield f"the tree is not clean: {(status.stdout or status.stderr).split(chr(10))[:5]}"


def digests() -> Iterator[str]:
    """Check that the list of digests is of this tree: an installation refuses files that differ from it."""
    sys.path.insert(0, str(ROOT / "src"))
    from whichgpu.base.bundled_data import SUMS, checksum_lines

    if SUMS.read_text(encoding="utf-8") != checksum_lines():
        yield f"{SUMS.relative_to(ROOT)} is not of this tree: run tools/digests"


def installed(folder: Path) -> Path:
    """The program, installed from the wheel into an empty environment."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT))
    (wheel,) = (folder / "dist").glob("*.whl")
    run(sys.executable, "-c", SBOM, str(folder / "dist" / "whichgpu.cdx.json"))
    run(sys.executable, "-m", "venv", str(folder / "venv"))
    pip = str(folder / "venv" / "bin" / "pip")
    pins = ("-c", str(ROOT / "constraints.txt"))
    run(pip, "install", "-q", "--disable-pip-version-check", *pins, f"whichgpu[plot,web,yaml] @ {wheel.as_uri()}")
    return folder / "venv" / "bin" / "whichgpu"


def examples(program: Path, folder: Path) -> Iterator[str]:
    """Run every shell line and every Python block of the README."""
    home = folder / "home"
    home.mkdir()
    (home / "requests.csv").write_text(TRACE, encoding="utf-8")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WHICHGPU_", "XDG_"))}
    settings = variables | {"HOME": str(home), "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    for language, block in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        if language == "python":
            yield from _tried([str(program.parent / "python"), "-c", block], block.strip().partition("\n")[0], home, settings)
        for line in block.splitlines() if language in ("sh", "bash") else ():
            for words in _commands(line):
                yield from _line(words, program, home, settings)


def _commands(line: str) -> Iterator[list[str]]:
    """Commands of a line, without its comment."""
    words: list[str] = []
    for word in (*shlex.split(line, comments=True), ";"):
        if word.endswith(";"):
            if words := [*words, *([word[:-1]] if word != ";" else [])]:
                yield words
            words = []
        else:
            words.append(word)


def _line(words: list[str], program: Path, home: Path, settings: dict[str, str]) -> Iterator[str]:
    command, arguments = shlex.join(words), " ".join(words[1:])
    reason = next((why for start, why in SKIPPED.items() if command == start or f"{arguments} ".startswith(f"{start} ")), None)
    if reason:
        print(f"skipped {command}: {reason}")
    elif words[0] not in ("./whichgpu", "whichgpu"):
        yield f"README: {command!r} is no example this check knows"
    else:
        yield from _tried([str(program), *words[1:]], command, home, settings)


def _tried(argv: list[str], command: str, home: Path, settings: dict[str, str]) -> Iterator[str]:
    result = subprocess.run(argv, cwd=home, env=settings, capture_output=True, text=True, timeout=600, check=False)
    allowed = (0, 1) if argv[1] in MAY_EXIT_ONE else (0,)
    print(f"{'ok     ' if result.returncode in allowed else 'BROKEN '} {command}", flush=True)
    if result.returncode not in allowed:
        yield f"README: {command} gives {result.returncode}: {result.stderr.strip()[-300:]}"


def run(*argv: str) -> None:
    """Run a command that must succeed."""
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    print(f"{'ok     ' if result.returncode == 0 else 'BROKEN '} {Path(argv[0]).name} {' '.join(argv[1:4])}", flush=True)
    if result.returncode:
        raise SystemExit(result.stdout + result.stderr)


if __name__ == "__main__":
    sys.exit(main())
