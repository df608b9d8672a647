"""tools/translations: what languages lack, and putting translations in place.

tools/translations status [LANG…]              state of each language; exit 1 if something is wrong
tools/translations check [LANG…]               every problem on a line of its own
tools/translations unchanged [ID …]            the English of these (of all stale ones) was reworded, its meaning is unchanged:
                                               keep their translations in every language
tools/translations reworded FILE               the same for facts and the reference, called by their English: a line each,
                                               the old sentence, a tab, the new one
tools/translations missing LANG                what is missing or stale as PO blocks to fill in, the English beside
tools/translations apply LANG FILE… [--from X] put partial PO files in place; X is the English they were made from, as a file
                                               or a commit, where that is not today's
tools/translations prune LANG                  take out what English has no more
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from translating.catalog import (
    NAMES,
    Entry,
    Forms,
    block,
    books,
    called_by_english,
    digest,
    english,
    of_book,
    quoted,
    read,
    read_language,
    written,
    written_book,
)  # fmt: skip
from translating.checks import KINDS, Problem, problems
from whichgpu.base.messages import LOCALE_DIR


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="tools/translations", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("status", "check"):
        commands.add_parser(name).add_argument("languages", nargs="*", metavar="LANG", default=[])
    for name in ("missing", "prune", "apply"):
        commands.add_parser(name).add_argument("language", metavar="LANG", choices=sorted(NAMES))
    commands.add_parser("unchanged").add_argument("ids", nargs="*", metavar="ID")
    commands.add_parser("reworded").add_argument("file", type=Path, metavar="FILE")
    apply_ = commands.choices["apply"]
    apply_.add_argument("files", nargs="+", metavar="FILE", type=Path)
    apply_.add_argument("--from", dest="source", metavar="EN", help="en.po they were made from: a file or a commit")
    options = parser.parse_args(argv)
    if options.command in ("status", "check"):
        return report(options.languages or sorted(NAMES), options.command == "check")
    if options.command == "unchanged":
        return keep_translations(options.ids)
    if options.command == "reworded":
        return carry_over(dict(line.split("\t", 1) for line in options.file.read_text(encoding="utf-8").splitlines()))
    if options.command == "missing":
        sys.stdout.write(to_translate(read_language(options.language), {**english(), **called_by_english()}))
        return 0
    if options.command == "prune":
        source = {**english(), **called_by_english()}
        write(options.language, {id: entry for id, entry in read_language(options.language).items() if id in source})
        return 0
    return put_in_place(options.language, options.files, options.source)


def keep_translations(ids: Sequence[str]) -> int:
    """Mark stale translations of these messages, or of all, as up to date if their placeholders still agree."""
    source = english()
    for code in sorted(NAMES):
        entries = read_language(code)
        stale = [id for id in (ids or source) if id in entries and id in source and entries[id].digest != digest(source[id])]
        renewed = {id: Entry(entries[id].forms, digest(source[id])) for id in stale}
        wrong = {problem.id for problem in problems(renewed, {id: source[id] for id in renewed})}
        write(code, entries | {id: entry for id, entry in renewed.items() if id not in wrong})
        print(f"{code}: {len(renewed) - len(wrong)} kept" + (f", {sorted(wrong)} differ in more than words" if wrong else ""))
    return 0


def carry_over(renamed: Mapping[str, str]) -> int:
    """Move the translations of reworded English sentences of the books to the new sentences."""
    for code in sorted(NAMES):
        entries = read_language(code)
        moved = {new: Entry(entries[old].forms, digest((new,))) for old, new in renamed.items() if old in entries}
        write(code, {id: entry for id, entry in entries.items() if id not in renamed} | moved)
        print(f"{code}: {len(moved)} carried over")
    return 0


def report(languages: Sequence[str], one_by_one: bool) -> int:
    """Print the counts of missing, stale and wrong translations per language, or each problem; 1 if there is any."""
    source, wrong = {**english(), **called_by_english()}, 0
    for code in languages:
        entries = read_language(code)
        found_problems = problems(entries, source)
        wrong += len(found_problems)
        if one_by_one:
            print("".join(f"{code}: {one.kind}: {one.id} {one.detail}".rstrip() + "\n" for one in found_problems), end="")
            continue
        counts = Counter(one.kind for one in found_problems)
        summary = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]) or "all well"
        print(f"{code}: {len(entries)} of {len(source)}; {summary}")
    return 1 if wrong else 0


def to_translate(entries: Mapping[str, Entry], source: Mapping[str, Forms]) -> str:
    """Blocks to fill in, with the English and the stale translation above each."""
    blocks = []
    for id, forms in source.items():
        entry = entries.get(id)
        if not any(forms) or (entry is not None and entry.digest == digest(forms)):
            continue
        comments = [f"# en: {quoted(form)}".replace("\n", "\n#   ") for form in forms]
        comments += [f"# now: {quoted(entry.forms[0])}".replace("\n", "\n#   ")] if entry else []
        blocks.append("\n".join(comments) + "\n" + block(id, ("",), len(forms) > 1))
    return "\n".join(blocks)


def put_in_place(code: str, files: Sequence[Path], made_from: str | None) -> int:
    """Merge partial files; a translation of today's English is never replaced by one of an older version."""
    called = called_by_english()
    source = {**english(), **called}
    try:
        older = english(made_from) if made_from else source
    except (OSError, subprocess.CalledProcessError):
        print(f"error: no en.po at {made_from!r}", file=sys.stderr)
        return 2
    entries, unknown, merged = read_language(code), [], 0
    for file in files:
        text = file.read_text(encoding="utf-8")
        of_books = {id: entry for id, entry in of_book(text).items() if id in called}
        entries |= of_books
        merged += len(of_books)
        for id, new in read(text).items():
            if id in called:
                continue
            if id not in source:
                unknown.append(id)
                continue
            made_digest = digest(older[id]) if id in older else digest(source[id])
            is_current = id in entries and entries[id].digest == digest(source[id])
            if made_digest == digest(source[id]) or not is_current:
                entries[id] = Entry(new.forms, made_digest)
                merged += 1
    write(code, entries)
    all_problems = problems(entries, source)
    wrong = [one for one in all_problems if one.kind not in ("missing", "stale")]
    print("".join(_line(code, one) for one in wrong), end="")
    print(f"{code}: {merged} put in place, {len(unknown)} unknown to English left out" + (f": {unknown[:9]}" if unknown else ""))
    return 1 if wrong else 0


def write(code: str, entries: dict[str, Entry]) -> None:
    """Write the files of a language; sentences whose English is in no book any more are left out."""
    called = called_by_english()
    words = {id: entry for id, entry in entries.items() if id not in called and entry.digest != digest((id,))}
    (LOCALE_DIR / f"{code}.po").write_text(written(code, words, english()), encoding="utf-8")
    for book in books():
        if entries.keys() & book.sentences().keys():
            book.folder.mkdir(exist_ok=True)
            (book.folder / f"{code}.po").write_text(written_book(book, code, entries), encoding="utf-8")


def _line(code: str, one: Problem) -> str:
    return f"{code}: {one.kind}: {one.id} {one.detail}".rstrip() + "\n"
