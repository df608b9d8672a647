"""Settings: a flag takes precedence over a WHICHGPU_* variable, which takes precedence over the config file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.files import read_regular_file, user_path
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word

MAX_CONFIG_BYTES = 1 << 20  # Larger config files are rejected (assumed).
# Options of every command are at the top of the config file, a command's own under [command].
SHARED = ("lang", "format", "catalog", "as_of", "catalog_as_known", "columns")


def early_option(argv: Sequence[str], environ: Mapping[str, str], flag: str) -> str | None:
    """Return the value of a flag, or of its variable, that is needed before parsing: help language or config file; else None."""
    for index, word in enumerate(argv):
        if word == "--":
            break
        if word.startswith(f"--{flag}="):
            return word.partition("=")[2]
        if word == f"--{flag}" and index + 1 < len(argv):
            return argv[index + 1]
    return environ.get(f"WHICHGPU_{flag.upper()}") or None


def config_path(name: str | None) -> Path | None:
    """Return the path of the config file: the one named, else the user's own if it exists."""
    if name:
        return user_path(name)
    from platformdirs import user_config_path

    try:
        default = user_config_path("whichgpu", appauthor=False) / "config.toml"
        return default if default.is_file() else None
    except (OSError, RuntimeError):  # The home folder is missing or unreadable.
        return None


def read_config(path: Path, options: Mapping[str, Sequence[str]]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return shared settings and settings by command from a config file; `options` are the names that each command allows."""
    shared: dict[str, str] = {}
    own: dict[str, dict[str, str]] = {}
    for key, value in _load(path).items():
        name = key.replace("-", "_")
        if isinstance(value, dict) and key in options:
            own[key] = {_option_name(option, options[key], path): _text(setting) for option, setting in value.items()}
        elif name in SHARED and not isinstance(value, dict):
            shared[name] = _text(value)
        else:
            raise _unknown_key(key, (*SHARED, *options), path)
    return shared, own


def _load(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(read_regular_file(path, MAX_CONFIG_BYTES).decode("utf-8"))
    except OSError as problem:
        message = msg("error.config-unreadable", path=str(path), why=problem.strerror or str(problem))
        raise UsageError("config-unreadable", message, msg("hint.config")) from problem
    except (ValueError, RecursionError) as problem:  # The file has malformed TOML or UTF-8.
        message = msg("error.config-malformed", path=str(path), why=str(problem))
        raise UsageError("config-malformed", message, msg("hint.config")) from problem


def _option_name(option: str, options: Sequence[str], path: Path) -> str:
    name = option.replace("-", "_")
    if name not in (*options, *SHARED):
        raise _unknown_key(option, (*options, *SHARED), path)
    return name


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _unknown_key(key: str, valid_keys: Sequence[str], path: Path) -> UnknownName:
    error = unknown_word("key", key, valid_keys)
    return UnknownName(error.kind, msg("error.in-file", path=str(path), what=error.message), error.hint, error.choices)
