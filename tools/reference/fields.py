"""The page of fields: what a request may hold, and what every answer does."""

from __future__ import annotations

from reference.markdown import anchor, code, heading, table, text
from reference.records import ANSWERS, Record, catalog_meanings, records
from reference.settings import request_fields

OPENING = """# Fields

Names are the same in `--json`, in REST and in Python. Sizes are in bytes, times in seconds, bandwidths in bytes a second,
peaks in FLOP/s (a multiply-add counts two), shares between 0 and 1. `null` means not known, or that it does not apply.
Fields may be added; those there are keep their names and meaning.

A **figure** is a number that says how sure it is: `value`, the `low` and `high` of its 90% range, `unit`, `basis`
(`measured`, `calibrated`, `modelled` or `published`) and `sources`. **Money** is `{"amount": "4.234", "currency": "USD"}`: the
amount is text, so that nothing is rounded on the way.
"""


def page() -> str:
    """The page."""
    parts = [OPENING, heading(2, "A request", "request")]
    parts.append(
        "What `estimate`, `fit`, `recommend` and `estimate --requests` take. All but the task and the model may be left out.\n\n"
    )
    parts.append(table(("field", "meaning"), ((code(name), text(meaning)) for name, meaning in request_fields().items())))
    shown: dict[tuple[str, str], str] = {}
    for command in ANSWERS:
        parts.append(heading(2, code(command), anchor(command)))
        for record in records(command):
            key = record.module, record.name
            if key in shown:
                continue
            shown[key] = anchor(command, record.name)
            parts.append(_record(record, shown[key]))
        known = [one for one in records(command) if shown[one.module, one.name] != anchor(command, one.name)]
        if known:
            links = ", ".join(f"[{one.name}](#{shown[one.module, one.name]})" for one in known)
            parts.append(f"\nTold above: {links}.\n")
    parts.append(heading(2, "Columns of the catalog", "catalog"))
    parts.append("The tables in `catalog/data`, from their own `fields.csv`.\n\n")
    rows = ((code(name), code(column), text(meaning)) for (name, column), meaning in catalog_meanings().items())
    parts.append(table(("table", "column", "meaning"), rows))
    return "".join(parts)


def _record(record: Record, id: str) -> str:
    rows = ((code(one.name), text(one.type), text(one.meaning)) for one in record.fields)
    return heading(3, record.name, id) + text(record.about) + "\n\n" + table(("field", "type", "meaning"), rows)
