"""Record the numbers of the command line's answers to the golden questions, or compare two recordings number by number.

    PYTHONPATH=src:tools python -m golden record before.jsonl
    PYTHONPATH=src:tools python -m golden compare before.jsonl after.jsonl

A recording has one line per question: its command line, its exit code and every number, amount, date and truth value of the JSON
answer by its path. Sentences are left out: wording may change, numbers may not.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

QUESTIONS = Path(__file__).with_name("questions.txt")
# Paths that depend on the clock or on how long a search took, not on the question.
VOLATILE = re.compile(r"(^|\.)(age_days|seconds_taken|solver_seconds|elapsed|took|today|wall|checked_on)(\.|$)|^seconds$")
NUMBER = re.compile(r"[-+]?\d[\d.,eE+-]*")


def questions() -> list[list[str]]:
    """The command lines, without their comments."""
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    return [shlex.split(line) for line in lines if line.strip() and not line.startswith("#")]


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a JSON document that is a number, a truth value, or a text that is wholly a number or a date."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from numbers(item, f"{path}.{place}")
    elif (isinstance(value, bool | int | float) or _is_figure(value)) and not VOLATILE.search(path):
        yield path, value


def _is_figure(value: Any) -> bool:
    return isinstance(value, str) and NUMBER.fullmatch(value) is not None


def answered(argv: list[str]) -> dict[str, Any]:
    """Exit code and numbers of one question's answer, computed in this process."""
    from whichgpu.surface.cli.main import main

    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = main([*argv, "--json"])
    text = out.getvalue()
    try:
        document = json.loads(text)
    except ValueError:
        return {"question": shlex.join(argv), "exit": code, "numbers": {"characters": len(text)}}
    return {"question": shlex.join(argv), "exit": code, "numbers": dict(numbers(document))}


def record(path: str) -> int:
    """Ask every question and write the recording."""
    every_question = questions()
    with open(path, "w", encoding="utf-8") as out:
        for place, argv in enumerate(every_question, start=1):
            out.write(json.dumps(answered(argv)) + "\n")
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{place}/{len(every_question)}")
    return 0


def compare(before: str, after: str) -> int:
    """Print every question whose exit code or numbers differ; exit status 1 if there is one."""
    first, second = _read(before), _read(after)
    changed = 0
    for question in first:
        difference = _difference(first[question], second.get(question))
        if difference:
            changed += 1
            print(f"{question}\n  {difference}")
    print(f"{len(first)} questions, {changed} changed, {len(second.keys() - first.keys())} new")
    return 1 if changed else 0


def _read(path: str) -> dict[str, dict[str, Any]]:
    with open(path, encoding="utf-8") as lines:
        return {row["question"]: row for row in map(json.loads, lines)}


def _difference(first: dict[str, Any], second: dict[str, Any] | None) -> str:
    """Differences between two answers to one question in one line; empty if there are none."""
    if second is None:
        return "not asked"
    if first["exit"] != second["exit"]:
        return f"exit {first['exit']} -> {second['exit']}"
    old, new = first["numbers"], second["numbers"]
    differing = [path for path in old if path in new and old[path] != new[path]]
    gone, added = old.keys() - new.keys(), new.keys() - old.keys()
    changes = [f"{path}: {old[path]} -> {new[path]}" for path in differing[:3]]
    changes += [f"{len(paths)} {word} ({sorted(paths)[0]})" for word, paths in (("gone", gone), ("new", added)) if paths]
    if len(differing) > 3:
        changes.append(f"{len(differing)} differ")
    return "; ".join(changes)


def main(argv: list[str]) -> int:
    """Run `record` or `compare`."""
    if len(argv) == 2 and argv[0] == "record":
        return record(argv[1])
    if len(argv) == 3 and argv[0] == "compare":
        return compare(argv[1], argv[2])
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
