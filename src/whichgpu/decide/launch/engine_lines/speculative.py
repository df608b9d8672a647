"""Options of speculative decoding on a serve line, from an engine's record (`serve.speculative`)."""

from __future__ import annotations

import json
from collections.abc import Callable

from whichgpu.catalog.engines.record import EngineRecord
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.text import argument, in_folder
from whichgpu.workload.config_files.checkpoint_names import gguf_file
from whichgpu.workload.decoding.speculative import Speculative

EAGLE_HEADS = "path/to/eagle-heads"  # placeholder: only the user can name this checkpoint


def speculative_words(options: LaunchOptions, record: EngineRecord, folder: str = "") -> list[str]:
    """Return the words that set up speculative decoding; none if it is not requested or the engine has no option for it.

    GGUF files are in `folder`.
    """
    template = record.serve.speculative.get(options.speculative.method, "") if options.speculative else ""
    return [_filled(word, options, record, folder) for word in template.split()]


def speculative_line(options: LaunchOptions, record: EngineRecord) -> str:
    """Return the line that sets up speculative decoding in an engine's config file; empty for engines with options for it."""
    line = record.serve.speculative_file.get(options.speculative.method, "") if options.speculative else ""
    return _filled(line, options, record, quoted=json.dumps) if line else ""


def speculative_notes(options: LaunchOptions, record: EngineRecord) -> list[str]:
    """Return what the command line does not say about speculative decoding: heads to provide, or that it is not set."""
    speculative = options.speculative
    if speculative is None:
        return []
    if speculative.method not in record.serve.speculative | record.serve.speculative_file:
        return [f"Speculative decoding ({speculative.method}) is not set: {record.name} has no option for it."]
    notes = [f"Speculative decoding: the estimate assumes that {speculative.acceptance:.0%} of the drafted tokens are accepted."]
    if speculative.method == "eagle":
        notes.append(f"{EAGLE_HEADS}: EAGLE-3 heads trained for {options.model}.")
    return notes


def _filled(
    template: str, options: LaunchOptions, record: EngineRecord, folder: str = "", quoted: Callable[[str], str] = str
) -> str:
    """Return a template with the values of the request in its placeholders; other braces stay."""
    speculative: Speculative = options.speculative  # type: ignore[assignment]
    draft = speculative.draft or EAGLE_HEADS
    if record.serve.reads_gguf:
        draft = in_folder(folder, gguf_file(draft, options.dtype) if speculative.draft else f"{draft}.gguf")
    values = {
        "tokens": speculative.tokens,
        "verified": speculative.tokens + 1,
        "draft": quoted(argument(draft)),  # Last: the name may contain the other placeholders.
    }
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", str(value))
    return template
