"""The page of fields: fields of a request, and fields of every answer."""

from __future__ import annotations

from reference.markdown import anchor, code, heading, table, text
from reference.records import ANSWERS, Record, catalog_meanings, records
from reference.settings import request_fields
from reference.translator import Translator
from reference.typed import holds

OPENING = (
    "Names are the same in `--json`, in REST and in Python. Sizes are in bytes, times in seconds, bandwidths in bytes a second, "
    "peaks in FLOP/s (a multiply-add counts two), shares between 0 and 1. `null` means not known, or that it does not apply. "
    "Fields may be added; those there are keep their names and meaning.",
    "A **figure** is a number that says how sure it is: `value`, the `low` and `high` of its 90% range, `unit`, `basis` "
    "(`measured`, `calibrated`, `modelled` or `published`) and `sources`.",
    '**Money** is `{"amount": "4.234", "currency": "USD"}`: the amount is text, so that nothing is rounded on the way.',
    "Names, words with a fixed meaning (`fits`, `on-demand`), numbers and dates are the same in every language. Sentences for "
    "people (`because`, `warnings`, `assumptions`, an error's `message` and `hint`) are in the language of `--lang`, or `lang` "
    "over HTTP: programs should not read them. What the catalog's tables say in words (`quirks`, `note`) is in English there.",
)


def page(translator: Translator) -> str:
    """The page."""
    say = translator.say
    parts = [f"# {say('Fields')}\n\n", *(say(words) + "\n\n" for words in OPENING), heading(2, say("A request"), "request")]
    about = "What `estimate`, `fit`, `recommend` and `estimate --requests` take. All but the task and the model may be left out."
    parts.append(say(about) + "\n\n")
    request = request_fields(translator).items()
    parts.append(table((say("field"), say("meaning")), ((code(name), text(meaning)) for name, meaning in request)))
    anchors: dict[tuple[str, str], str] = {}
    for command in ANSWERS:
        parts.append(heading(2, code(command), anchor(command)))
        for record in records(command):
            key = record.module, record.name
            if key in anchors:
                continue
            anchors[key] = anchor(command, record.name)
            parts.append(_record(record, anchors[key], translator))
        repeated = [one for one in records(command) if anchors[one.module, one.name] != anchor(command, one.name)]
        if repeated:
            links = ", ".join(f"[{one.name}](#{anchors[one.module, one.name]})" for one in repeated)
            parts.append(f"\n{say('Told above: {links}.', links=links)}\n")
    parts.append(heading(2, say("Columns of the catalog"), "catalog"))
    parts.append(say("The tables in `catalog/data`, from their own `fields.csv`.") + "\n\n")
    rows = ((code(name), code(column), text(say(meaning))) for (name, column), meaning in catalog_meanings().items())
    parts.append(table((say("table"), say("column"), say("meaning")), rows))
    return "".join(parts)


def _record(record: Record, id: str, translator: Translator) -> str:
    say = translator.say
    rows = ((code(one.name), text(holds(one.type, translator)), text(say(one.meaning))) for one in record.fields)
    return (
        heading(3, record.name, id) + text(say(record.about)) + "\n\n" + table((say("field"), say("type"), say("meaning")), rows)
    )
