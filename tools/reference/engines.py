"""Page of the engines' defaults that memory, time and serving are estimated from, out of their records."""

from __future__ import annotations

from reference.markdown import anchor, code, heading, table, text
from reference.translator import Translator
from whichgpu.catalog.engines.files import RecordLine
from whichgpu.catalog.engines.registry import engine_entries, engine_record
from whichgpu.catalog.store import Catalog

HEAD = ("field", "since", "value", "unit", "source")
ABOUT = (
    "What the estimates take for each engine's defaults, with the year a value holds from where it changed. A section that is "
    "`like` another engine's takes from there what it does not state. `whichgpu engines NAME` shows where an engine runs; "
    "[How to add an engine]({up}how-to-add/engine.md) says how one that is missing gets in."
)


def page(translator: Translator) -> str:
    """The page."""
    say, catalog = translator.say, Catalog()
    facts = {field for engine in catalog.engines for field in engine.__struct_fields__}
    parts = [f"# {say('Engines')}\n\n", say(ABOUT, up=translator.up), "\n"]
    head = [say(column) for column in HEAD]
    for id, lines in engine_entries().items():
        parts.append(heading(2, text(engine_record(id).name), anchor(id)))
        parts.append(table(head, (_row(line, catalog) for line in lines if line.field not in (*facts, "order"))))
    return "".join(parts)


def _row(line: RecordLine, catalog: Catalog) -> tuple[str, ...]:
    record = catalog.sources.get(line.source)
    url = record.url if record else line.source
    source = f"[{text(record.title if record else 'link')}]({url})" if url.startswith("https://") else text(url)
    return code(line.field), line.since, code(line.value), line.unit, source
