"""Where defaults come from: a flag, else a WHICHGPU_* variable, else the config file, else ours."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.names import nearest

# Options every command takes; in the config file they stand at the top, a command's own under [command].
SHARED = ("lang", "format", "catalog", "as_of", "catalog_as_known", "columns")


def early(argv: Sequence[str], environ: Mapping[str, str], flag: str) -> str | None:
    """The value of a flag needed before the command line is parsed: the language of help, the config file."""
    for index, word in enumerate(argv):
        if word == "--":
            break
        if word.startswith(f"--{flag}="):
            return word.partition("=")[2]
        if word == f"--{flag}" and index + 1 < len(argv):
            return argv[index + 1]
    return environ.get(f"WHICHGPU_{flag.upper()}") or None


def config_path(named: str | None) -> Path | None:
    """The config file: the one named, else the user's own where there is one."""
    if named:
        return Path(named).expanduser()
    from platformdirs import user_config_path

    usual = user_config_path("whichgpu", appauthor=False) / "config.toml"
    return usual if usual.is_file() else None


def read_config(path: Path | None, commands: Sequence[str]) -> dict[str, Any]:
    """The config as click's default map: shared options are spread over every command."""
    if path is None:
        return {}
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        message = msg("error.config-unreadable", path=str(path), why=problem.strerror or str(problem))
        raise UsageError("config-unreadable", message, msg("hint.config")) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        message = msg("error.config-malformed", path=str(path), why=str(problem))
        raise UsageError("config-malformed", message, msg("hint.config")) from problem
    shared: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {command: {} for command in commands}
    for key, value in data.items():
        name = key.replace("-", "_")
        if isinstance(value, dict) and key in own:
            own[key] = _checked(value, path)
        elif name in SHARED:
            shared[name] = str(value)
        else:
            raise _unknown_key(key, (*SHARED, *commands), path)
    return {command: shared | values for command, values in own.items()}


def check_keys(values: Mapping[str, Any], known: Sequence[str], path: Path) -> None:
    """Every key of a command's section must be one of its options."""
    for key in values:
        if key not in known and key not in SHARED:
            raise _unknown_key(key, known, path)


def _checked(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            raise _unknown_key(key, SHARED, path)
        plain[key.replace("-", "_")] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return plain


def _unknown_key(key: str, known: Sequence[str], path: Path) -> UnknownName:
    choices = nearest(key, known, least=0.4) or tuple(known)
    message = msg("error.unknown-key", name=key, path=str(path))
    return UnknownName("unknown-key", message, msg("hint.choices", choices=choices), choices)
