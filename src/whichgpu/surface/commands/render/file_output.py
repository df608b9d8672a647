"""Several files as one text on standard output, which can be saved or piped as it is."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

MANIFESTS = (".yaml", ".yml")


def joined_files(files: Mapping[str, str]) -> str:
    """Return one file as it is, manifests as one YAML stream, and other files as a shell script that writes them.

    >>> print(joined_files({"a.sh": "true\\n", "b.json": "{}"}), end="")
    cat > a.sh <<'END_OF_FILE'
    true
    END_OF_FILE
    cat > b.json <<'END_OF_FILE'
    {}
    END_OF_FILE
    """
    if len(files) == 1:
        return next(iter(files.values()))
    texts = {name: text if text.endswith("\n") else f"{text}\n" for name, text in files.items()}
    if not is_script(files):
        return "---\n".join(text.removeprefix("---\n") for text in texts.values())
    end = "END_OF_FILE"
    while any(end in text for text in texts.values()):
        end += "_"
    return "".join(f"cat > {quote(name)} <<'{end}'\n{text}{end}\n" for name, text in texts.items())


def is_script(files: Mapping[str, str]) -> bool:
    """Whether the files are printed as a shell script that writes them."""
    return len(files) > 1 and not all(name.endswith(MANIFESTS) for name in files)
