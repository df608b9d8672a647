"""Message catalogs: every translation with a digest of the English sentence it was made from.

In `<language>.po` an entry follows `#. en 1a2b3c4d`: if the English changes, the digest differs and the entry is stale. Books
(tables of facts, the reference) have sentences keyed by their English, each book in its own folder.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from whichgpu.base.messages import FACTS_DIR, LOCALE_DIR, SOURCE_LANGUAGE
from whichgpu.base.po import PoCatalog
from whichgpu.catalog.csvfile import read_cells
from whichgpu.catalog.engines.files import FOLDER as ENGINES
from whichgpu.catalog.engines.files import engine_cells

DATA = LOCALE_DIR.parent.parent / "catalog" / "data"
TABLES = {
    "quirks": ("text",),
    "unsupported": ("why",),
    "name_parts": ("meaning",),
    "engines": ("what", "note"),
    "targets": ("note",),
    "regions": ("city",),
    "countries": ("name",),
    "country_groups": ("name",),
}  # Columns of translated sentences or names, by table of facts.
WORDS_DIR = Path(__file__).resolve().parents[1] / "reference" / "words"
ENGLISH = LOCALE_DIR / f"{SOURCE_LANGUAGE}.po"
HEADER = """# {name}. {entries}; tools/translations keeps the file in order.
msgid ""
msgstr ""
"Language: {code}\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=1; plural=0;\\n"
"""
NAMES = {"ko": "Korean", "vi": "Vietnamese", "zh": "Chinese (simplified)"}
_DIGEST = re.compile(r'^#\. en ([0-9a-f]{8})\n(?:#.*\n)*msgid "([^"\n]+)"$', re.MULTILINE)

Forms = tuple[str, ...]


class Entry(msgspec.Struct, frozen=True):
    """A translation with its plural forms and the digest of the English sentence."""

    forms: Forms
    digest: str


class Book(msgspec.Struct, frozen=True):
    """Sentences keyed by their English: subject, folder of the translations, and the source of the English."""

    of: str
    folder: Path
    sentences: Callable[[], Mapping[str, Forms]]


def digest(forms: Iterable[str]) -> str:
    """Short digest of an English sentence."""
    return sha256("\0".join(forms).encode()).hexdigest()[:8]


def english(source: str | None = None) -> Mapping[str, Forms]:
    """English sentences of this checkout, of a file, or of a commit."""
    if source is None:
        return PoCatalog(ENGLISH.read_text(encoding="utf-8"))
    if Path(source).is_file():
        return PoCatalog(Path(source).read_text(encoding="utf-8"))
    result = subprocess.run(
        ["git", "show", f"{source}:./{ENGLISH.name}"], cwd=ENGLISH.parent, capture_output=True, encoding="utf-8", check=True
    )
    return PoCatalog(result.stdout)


def read(text: str) -> dict[str, Entry]:
    """Parse the non-empty entries of a translated catalog."""
    digests = {id: found for found, id in _DIGEST.findall(text)}
    return {id: Entry(forms, digests.get(id, "")) for id, forms in PoCatalog(text).items() if any(forms)}


def read_language(code: str) -> dict[str, Entry]:
    """All entries of a language, books included; empty if it has no files yet."""
    path = LOCALE_DIR / f"{code}.po"
    entries = read(path.read_text(encoding="utf-8")) if path.exists() else {}
    for book in books():
        path = book.folder / f"{code}.po"
        entries |= of_book(path.read_text(encoding="utf-8")) if path.exists() else {}
    return entries


def of_book(text: str) -> dict[str, Entry]:
    """Parse a book, whose entries are keyed by their English and so never stale."""
    return {id: Entry(forms, digest((id,))) for id, forms in PoCatalog(text).items() if any(forms)}


def books() -> tuple[Book, ...]:
    """All books."""
    return Book("facts", FACTS_DIR, facts), Book("the reference", WORDS_DIR, reference)


def called_by_english() -> dict[str, Forms]:
    """English sentences of all books, by themselves as keys."""
    return {id: forms for book in books() for id, forms in book.sentences().items()}


def reference() -> dict[str, Forms]:
    """English sentences of the reference, keyed by themselves."""
    from reference import sentences  # It imports the whole program.

    return {sentence: (sentence,) for sentence in sentences()}


def facts() -> dict[str, Forms]:
    """English sentences of the tables of facts that users see, keyed by themselves."""
    forms: dict[str, Forms] = {}
    for table, columns in TABLES.items():
        header, lines = engine_cells(DATA, columns) if table == ENGINES else read_cells(DATA / f"{table}.csv")
        rows = [dict(zip(header, cells, strict=True)) for _, cells in lines]
        forms |= {row[column]: (row[column],) for row in rows for column in columns if row[column]}
    return forms


def written_book(book: Book, code: str, entries: Mapping[str, Entry]) -> str:
    """Text of a book's file in a language, in the order of its English."""
    header = HEADER.format(name=f"{NAMES.get(code, code)}, {book.of}", entries="Each entry is called by its English", code=code)
    return "\n".join([header, *(block(id, entries[id].forms, False) for id in book.sentences() if id in entries)])


def written(code: str, entries: Mapping[str, Entry], source: Mapping[str, Forms]) -> str:
    """Text of a language's file, in the order of the English one; superfluous entries come last."""
    order = [*(id for id in source if id in entries), *(id for id in entries if id not in source)]
    note = "Each entry names the digest of the English it was made from"
    blocks = [HEADER.format(name=NAMES.get(code, code), entries=note, code=code)]
    blocks += [f"#. en {entries[id].digest}\n" + block(id, entries[id].forms, len(source.get(id, ())) > 1) for id in order]
    return "\n".join(blocks)


def block(id: str, forms: Forms, is_plural: bool) -> str:
    """Text of an entry."""
    if not is_plural:
        return f"msgid {quoted(id)}\nmsgstr {quoted(forms[0])}\n"
    lines = "".join(f"msgstr[{number}] {quoted(form)}\n" for number, form in enumerate(forms))
    return f'msgid "{id}"\nmsgid_plural "{id}"\n{lines}'


def quoted(text: str) -> str:
    """Quote a text, one quoted line per line."""
    parts = [part.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") for part in text.split("\n")]
    lines = [f'"{part}\\n"' for part in parts[:-1]] + [f'"{parts[-1]}"']
    if len(lines) > 1 and parts[-1] == "":
        lines.pop()
    return lines[0] if len(lines) == 1 else "\n".join(['""', *lines])
