"""Text of launch files: comments and YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any


class NodeWord(str):
    """A word with a variable that the shell of each node expands: NODE_RANK, HEAD_ADDRESS, NODE_OPTIONS or PORT."""

    __slots__ = ()


def comments(lines: Sequence[str]) -> str:
    """Return lines as comments; a line break or control character in a name must not end its comment."""
    return "".join(f"# {' '.join(map(_printable, line.split()))}\n" for line in lines)


def argument(name: str) -> str:
    """Return a name as an argument that no program reads as an option.

    >>> argument("-model.gguf")
    './-model.gguf'
    """
    return f"./{name}" if name.startswith("-") else name


def in_folder(folder: str, name: str) -> str:
    """Return a file's path in a folder, or its name without one.

    >>> in_folder("/workspace", "model.gguf"), in_folder("", "model.gguf")
    ('/workspace/model.gguf', 'model.gguf')
    """
    return f"{folder}/{name.removeprefix('./')}" if folder and not name.startswith("/") else name


def _printable(word: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in word)


def sbatch_head(name: str, nodes: int, gpus_per_node: int, others: Sequence[str] = ()) -> str:
    """Return the head of an sbatch script: one task on each node; `others` are more options of sbatch."""
    options = [f"--job-name={name}", f"--nodes={nodes}", "--ntasks-per-node=1", f"--gpus-per-node={gpus_per_node}"]
    options += [f"--cpus-per-gpu={CPUS_PER_GPU}", *others]
    return "#!/bin/bash\n" + "".join(f"#SBATCH {option}\n" for option in options)


CPUS_PER_GPU = 4  # Without it many clusters give a task one core; the smallest rented machines have four (assumed).
SLURM_HEAD_ADDRESS = 'export HEAD_ADDRESS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


# Variable with the user's token, which the Hugging Face hub asks for before it sends gated models.
TOKEN = "HF_TOKEN"
SECRET_COMMAND = f"kubectl create secret generic hf-token --from-literal={TOKEN}=…"


def token_note(how: str) -> list[str]:
    """Return how to give a machine the user's token for models of the Hugging Face hub that ask for access."""
    return [f"Gated models need your Hugging Face token: {how}"]


def write_file(name: str, text: str) -> str:
    """Return the shell code that writes a file."""
    return f"cat > {name} <<'{_END}'\n{text}{_END}\n"


_END = "END_OF_FILE"  # line that ends a file written by a shell


_PLAIN_KEY = re.compile(r"[\w~/-][\w~/.-]*")  # a key of YAML that needs no quotes


def yaml(value: Mapping[str, Any], depth: int = 0) -> str:
    """Format nested mappings as YAML, with strings quoted and lists written as in JSON; texts of several lines are blocks.

    >>> print(yaml({"name": "a", "resources": {"ports": 8000, "use_spot": True}, "run": "a\\nb\\n"}), end="")
    name: "a"
    resources:
      ports: 8000
      use_spot: true
    run: |
      a
      b
    """
    text = ""
    for name, item in value.items():
        start = "  " * depth + f"{name if _PLAIN_KEY.fullmatch(name) else _scalar(name, 0)}:"
        if isinstance(item, dict):
            text += f"{start}\n{yaml(item, depth + 1)}"
        elif isinstance(item, list) and any(_has_lines(one) for one in item):
            text += f"{start}\n" + "".join("  " * depth + f"  - {_scalar(one, depth + 2)}\n" for one in item)
        else:
            text += f"{start} {_scalar(item, depth + 1)}\n"
    return text


def _scalar(value: Any, depth: int) -> str:
    """Return a value in one line, or a text of several lines as a block."""
    if not _has_lines(value):
        text = json.dumps(value, ensure_ascii=False)
        return "".join(one if one.isprintable() else f"\\U{ord(one):08X}" for one in text)
    lines = value.removesuffix("\n").split("\n")
    return ("|" if value.endswith("\n") else "|-") + "".join(f"\n{'  ' * depth}{line}" if line else "\n" for line in lines)


def _has_lines(value: Any) -> bool:
    """Whether a value is a text of several lines that a block can hold: it starts with no space and has no control characters."""
    if not isinstance(value, str) or "\n" not in value or value[0].isspace() or value.endswith("\n\n"):
        return False
    return all(line.isprintable() for line in value.split("\n"))
